"""What happens over the life of a server: polling, reloading, draining, recording, metrics."""

import json
import queue
import re
import shutil
import signal
import subprocess
import threading
import time
import unittest

import numpy as np

from clients import GRPC, HTTP, refused
from harness import PATIENCE_S, REAL_MODELS, SMALL_MODELS, ServerCase, binary, eventually

TENSORS = {"inputs": [("IN", "FP32", [4])], "outputs": [("OUT", "FP32", [4])]}


def ones(kind):
    return [kind.input("IN", np.ones((1, 4), np.float32), datatype="FP32")]


class Poll(ServerCase):
    arguments = ("--model-control-mode", "poll", "--repository-poll-secs", "1")

    @classmethod
    def make(cls, repository):
        repository.emulated("stays", **TENSORS)

    def test_models_come_change_and_go(self):
        with GRPC.connect(self.server) as client:
            self.repository.emulated("comes", **TENSORS, batch=4)
            eventually(lambda: client.is_model_ready("comes"), "the model that was added")
            client.infer("comes", ones(GRPC))
            self.assertEqual(client.json("get_model_config", "comes")["config"]["max_batch_size"], 4)
            self.repository.emulated("comes", **TENSORS, batch=6)
            eventually(lambda: client.json("get_model_config", "comes")["config"]["max_batch_size"] == 6,
                       "the model that was changed")
            self.repository.write("comes/fermata.toml", "slo_ms = wrong\n")
            eventually(lambda: any("cannot be loaded" in line for line in self.server.log), "a broken change")
            client.infer("comes", ones(GRPC))
            self.repository.remove("comes")
            eventually(lambda: not client.is_model_ready("comes"), "the model that was removed")
            with refused("comes"):
                client.infer("comes", ones(GRPC))
            client.infer("stays", ones(GRPC))

    def test_versions_come_and_go(self):
        identity = SMALL_MODELS / "identity.onnx"
        with HTTP.connect(self.server) as client:
            self.repository.onnx("versions", identity, config="max_batch_size: 2\n")
            eventually(lambda: client.is_model_ready("versions", "1"), "version 1")
            self.repository.onnx("versions", identity, version=2)
            eventually(lambda: client.is_model_ready("versions", "2"), "version 2")
            eventually(lambda: not client.is_model_ready("versions", "1"), "the end of version 1")
            shutil.rmtree(self.repository.folder / "versions" / "2")
            eventually(lambda: client.is_model_ready("versions", "1"), "version 1 again")


class Reload(ServerCase):
    arguments = ("--model-control-mode", "explicit", "--load-model", "*")
    cycles = 30

    @classmethod
    def make(cls, repository):
        repository.emulated("reloaded", **TENSORS)
        repository.emulated("other", **TENSORS)
        repository.emulated("comes and goes", **TENSORS)
        repository.onnx("identity", SMALL_MODELS / "identity.onnx", config="max_batch_size: 2\n")

    def test_no_request_fails_while_models_are_reloaded(self):
        failed, counts, done = queue.Queue(), {}, threading.Event()

        def work(kind, model, name, shape):
            with kind.connect(self.server) as client:
                array = np.ones(shape, np.float32)
                while not done.is_set():
                    try:
                        client.infer(model, [kind.input(name, array, datatype="FP32")])
                        counts[model] = counts.get(model, 0) + 1
                    except Exception as error:
                        failed.put((model, error))
                        return

        workers = [threading.Thread(target=work, args=arguments) for arguments in [
            (HTTP, "reloaded", "IN", (1, 4)), (GRPC, "reloaded", "IN", (1, 4)), (GRPC, "other", "IN", (1, 4)),
            (GRPC, "identity", "x", (1, 16))]]
        for worker in workers:
            worker.start()
        try:
            with HTTP.connect(self.server) as client:
                for cycle in range(self.cycles):
                    client.load_model("reloaded")
                    if cycle % 5 == 0:
                        client.load_model("identity")
                    client.unload_model("comes and goes")
                    client.load_model("comes and goes")
        finally:
            done.set()
            for worker in workers:
                worker.join(PATIENCE_S)
        self.assertEqual(list(failed.queue), [])
        self.assertEqual(set(counts), {"reloaded", "other", "identity"})
        self.assertEqual(self.server.requests("reloaded", "in_time") > 0, True)

    def test_unloading_waits_for_what_has_come(self):
        with HTTP.connect(self.server, concurrency=4) as client:
            pending = [client.async_infer("comes and goes", ones(HTTP)) for _ in range(4)]
            for answer in pending:
                answer.get_result(timeout=PATIENCE_S)
            client.unload_model("comes and goes")
            client.load_model("comes and goes")


class ReloadOnThreads(Reload):
    arguments = (*Reload.arguments, "--scheduler-threads", "2")


class Drain(ServerCase):
    @classmethod
    def make(cls, repository):
        repository.emulated("slow", **TENSORS, latency_ms=1500, batch=4)

    def test_what_has_come_is_answered_and_what_comes_is_not_taken(self):
        answers = queue.Queue()

        def ask(kind):
            try:
                with kind.connect(self.server) as client:
                    answers.put(client.infer("slow", ones(kind)).as_numpy("OUT").sum())
            except Exception as error:
                answers.put(error)

        askers = [threading.Thread(target=ask, args=(kind,)) for kind in (HTTP, GRPC)]
        for asker in askers:
            asker.start()
        eventually(lambda: self.server.metric("fermata_pending_requests", model="slow") == 2, "two requests")
        self.server.process.send_signal(signal.SIGTERM)
        got = [answers.get(timeout=PATIENCE_S) for _ in askers]
        for asker in askers:
            asker.join(PATIENCE_S)
        self.assertEqual(got, [4, 4])
        self.assertEqual(self.server.process.wait(PATIENCE_S), 0)


