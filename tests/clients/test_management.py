"""Every call of each client beside inference: health, metadata, configuration, statistics, settings."""

import unittest

import numpy as np

from clients import each_client, refused
from harness import SMALL_MODELS, ServerCase

CONFIG = """
name: "identity"
platform: "onnxruntime_onnx"
max_batch_size: 4
input [ { name: "x", data_type: TYPE_FP32, dims: [ 16 ] } ]
output [ { name: "y", data_type: TYPE_FP32, dims: [ 16 ] } ]
instance_group [ { count: 2, kind: KIND_CPU } ]
dynamic_batching { preferred_batch_size: [ 2, 4 ], max_queue_delay_microseconds: 100 }
version_policy { latest { num_versions: 1 } }
"""


class Management(ServerCase):
    @classmethod
    def make(cls, repository):
        repository.emulated("emulated", inputs=[("IN", "INT32", [4])], outputs=[("OUT", "INT32", [4])])
        repository.onnx("identity", SMALL_MODELS / "identity.onnx", config=CONFIG)

    @each_client()
    def test_health(self, client):
        self.assertIs(client.is_server_live(), True)
        self.assertIs(client.is_server_ready(), True)
        self.assertIs(client.is_model_ready("identity"), True)
        self.assertIs(client.is_model_ready("identity", "1"), True)
        self.assertIs(client.is_model_ready("identity", "2"), False)
        self.assertIs(client.is_model_ready("nothing"), False)

    @each_client()
    def test_server_metadata(self, client):
        metadata = client.json("get_server_metadata")
        self.assertEqual(metadata["name"], "fermata")
        self.assertTrue(metadata["version"])
        wanted = {"binary_tensor_data", "classification", "model_configuration", "model_repository", "statistics",
                  "schedule_policy", "system_shared_memory", "trace", "logging"}
        self.assertEqual(wanted - set(metadata["extensions"]), set())

    @each_client()
    def test_model_metadata(self, client):
        for version in ("", "1"):
            metadata = client.json("get_model_metadata", "identity", version)
            self.assertEqual(metadata["name"], "identity")
            self.assertEqual(metadata["platform"], "onnxruntime_onnx")
            self.assertEqual(metadata["versions"], ["1"])
            (tensor,) = metadata["inputs"]
            self.assertEqual((tensor["name"], tensor["datatype"]), ("x", "FP32"))
            self.assertEqual([int(axis) for axis in tensor["shape"]], [-1, 16])
        with refused("nothing"):
            client.get_model_metadata("nothing")
        with refused("identity", "7"):
            client.get_model_metadata("identity", "7")

    @each_client()
    def test_model_config(self, client):
        kind = client.kind
        config = client.json("get_model_config", "identity")
        config = config["config"] if kind.grpc else config
        self.assertEqual((config["name"], config["max_batch_size"]), ("identity", 4))
        self.assertEqual((config["platform"], config["backend"]), ("onnxruntime_onnx", "onnxruntime"))
        self.assertEqual(config["input"][0]["data_type"], "TYPE_FP32")
        self.assertEqual(config["default_model_filename"], "model.onnx")
        self.assertIn("dynamic_batching", config)
        self.assertEqual(config["instance_group"][0]["count"], 2)
        with refused("nothing"):
            client.get_model_config("nothing")

    @each_client()
    def test_statistics(self, client):
        array = np.zeros((3, 4), np.int32)
        kind = client.kind
        before = self.statistics(client, "emulated")
        client.infer("emulated", [kind.input("IN", array, datatype="INT32")])
        after = self.statistics(client, "emulated", "1")
        rows, batches, success = (
            [int(stats.get("inference_count", 0)) for stats in (before, after)],
            [int(stats.get("execution_count", 0)) for stats in (before, after)],
            [int(stats["inference_stats"].get("success", {}).get("count", 0)) for stats in (before, after)],
        )
        self.assertEqual((rows[1] - rows[0], success[1] - success[0]), (3, 1))
        # The rows of a request may run in more than one batch.
        self.assertIn(batches[1] - batches[0], (1, 2, 3))
        self.assertGreater(int(after["last_inference"]), 1_600_000_000_000)
        self.assertGreater(int(after["inference_stats"]["compute_infer"]["ns"]), 0)
        self.assertTrue(after["batch_stats"])
        names = {stats["name"] for stats in client.json("get_inference_statistics")["model_stats"]}
        self.assertEqual(names, {"emulated", "identity"})
        with refused("nothing"):
            client.get_inference_statistics("nothing")

    def statistics(self, client, *model):
        (stats,) = client.json("get_inference_statistics", *model)["model_stats"]
        return stats

    @each_client()
    def test_trace_settings(self, client):
        kind = client.kind
        def values(settings):
            if kind.grpc:
                return {key: value["value"] for key, value in settings["settings"].items()}
            return {key: value if isinstance(value, list) else [value] for key, value in settings.items()}

            self.assertEqual(values(client.json("get_trace_settings"))["trace_level"], ["OFF"])
            changed = values(client.json("update_trace_settings", settings={
                "trace_level": ["TIMESTAMPS", "TENSORS"], "trace_rate": "500"}))
            self.assertEqual((changed["trace_level"], changed["trace_rate"]), (["TIMESTAMPS", "TENSORS"], ["500"]))
            model = values(client.json("update_trace_settings", "identity", {"trace_rate": "9"}))
            self.assertEqual((model["trace_level"], model["trace_rate"]), (["TIMESTAMPS", "TENSORS"], ["9"]))
            self.assertEqual(values(client.json("get_trace_settings", "identity"))["trace_rate"], ["9"])
            model = values(client.json("update_trace_settings", "identity", {"trace_rate": None}))
            self.assertEqual(model["trace_rate"], ["500"])
            client.update_trace_settings(settings={"trace_level": None, "trace_rate": None})
            self.assertEqual(values(client.json("get_trace_settings"))["trace_rate"], ["1000"])
            for settings, word in (({"trace_rate": "x"}, "trace_rate"), ({"wrong": "1"}, "wrong")):
                with refused(word):
                    client.update_trace_settings(settings=settings)
            with refused("nothing"):
                client.get_trace_settings("nothing")

    @each_client()
    def test_log_settings(self, client):
        kind = client.kind
        def values(settings):
            if not kind.grpc:
                return settings
            # What is false or empty is left out of its JSON.
            return {key: next(iter(value.values()), None) for key, value in settings["settings"].items()}

            before = values(client.json("get_log_settings"))
            self.assertEqual((before["log_info"], before["log_format"]), (True, "default"))
            changed = values(client.json("update_log_settings", {"log_verbose_level": 1, "log_format": "ISO8601"}))
            self.assertEqual((int(changed["log_verbose_level"]), changed["log_format"]), (1, "ISO8601"))
            back = values(client.json("update_log_settings", {"log_verbose_level": 0, "log_format": "default"}))
            self.assertEqual(back, before)
            for settings, word in (({"log_format": "maybe"}, "log_format"), ({"wrong": True}, "wrong")):
                with refused(word):
                    client.update_log_settings(settings)

    @each_client()
    def test_cuda_shared_memory_is_empty_and_refused(self, client):
        kind = client.kind
        status = client.json("get_cuda_shared_memory_status")
        self.assertFalse(status.get("regions") if kind.grpc else status)
        with refused("CUDA", "region"):
            client.register_cuda_shared_memory("region", b"AAAA", 0, 64)
        with refused("region"):
            client.get_cuda_shared_memory_status("region")
        client.unregister_cuda_shared_memory("region")
        client.unregister_cuda_shared_memory()

    def test_paths_that_are_not_there(self):
        for method, path, status in [("GET", "/v2/nothing", 404), ("GET", "/v3", 404),
                                     ("GET", "/v2/models/identity/infer", 405), ("POST", "/v2/health/live", 405)]:
            got, _, body = self.server.ask(method, path, b"" if method == "POST" else None)
            self.assertEqual(got, status, path)
            self.assertIn(path.encode(), body)


