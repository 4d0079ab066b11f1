"""What is wrong with a request is named, with the protocol's status, and everybody else is served on."""

import gzip
import json
import socket
import struct
import unittest

import numpy as np
from tritonclient.grpc import service_pb2

from clients import GRPC, HTTP, each_client, refused, samples
from harness import PATIENCE_S, SMALL_MODELS, ServerCase

INFER = "/v2/models/echo/infer"
LENGTH = "Inference-Header-Content-Length"


def request(**changes):
    """The JSON of a good request, with changes to its input."""
    tensor = {"name": "IN", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4], **changes}
    return {"inputs": [{key: value for key, value in tensor.items() if value is not None}]}


class RequestCase(ServerCase):
    arguments = ("--max-request-mib", "8")

    @classmethod
    def make(cls, repository):
        repository.emulated("echo", inputs=[("IN", "FP32", [4])], outputs=[("OUT", "FP32", [4])])
        repository.emulated("bytes", inputs=[("IN", "BYTES", [2])], outputs=[("OUT", "BYTES", [2])])
        repository.onnx("gather", SMALL_MODELS / "gather.onnx", config="max_batch_size: 8\n")

    def tearDown(self):
        """After every test: a good request is answered, of this model and of another."""
        with HTTP.connect(self.server) as client:
            array = samples("FP32")
            result = client.infer("echo", [HTTP.input("IN", array, datatype="FP32")])
            np.testing.assert_array_equal(result.as_numpy("OUT"), array)
            result = client.infer("gather", [HTTP.input("index", np.array([[2]], np.int64), datatype="INT64")])
            self.assertEqual(result.as_numpy("y").item(), 30)

    def post(self, body, status, *words, path=INFER, headers=()):
        body = json.dumps(body).encode() if isinstance(body, dict) else body
        got, headers, answer = self.server.ask("POST", path, body, headers)
        self.assertEqual(got, status, answer)
        self.assertEqual(headers["Content-Type"], "application/json")
        message = json.loads(answer)["error"]
        for word in words:
            self.assertIn(word, message)
        return headers