class DrainOnThreads(Drain):
    arguments = ("--scheduler-threads", "2")


class IdleConnections(ServerCase):
    """Connections and streams that are open but idle do not hold a server up for long."""

    arguments = ("--exit-timeout-secs", "3")

    @classmethod
    def make(cls, repository):
        repository.emulated("fast", **TENSORS)

    def test_a_server_leaves_though_clients_stay(self):
        with HTTP.connect(self.server) as one, GRPC.connect(self.server) as other:
            one.infer("fast", ones(HTTP))
            answers = queue.Queue()
            other.start_stream(lambda result, error: answers.put((result, error)))
            other.async_stream_infer("fast", ones(GRPC))
            self.assertIsNone(answers.get(timeout=PATIENCE_S)[1])
            began = time.monotonic()
            self.server.terminate()
            self.assertEqual(self.server.process.wait(PATIENCE_S), 0)
            self.assertLess(time.monotonic() - began, 20)


class StopWhileLoading(ServerCase):
    """A model that takes long to load does not hold up a server that is told to stop."""

    ready = False

    @classmethod
    def make(cls, repository):
        # Every batch size up to the objective is measured, which takes minutes.
        repository.onnx("magika", REAL_MODELS / "magika.onnx", slo_ms=2000)

    def test_a_server_leaves_though_a_model_is_being_loaded(self):
        eventually(lambda: any("measuring" in line for line in self.server.log), "a model that is being measured")
        self.server.terminate()
        self.assertEqual(self.server.process.wait(PATIENCE_S), 0)


class Recorded(ServerCase):
    @classmethod
    def make(cls, repository):
        cls.recording = cls.folder / "run.txt"
        cls.arguments = ("--record", str(cls.recording), "--policy", "fermata", "--emulated-executors", "2")
        repository.emulated("one", **TENSORS, slo_ms=200, latency_ms=2)
        repository.emulated("two", **TENSORS, slo_ms=100, latency_ms=3)

    def test_a_recording_replays_to_the_same(self):
        with HTTP.connect(self.server, concurrency=16) as client:
            pending = [client.async_infer(name, ones(HTTP)) for _ in range(60) for name in ("one", "two")]
            for answer in pending:
                try:
                    answer.get_result(timeout=PATIENCE_S)
                except Exception as error:
                    # A slow machine may be late; the recording must be the same all the more.
                    self.assertIn(error.status(), ("503", "504"))
            client.load_model("two")
            client.unload_model("two")
        self.server.terminate()
        self.assertEqual(self.server.process.wait(PATIENCE_S), 0)
        done = subprocess.run([binary(), "replay", "--json", str(self.recording)], capture_output=True, text=True,
                              timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertIsNone(report["difference"])
        self.assertGreater(report["actions"], 20)
        plain = subprocess.run([binary(), "replay", str(self.recording)], capture_output=True, text=True,
                               timeout=PATIENCE_S)
        self.assertIn("all the same", plain.stdout)


class Numbers(ServerCase):
    @classmethod
    def make(cls, repository):
        repository.emulated("counted", **TENSORS)
        repository.emulated('with "quotes" and \\', **TENSORS)

    def text(self):
        with HTTP.connect(self.server) as client:
            for _ in range(5):
                client.infer("counted", ones(HTTP))
        status, text = self.server.get("/metrics", self.server.metrics)
        self.assertEqual(status, 200)
        return text.decode()

    def test_metrics_can_be_parsed(self):
        sample = re.compile(r'[a-z_]+(\{([a-z_]+="(\\.|[^"\\])*",?)*\})? (NaN|[+-]Inf|[-+0-9.e]+)$')
        seen, kinds = set(), {}
        for line in self.text().splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                self.assertNotIn(name, kinds)
                kinds[name] = kind
            elif not line.startswith("#"):
                self.assertRegex(line, sample)
                series = line.rsplit(" ", 1)[0]
                self.assertNotIn(series, seen)
                seen.add(series)
                family = re.match("[a-z_]+", series)[0]
                self.assertTrue(family in kinds or re.sub("_(bucket|sum|count)$", "", family) in kinds, line)
        self.assertIn("fermata_advised_executors", kinds)
        self.assertGreaterEqual(self.server.requests("counted", "in_time"), 5)

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not installed")
    def test_promtool_has_nothing_to_say(self):
        done = subprocess.run(["promtool", "check", "metrics"], input=self.text(), capture_output=True, text=True,
                              timeout=PATIENCE_S)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_the_status_page(self):
        status, page = self.server.get("/")
        self.assertEqual(status, 200)
        self.assertIn(b"<html", page.lower())
        self.text()
        numbers = self.server.status()
        self.assertIs(numbers["ready"], True)
        (model,) = [model for model in numbers["models"] if model["name"] == "counted"]
        self.assertGreaterEqual(model["in_time"], 5)
        self.assertEqual({pool["name"] for pool in numbers["pools"]}, {"cpu", "emulated"})


if __name__ == "__main__":
    unittest.main()