class Explicit(ServerCase):
    """Models that clients load and unload."""

    arguments = ("--model-control-mode", "explicit", "--load-model", "first")

    @classmethod
    def make(cls, repository):
        repository.emulated("first", inputs=[("IN", "INT32", [4])])
        repository.onnx("identity", SMALL_MODELS / "identity.onnx", config="max_batch_size: 4\n")
        repository.write("broken/1/model.onnx", b"not a model")
        repository.write("broken/fermata.toml", "slo_ms = 1000\n")

    def states(self, client):
        index = client.json("get_model_repository_index")
        index = index.get("models", []) if client.kind.grpc else index
        return {entry["name"]: entry.get("state", "") for entry in index}

    @each_client()
    def test_load_and_unload(self, client):
        states = self.states(client)
        self.assertEqual((states["first"], "identity" in states), ("READY", True))
        self.assertNotEqual(states["identity"], "READY")
        client.load_model("identity")
        self.assertIs(client.is_model_ready("identity"), True)
        self.assertEqual(self.states(client)["identity"], "READY")
        client.load_model("identity")
        client.unload_model("identity")
        self.assertIs(client.is_model_ready("identity"), False)
        self.assertEqual(self.states(client)["identity"], "UNAVAILABLE")
        self.assertIs(client.is_model_ready("first"), True)

    @each_client()
    def test_unknown_and_broken_models(self, client):
        with refused("nothing"):
            client.load_model("nothing")
        with refused("nothing"):
            client.unload_model("nothing")
        with refused("broken", "model.onnx"):
            client.load_model("broken")
        self.assertEqual(self.states(client)["broken"], "UNAVAILABLE")
        self.assertIs(client.is_model_ready("first"), True)

    @each_client()
    def test_a_configuration_in_place_of_the_folder_s(self, client):
        kind = client.kind
        client.load_model("identity", config='{"max_batch_size": 2}')
        config = client.json("get_model_config", "identity")
        self.assertEqual((config["config"] if kind.grpc else config)["max_batch_size"], 2)
        with refused("max_batch_sise"):
            client.load_model("identity", config='{"max_batch_sise": 2}')
        self.assertIs(client.is_model_ready("identity"), True)
        client.load_model("identity")
        config = client.json("get_model_config", "identity")
        self.assertEqual((config["config"] if kind.grpc else config)["max_batch_size"], 4)
        client.unload_model("identity")

    @each_client()
    def test_files_in_place_of_the_folder(self, client):
        content = (SMALL_MODELS / "add.onnx").read_bytes()
        kind = client.kind
        for name in ("identity", "sent"):
            files = {"file:1/model.onnx": content}
            if name == "sent":
                files["file:fermata.toml"] = b"slo_ms = 20000\n"
            client.load_model(name, config='{"max_batch_size": 2}', files=files)
            a = np.array([[1, 2]], np.int64)
            result = client.infer(name, [kind.input(key, a, datatype="INT64") for key in ("a", "b")])
            np.testing.assert_array_equal(result.as_numpy("sum"), 2 * a)
            client.unload_model(name)
        with refused("evil"):
            client.load_model("sent", config="{}", files={"file:../evil": content})

    @each_client()
    def test_unload_dependents_is_taken(self, client):
        client.load_model("identity")
        client.unload_model("identity", unload_dependents=True)


if __name__ == "__main__":
    unittest.main()
