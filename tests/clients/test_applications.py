"""Requests that say for which application they are, and models whose run time depends on the request."""

import json
import unittest

import numpy as np
from tritonclient.grpc import service_pb2

from clients import GRPC, HTTP, each_client, refused
from harness import PATIENCE_S, REAL_MODELS, ServerCase, eventually

# What the two applications of the emulated model take, one request alone.
SHORT_MS, LONG_MS = 2, 20


class Applications(ServerCase):
    """The emulated model takes as many milliseconds as its input says."""

    # A hundredth of the time of many executors is enough to learn quickly.
    arguments = ("--emulated-executors", "64")

    @classmethod
    def make(cls, repository):
        lines = ["slo_ms = 20000", 'engine = "emulated"', 'alone_input = "MS"']
        for mean in (SHORT_MS, LONG_MS):
            lines += ["[[alone]]", f"mean_ms = {mean}", f"deviation_ms = {mean / 20}"]
        for side, name in (("input", "MS"), ("output", "OUT")):
            lines += [f"[[{side}]]", f'name = "{name}"', 'datatype = "FP32"', "shape = [1]"]
        repository.write("timed/fermata.toml", "\n".join(lines) + "\n")
        repository.emulated("plain", inputs=[("IN", "FP32", [4])], outputs=[("OUT", "FP32", [4])])

    def asked(self, application, model="plain"):
        return self.server.metric("fermata_application_requests_total", model=model, application=application)

    @each_client()
    def test_a_header_or_metadata_names_the_application(self, client):
        inputs = [client.kind.input("IN", np.ones((1, 4), np.float32), datatype="FP32")]
        before = self.asked("search")
        client.infer("plain", inputs, headers={"x-fermata-application": "search"})
        self.assertEqual(self.asked("search"), before + 1)
        client.infer("plain", inputs)
        self.assertEqual(self.asked("search"), before + 1)

    def body(self, **parameters):
        tensor = {"name": "IN", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
        return json.dumps({"inputs": [tensor], "parameters": parameters}).encode()

    def message(self, application):
        message = service_pb2.ModelInferRequest(model_name="plain")
        message.inputs.add(name="IN", datatype="FP32", shape=[1, 4])
        message.raw_input_contents.append(b"\0" * 16)
        if isinstance(application, str):
            message.parameters["application"].string_param = application
        else:
            message.parameters["application"].int64_param = application
        return message

    def test_a_parameter_names_it_and_counts_for_more_than_the_header(self):
        header = {"x-fermata-application": "of-the-header"}
        status, _, _ = self.server.ask("POST", "/v2/models/plain/infer", self.body(application="chat"), header)
        self.assertEqual((status, self.asked("chat"), self.asked("of-the-header")), (200, 1, 0))
        with GRPC.connect(self.server) as client:
            metadata = (("x-fermata-application", "of-the-header"),)
            client.client._client_stub.ModelInfer(self.message("chat"), metadata=metadata, timeout=PATIENCE_S)
        self.assertEqual((self.asked("chat"), self.asked("of-the-header")), (2, 0))

    def test_nonsense_is_refused(self):
        for name in ("", "x" * 65, "a\tb"):
            status, _, body = self.server.ask("POST", "/v2/models/plain/infer", self.body(application=name))
            self.assertEqual(status, 400, name)
            self.assertIn(b"1 to 64 bytes", body)
        status, _, body = self.server.ask("POST", "/v2/models/plain/infer", self.body(application=7))
        self.assertEqual(status, 400)
        self.assertIn(b"application", body)
        with GRPC.connect(self.server) as client:
            with self.assertRaises(Exception) as caught:
                client.client._client_stub.ModelInfer(self.message(7), timeout=PATIENCE_S)
            self.assertEqual(caught.exception.code().name, "INVALID_ARGUMENT")

    def test_too_many_share_the_last_place_and_it_is_said_once(self):
        for number in range(80):
            body = self.body(application=f"crowd-{number}")
            self.assertEqual(self.server.ask("POST", "/v2/models/plain/infer", body)[0], 200)
        self.assertGreaterEqual(self.asked("others"), 49)
        warned = [line for line in self.server.log if "more applications than are told apart" in line]
        self.assertEqual(len(warned), 1)

    def test_requests_are_run_again_alone_once_there_are_applications(self):
        runs = lambda: self.server.metric("fermata_alone_runs_total", model="timed")  # noqa: E731
        with HTTP.connect(self.server) as client:

            def ask(ms, name):
                inputs = [HTTP.input("MS", np.full((1, 1), ms, np.float32), datatype="FP32")]
                headers = {"x-fermata-application": name} if name else None
                client.infer("timed", inputs, headers=headers)

            ask(SHORT_MS, None)
            self.assertEqual(runs(), 0)

            def learn():
                ask(SHORT_MS, "short")
                ask(LONG_MS, "long")
                return runs() >= 3

            eventually(learn, "requests that were run again")
        self.assertEqual(self.server.metric("fermata_pending_requests", model="timed"), 0)


class Lengths(ServerCase):
    """A real encoder, which is measured by the length of requests when it is loaded."""

    arguments = ("--cpu-executors", "1", "--cpu-threads", "1")

    @classmethod
    def make(cls, repository):
        if not (REAL_MODELS / "minilm.onnx").exists():
            raise unittest.SkipTest("make setup fetches the encoder")
        for name, more in (("encoder", ""), ("point", 'run_time = "point"\n'), ("wrong", 'run_time = "often"\n')):
            repository.onnx(name, REAL_MODELS / "minilm.onnx", config="max_batch_size: 8\n", slo_ms=None)
            repository.write(f"{name}/fermata.toml", f"slo_ms = 20000\n{more}")

    ready = False

    def setUp(self):
        for name in ("encoder", "point"):
            eventually(lambda: self.server.get(f"/v2/models/{name}/ready")[0] == 200, name, show=self.server.tail)

    def ask(self, client, model, lengths):
        pending = []
        for length in lengths:
            tensors = {"input_ids": np.full((1, length), 2000), "attention_mask": np.ones((1, length))}
            inputs = [client.kind.input(name, array.astype(np.int64), datatype="INT64") for name, array in tensors.items()]
            pending.append(client.async_infer(model, inputs))
        return [answer.get_result(timeout=PATIENCE_S).as_numpy("last_hidden_state") for answer in pending]

    def test_requests_of_all_lengths_are_answered_and_some_run_again(self):
        with HTTP.connect(self.server, concurrency=8) as client:
            lengths = [3, 9, 30, 90, 200, 9, 9, 30]
            for model in ("encoder", "point"):
                shapes = [hidden.shape for hidden in self.ask(client, model, lengths)]
                self.assertEqual(shapes, [(1, length, 384) for length in lengths])

            def learn():
                self.ask(client, "encoder", [5, 50])
                return self.server.metric("fermata_alone_runs_total", model="encoder") >= 1

            eventually(learn, "a request that was run again")
        self.assertEqual(self.server.metric("fermata_alone_runs_total", model="point"), 0)

    def test_what_the_model_cannot_take_is_refused_before_it_spoils_a_batch(self):
        with HTTP.connect(self.server) as client:
            with refused("length 700", "up to length 512", status=("400",)):
                array = np.ones((1, 700), np.int64)
                inputs = [HTTP.input(name, array, datatype="INT64") for name in ("input_ids", "attention_mask")]
                client.infer("encoder", inputs)

    def test_a_setting_that_is_none_is_named(self):
        def reason_of_refusal():
            index = json.loads(self.server.ask("POST", "/v2/repository/index", b"{}")[2])
            # It is looked at last, when the others are ready already.
            return next(model.get("reason") for model in index if model["name"] == "wrong")

        reason = eventually(reason_of_refusal, "why a model is not there")
        self.assertIn("'often' is neither \"point\" nor \"spread\"", reason)


if __name__ == "__main__":
    unittest.main()
