"""Models that cannot be served are told with their file and what is wrong in it; the others are served."""

import json
import socket
import subprocess
import tempfile
import unittest

import numpy as np

from clients import HTTP, KINDS, each_client, refused
from harness import PATIENCE_S, REAL_MODELS, SMALL_MODELS, ServerCase, binary, eventually

# By name: the files of the model, and words that its reason must have.
IDENTITY = (SMALL_MODELS / "identity.onnx").read_bytes()
SLO = {"fermata.toml": b"slo_ms = 20000\n"}
ONNX = {"1/model.onnx": IDENTITY}
BROKEN = {
    "corrupt": ({**SLO, "1/model.onnx": b"\x08\x09garbage" * 100}, ["1/model.onnx"]),
    "empty": ({**SLO, "1/model.onnx": b""}, ["1/model.onnx"]),
    "cut": ({**SLO, "1/model.onnx": (REAL_MODELS / "magika.onnx").read_bytes()[:100_000]}, ["1/model.onnx"]),
    "fp8": ({**SLO, "1/model.onnx": (SMALL_MODELS / "identity_fp8.onnx").read_bytes()}, ["1/model.onnx", "'x'"]),
    "sequence_out": ({**SLO, "1/model.onnx": (SMALL_MODELS / "sequence.onnx").read_bytes()}, ["1/model.onnx", "'y'"]),
    "no_version": (SLO, ["no version"]),
    "no_objective": (ONNX, ["fermata.toml", "slo_ms"]),
    "typo": ({**SLO, **ONNX, "config.pbtxt": b"max_batch_size: 4\nmax_batch_sise: 4\n"},
             ["config.pbtxt", "line 2", "max_batch_sise"]),
    "mended": ({**SLO, **ONNX, "config.pbtxt": b"max_batch: 4\n"}, []),
    "syntax": ({**SLO, **ONNX, "config.pbtxt": b"max_batch_size: 4\ninput [ {\n"}, ["config.pbtxt", "line"]),
    "wrong_name": ({**SLO, **ONNX, "config.pbtxt": b'name: "other"\n'}, ["config.pbtxt", "'other'", "wrong_name"]),
    "wrong_type": ({**SLO, **ONNX, "config.pbtxt": b'max_batch_size: 4\ninput [ { name: "x", data_type: TYPE_INT8, '
                    b'dims: [ 16 ] } ]\n'}, ["config.pbtxt", "x", "TYPE_INT8", "TYPE_FP32"]),
    "wrong_dims": ({**SLO, **ONNX, "config.pbtxt": b'max_batch_size: 4\ninput [ { name: "x", data_type: TYPE_FP32, '
                    b'dims: [ 17 ] } ]\n'}, ["config.pbtxt", "17", "16"]),
    "wrong_input": ({**SLO, **ONNX, "config.pbtxt": b'max_batch_size: 4\ninput [ { name: "z", data_type: TYPE_FP32, '
                     b'dims: [ 16 ] } ]\n'}, ["config.pbtxt", "z"]),
    "sequences": ({**SLO, **ONNX, "config.pbtxt": b"sequence_batching { }\n"}, ["sequence_batching", "not supported"]),
    "decoupled": ({**SLO, **ONNX, "config.pbtxt": b"model_transaction_policy { decoupled: true }\n"}, ["decoupled"]),
    "ensemble": ({**SLO, "1/.keep": b"", "config.pbtxt": b'platform: "ensemble"\nensemble_scheduling { }\n'},
                 ["ensemble"]),
    "pytorch": ({**SLO, "1/model.pt": b"x", "config.pbtxt": b'platform: "pytorch_libtorch"\n'}, ["pytorch_libtorch"]),
    "wrong_setting": ({**ONNX, "fermata.toml": b"slo_ms = 100\nslow = 3\n"}, ["fermata.toml", "slow"]),
    "too_slow": ({"fermata.toml": b'slo_ms = 5\nengine = "emulated"\nlatency_ms = [6]\n'}, ["slo_ms", "5", "6"]),
}


class BadModels(ServerCase):
    # The server says that it is not ready, as Triton does where a model of the start cannot be loaded.
    ready = False

    @classmethod
    def make(cls, repository):
        repository.emulated("good", inputs=[("IN", "FP32", [4])], outputs=[("OUT", "FP32", [4])])
        repository.onnx("identity", SMALL_MODELS / "identity.onnx", config="max_batch_size: 4\n")
        for name, (files, _) in BROKEN.items():
            for path, content in files.items():
                repository.write(f"{name}/{path}", content)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        eventually(lambda: any(" started " in line for line in cls.server.log), "all models tried",
                   show=cls.server.tail)

    def index(self):
        status, _, body = self.server.ask("POST", "/v2/repository/index", b"")
        self.assertEqual(status, 200)
        return {entry["name"]: entry for entry in json.loads(body)}

    def test_reasons_name_what_is_wrong(self):
        index = self.index()
        for name, (_, words) in BROKEN.items():
            if name == "mended":
                continue
            with self.subTest(model=name):
                self.assertEqual(index[name]["state"], "UNAVAILABLE")
                for word in words:
                    self.assertIn(word, index[name]["reason"])

    def test_the_others_are_served(self):
        array = np.ones((1, 16), np.float32)
        for kind in KINDS:
            with self.subTest(client=kind.name), kind.connect(self.server) as client:
                result = client.infer("identity", [kind.input("x", array, datatype="FP32")])
                np.testing.assert_array_equal(result.as_numpy("y"), array)
                self.assertIs(client.is_model_ready("good"), True)
                self.assertIs(client.is_server_live(), True)

    @each_client()
    def test_requests_to_them_are_refused(self, client):
        array = np.ones((1, 16), np.float32)
        for name in ("corrupt", "typo"):
            self.assertIs(client.is_model_ready(name), False)
            with refused(name):
                client.infer(name, [client.kind.input("x", array, datatype="FP32")])

    def test_a_mended_model_can_be_loaded(self):
        self.repository.write("mended/config.pbtxt", "max_batch_size: 4\n")
        with HTTP.connect(self.server) as client:
            client.load_model("mended")
            self.assertIs(client.is_model_ready("mended"), True)


class BadStarts(unittest.TestCase):
    """Command lines with which no server can start: one line that says why, and an exit code."""

    def ends(self, *arguments):
        done = subprocess.run([binary(), "serve", *arguments], capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn("panicked", done.stderr)
        return done.stderr

    def test_no_folder(self):
        self.assertIn("no/such/folder", self.ends("no/such/folder", "--address", "127.0.0.1", "--http-port", "0"))

    def test_a_port_that_is_taken(self):
        with socket.socket() as taken, tempfile.TemporaryDirectory() as folder:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            message = self.ends(folder, "--address", "127.0.0.1", "--http-port", port)
            self.assertIn(port, message)
            self.assertIn("--http-port", message)

    def test_a_flag_that_is_not_there(self):
        self.assertIn("--nothing", self.ends("--nothing"))


if __name__ == "__main__":
    unittest.main()