class BadRequests(RequestCase):
    def test_a_good_request_is_good(self):
        self.assertEqual(self.server.ask("POST", INFER, json.dumps(request()).encode())[0], 200)

    def test_tensors_that_do_not_fit(self):
        self.post(request(shape=[1, 5], data=[0] * 5), 400, "IN", "[1,5]", "[-1,4]")
        self.post(request(shape=[4]), 400, "IN", "[4]", "[-1,4]")
        self.post(request(shape=[1, -4]), 400, "IN", "[1,-4]")
        self.post(request(shape=[9, 4], data=[0] * 36), 400, "IN", "9", "1 to 8")
        self.post(request(shape=[0, 4], data=[]), 400, "IN", "batch of 0")
        self.post(request(shape=[2**62, 4]), 400, "IN")
        self.post(request(datatype="FP64"), 400, "IN", "FP64", "FP32")
        self.post(request(datatype="float"), 400, "IN", "'float'", "FP32")
        self.post(request(name="INPUT"), 400, "'INPUT'", "echo", "'IN'")
        self.post(request(data=[1, 2, 3]), 400, "IN", "3", "4")
        self.post(request(data=[1, 2, 3, 4, 5]), 400, "IN", "4")
        self.post(request(data=[1, 2, "x", 4]), 400, "IN")
        self.post(request(data=None), 400, "IN", "no data")
        self.post({"inputs": []}, 400, "IN", "missing")
        self.post({"inputs": request()["inputs"] * 2}, 400, "IN", "twice")
        self.post({**request(), "outputs": [{"name": "RESULT"}]}, 400, "'RESULT'", "'OUT'")
        self.post({**request(), "outputs": [{"name": "OUT"}] * 2}, 400, "OUT", "twice")

    def test_broken_json(self):
        for body, word in [(b"", "EOF"), (b"{", "EOF"), (b"[]", "inputs"), (b"{}", "inputs"), (b"\xff\xfe", "JSON"),
                           (b'{"inputs":3}', "inputs"), (b'{"inputs":[]} x', "trailing"),
                           (b'{"inputs":[{"name":1}]}', "name"), (b"[" * 100_000, "")]:
            self.post(body, 400, "JSON", word)
        self.post({**request(), "parameters": {"timeout": "soon"}}, 400, "timeout")

    def test_header_lengths_that_do_not_fit(self):
        text = json.dumps(request(data=None, parameters={"binary_data_size": 16})).encode()
        body = text + b"\0" * 16
        self.assertEqual(self.server.ask("POST", INFER, body, {LENGTH: str(len(text))})[0], 200)
        self.post(body, 400, LENGTH, headers={LENGTH: str(len(body) + 1)})
        self.post(body, 400, LENGTH, headers={LENGTH: str(2**70)})
        self.post(body, 400, LENGTH, headers={LENGTH: "-1"})
        self.post(body, 400, LENGTH, headers={LENGTH: "many"})
        self.post(body[:-1], 400, "IN", "15", headers={LENGTH: str(len(text))})
        self.post(body + b"\0", 400, "1 bytes", headers={LENGTH: str(len(text))})
        self.post(text + b"\0" * 12, 400, "IN", "12", headers={LENGTH: str(len(text))})
        wrong = json.dumps(request(data=None, parameters={"binary_data_size": 12})).encode()
        self.post(wrong + b"\0" * 12, 400, "IN", "12", "16", headers={LENGTH: str(len(wrong))})

    def test_strings_that_do_not_fit(self):
        def ask(data, status, *words):
            head = request(shape=[1, 2], datatype="BYTES", data=None, parameters={"binary_data_size": len(data)})
            text = json.dumps(head).encode()
            self.post(text + data, status, *words, path="/v2/models/bytes/infer", headers={LENGTH: str(len(text))})

        ask(struct.pack("<I", 3) + b"abc", 400, "IN", "2")
        ask(struct.pack("<I", 2**31) + b"abc", 400, "IN")
        ask(struct.pack("<I", 0) * 3, 400, "IN")

    def test_unknown_models_and_versions(self):
        self.post(request(), 404, "nothing", path="/v2/models/nothing/infer")
        self.post(request(), 404, "echo", "7", path="/v2/models/echo/versions/7/infer")
        self.post(request(), 404, "echo", "x", path="/v2/models/echo/versions/x/infer")
        self.post(request(), 404, path="/v2/models/%2e%2e%2f/infer")

    @each_client()
    def test_the_clients_see_the_same(self, client):
        kind = client.kind
        array = samples("FP32")
        fine = kind.input("IN", array, datatype="FP32")
        invalid = ("400", "StatusCode.INVALID_ARGUMENT")
        unknown = ("404", "StatusCode.NOT_FOUND")
        with refused("nothing", status=unknown):
            client.infer("nothing", [fine])
        with refused("echo", "9", status=unknown):
            client.infer("echo", [fine], model_version="9")
        with refused("IN", "[3,3]", "[-1,4]", status=invalid):
            client.infer("echo", [kind.input("IN", np.zeros((3, 3), np.float32), datatype="FP32")])
        with refused("IN", "INT64", "FP32", status=invalid):
            client.infer("echo", [kind.input("IN", np.zeros((1, 4), np.int64), datatype="INT64")])
        with refused("'X'", "'IN'", status=invalid):
            client.infer("echo", [kind.input("X", array, datatype="FP32")])
        with refused("'Y'", "'OUT'", status=invalid):
            client.infer("echo", [fine], outputs=[kind.output("Y")])
        with refused("BYTES", status=invalid):
            client.infer("bytes", [kind.input("IN", samples("BYTES", (1, 2)), datatype="BYTES")],
                         outputs=[kind.output("OUT", classes=1)])

    def test_grpc_messages_that_do_not_fit(self):
        with GRPC.connect(self.server) as client:
            def ask(change, *words, status="INVALID_ARGUMENT"):
                message = service_pb2.ModelInferRequest(model_name="echo")
                message.inputs.add(name="IN", datatype="FP32", shape=[1, 4])
                message.raw_input_contents.append(b"\0" * 16)
                change(message)
                with self.assertRaises(Exception) as caught:
                    client.client._client_stub.ModelInfer(message, timeout=PATIENCE_S)
                self.assertEqual(caught.exception.code().name, status)
                for word in words:
                    self.assertIn(word, caught.exception.details())

            def contents(message):
                message.inputs[0].contents.fp32_contents.extend([1] * 4)

            ask(lambda message: message.ClearField("raw_input_contents"), "IN", "no data")
            ask(lambda message: message.raw_input_contents.append(b""), "raw_input_contents", "1")
            ask(lambda message: message.raw_input_contents.__setitem__(0, b"123"), "IN", "3", "16")
            ask(contents, "IN", "contents")
            # The default limit of gRPC's messages does not hold; the server's own does.
            ask(lambda message: message.raw_input_contents.__setitem__(0, b"\0" * (9 << 20)),
                status="OUT_OF_RANGE")

    def test_a_request_that_fails_in_the_model_fails_alone(self):
        with GRPC.connect(self.server) as client:
            with refused("out of data bounds"):
                client.infer("gather", [GRPC.input("index", np.array([[99]], np.int64), datatype="INT64")])
        with HTTP.connect(self.server, concurrency=8) as client:
            pending = [client.async_infer("gather", [HTTP.input("index", np.array([[index]], np.int64),
                                                                datatype="INT64")])
                       for index in (0, 1, 99, 2, 0, -99, 1)]
            for expected, answer in zip((10, 20, None, 30, 10, None, 20), pending, strict=True):
                if expected is None:
                    with refused("out of data bounds"):
                        answer.get_result(timeout=PATIENCE_S)
                else:
                    self.assertEqual(answer.get_result(timeout=PATIENCE_S).as_numpy("y").item(), expected)


