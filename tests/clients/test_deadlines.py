"""Deadlines, and clients that go away."""

import json
import socket
import unittest

import numpy as np
from tritonclient.grpc import service_pb2

from clients import GRPC, HTTP, KINDS, InferenceServerException, each_client, refused
from harness import PATIENCE_S, ServerCase, eventually

# One execution, far longer than the deadlines below and far shorter than any patience.
SLOW_MS = 1000


class Deadlines(ServerCase):
    @classmethod
    def make(cls, repository):
        for name, latency in (("slow", SLOW_MS), ("fast", 0.5)):
            repository.emulated(name, inputs=[("IN", "FP32", [4])], outputs=[("OUT", "FP32", [4])],
                                latency_ms=latency, batch=1)

    def inputs(self, kind):
        return [kind.input("IN", np.ones((1, 4), np.float32), datatype="FP32")]

    @each_client()
    def test_a_deadline_that_cannot_be_met_is_refused(self, client):
        shed = ("503", "StatusCode.RESOURCE_EXHAUSTED")
        inputs = self.inputs(client.kind)
        before = self.server.requests("slow", "dropped_late")
        with refused("late", status=shed):
            client.infer("slow", inputs, timeout=100_000)
        with refused("late", status=shed):
            client.infer("slow", inputs, headers={"x-request-deadline-ms": "100"})
        self.assertEqual(self.server.requests("slow", "dropped_late"), before + 2)
        client.infer("slow", inputs, timeout=30_000_000)

    def body(self, **parameters):
        tensor = {"name": "IN", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
        return json.dumps({"inputs": [tensor], "parameters": parameters}).encode()

    def test_a_refusal_says_when_to_come_back(self):
        status, headers, body = self.server.ask("POST", "/v2/models/slow/infer", self.body(timeout=100_000))
        self.assertEqual(status, 503)
        self.assertGreaterEqual(int(headers["Retry-After"]), 1)
        answer = json.loads(body)
        self.assertEqual(answer["reason"], "late")
        self.assertIn("deadline", answer["error"])
        with GRPC.connect(self.server) as client:
            message = service_pb2.ModelInferRequest(model_name="slow")
            message.inputs.add(name="IN", datatype="FP32", shape=[1, 4])
            message.raw_input_contents.append(b"\0" * 16)
            message.parameters["timeout"].int64_param = 100_000
            with self.assertRaises(Exception) as caught:
                client.client._client_stub.ModelInfer(message, timeout=PATIENCE_S)
            self.assertEqual(caught.exception.code().name, "RESOURCE_EXHAUSTED")
            metadata = dict(caught.exception.trailing_metadata())
            self.assertEqual(metadata["fermata-reason"], "late")
            self.assertGreaterEqual(int(metadata["retry-after"]), 1)

    def test_who_waits_too_long_is_refused_as_well(self):
        with HTTP.connect(self.server, concurrency=4) as client:
            inputs = self.inputs(HTTP)
            # The executor is busy with the first; the others could start too late only.
            pending = [client.async_infer("slow", inputs, timeout=int(1.7 * SLOW_MS * 1000)) for _ in range(4)]
            outcomes = []
            for answer in pending:
                try:
                    answer.get_result(timeout=PATIENCE_S)
                    outcomes.append("200")
                except Exception as error:
                    outcomes.append(error.status())
            self.assertIn("503", outcomes)
            self.assertEqual(set(outcomes) - {"200", "503", "504"}, set())

    def test_nonsense_is_refused(self):
        for value in ("soon", "-1", "0"):
            status, _, body = self.server.ask("POST", "/v2/models/fast/infer", self.body(),
                                              {"x-request-deadline-ms": value})
            self.assertEqual(status, 400)
            self.assertIn(b"x-request-deadline-ms", body)
        status, _, body = self.server.ask("POST", "/v2/models/fast/infer", self.body(timeout=-5))
        self.assertEqual(status, 400)
        self.assertIn(b"timeout", body)

    def test_a_client_that_goes_away_cancels(self):
        before = self.server.requests("slow", "cancelled")
        host, port = self.server.http.rsplit(":", 1)
        body = self.body()
        with socket.create_connection((host, int(port))) as connection:
            head = f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            eventually(lambda: self.server.metric("fermata_pending_requests", model="slow") >= 1, "a request")
        eventually(lambda: self.server.requests("slow", "cancelled") > before, "a request that is cancelled")
        self.assertEqual(self.server.metric("fermata_pending_requests", model="slow"), 0)
        for kind in KINDS:
            with kind.connect(self.server) as client:
                client.infer("fast", self.inputs(kind))


class Held(ServerCase):
    """The default policy, with objectives as people have them."""

    arguments = ("--policy", "fermata", "--emulated-executors", "2")
    models = ("a", "b", "c")

    @classmethod
    def make(cls, repository):
        for name in cls.models:
            repository.emulated(name, inputs=[("IN", "FP32", [4])], outputs=[("OUT", "FP32", [4])], slo_ms=500,
                                latency_ms=2)

    def test_every_request_is_answered(self):
        answered, refused = 0, 0
        with HTTP.connect(self.server, concurrency=32) as client:
            inputs = [HTTP.input("IN", np.ones((1, 4), np.float32), datatype="FP32")]
            for pending in [client.async_infer(name, inputs) for _ in range(50) for name in self.models]:
                try:
                    self.assertEqual(pending.get_result(timeout=PATIENCE_S).as_numpy("OUT").shape, (1, 4))
                    answered += 1
                except InferenceServerException as error:
                    # On a machine that is busy with other things, a batch that was held may come too late.
                    self.assertIn(error.status(), ("503", "504"))
                    refused += 1
        self.assertGreater(answered, refused)
        self.assertEqual(self.server.metric("fermata_requests_total"), answered + refused)
        self.assertEqual(self.server.metric("fermata_pending_requests"), 0)


if __name__ == "__main__":
    unittest.main()