class LargeRequests(RequestCase):
    """Bodies that are too large, or only say so."""

    def connect(self):
        host, port = self.server.http.rsplit(":", 1)
        connection = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self.addCleanup(connection.close)
        return connection

    def head(self, *headers):
        return "\r\n".join([f"POST {INFER} HTTP/1.1", "Host: x", *headers, "", ""]).encode()

    def answer(self, connection):
        """What comes before the server has the whole request."""
        received = b""
        while b"}" not in received:
            more = connection.recv(4096)
            self.assertTrue(more, received)
            received += more
        return received.decode()

    def test_a_body_of_one_gigabyte_is_refused_at_once(self):
        connection = self.connect()
        connection.sendall(self.head(f"Content-Length: {1 << 30}") + b"x" * 1000)
        answer = self.answer(connection)
        self.assertIn(" 413 ", answer.splitlines()[0])
        self.assertIn(str(8 << 20), answer)

    def test_a_body_of_unknown_length_ends_at_the_limit(self):
        connection = self.connect()
        connection.sendall(self.head("Transfer-Encoding: chunked"))
        chunk = b"%x\r\n" % (1 << 20) + b" " * (1 << 20) + b"\r\n"
        for _ in range(9):
            connection.sendall(chunk)
        self.assertIn(" 413 ", self.answer(connection).splitlines()[0])

    def test_a_body_that_is_large_when_unpacked(self):
        bomb = gzip.compress(b" " * (256 << 20), 1)
        self.post(bomb, 413, str(8 << 20), headers={"Content-Encoding": "gzip"})

    def test_bodies_that_are_not_compressed_as_they_say(self):
        body = json.dumps(request()).encode()
        self.post(body, 400, "gzip", headers={"Content-Encoding": "gzip"})
        self.post(body, 400, "deflate", headers={"Content-Encoding": "deflate"})
        self.post(gzip.compress(body)[:-9], 400, "gzip", headers={"Content-Encoding": "gzip"})
        self.post(body, 415, "br", headers={"Content-Encoding": "br"})

    def test_a_body_that_never_comes(self):
        connection = self.connect()
        connection.sendall(self.head("Content-Length: 1000") + b"{")
        connection.close()

    def test_what_is_no_http(self):
        connection = self.connect()
        connection.sendall(b"\x16\x03\x01\x02\x00nonsense\r\n\r\n")
        answer = connection.recv(100)
        self.assertTrue(answer == b"" or b" 400 " in answer, answer)


if __name__ == "__main__":
    unittest.main()
