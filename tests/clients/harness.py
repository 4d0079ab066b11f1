"""A `fermata serve` on free ports of the loopback, with a repository that is made for the test.

`FERMATA` names the binary. A server that does not leave with code 0 after SIGTERM fails its tests, and the log of
a server is shown where one of its tests failed.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SMALL_MODELS = ROOT / "crates" / "engine" / "tests" / "models"
REAL_MODELS = ROOT / ".fermata" / "models"

# Long enough for any machine to start, answer or stop; nothing waits so long where all is well.
PATIENCE_S = 40
# An objective that no machine misses.
EASY_MS = 20_000


def binary():
    """The program under test."""
    return os.environ.get("FERMATA") or str(ROOT / "target" / "debug" / "fermata")


class Repository:
    """A folder of models, which may be changed while it is served."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def emulated(self, name, *, inputs=None, outputs=None, latency_ms=0.5, slo_ms=EASY_MS, batch=8, config=None):
        """An emulated model. Inputs and outputs are (name, datatype, shape without the batch).

        `config` is the text of a config.pbtxt, which then has the tensors.
        """
        lines = [f"slo_ms = {slo_ms}", 'engine = "emulated"', f"latency_ms = {[latency_ms] * batch}"]
        for kind, tensors in (("input", inputs), ("output", outputs or inputs)):
            for tensor, datatype, shape in tensors or ():
                lines += [f"[[{kind}]]", f'name = "{tensor}"', f'datatype = "{datatype}"', f"shape = {list(shape)}"]
        self.write(f"{name}/fermata.toml", "\n".join(lines) + "\n")
        if config is not None:
            self.write(f"{name}/config.pbtxt", config)

    def onnx(self, name, source, *, config=None, slo_ms=EASY_MS, version=1):
        """A model of a file. A small largest batch keeps its measuring short."""
        place = self.folder / name / str(version) / "model.onnx"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)
        if slo_ms is not None:
            self.write(f"{name}/fermata.toml", f"slo_ms = {slo_ms}\n")
        if config is not None:
            self.write(f"{name}/config.pbtxt", config)

    def write(self, path, content):
        """Puts a file where a poll finds all of it or nothing."""
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        # Hidden files are not part of a model.
        half = place.with_name(f".{place.name}.half")
        half.write_bytes(content if isinstance(content, bytes) else content.encode())
        half.rename(place)

    def remove(self, name):
        shutil.rmtree(self.folder / name)


class Server:
    """One running server."""

    def __init__(self, repository, *arguments):
        self.command = [binary(), "serve", str(repository.folder), "--address", "127.0.0.1"]
        self.command += ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]
        self.command += arguments
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FERMATA_")}
        library = next((ROOT / ".fermata" / "lib").glob("libonnxruntime.so*"), None)
        if library is not None:
            environment.setdefault("ORT_DYLIB_PATH", str(library))
        self.log = []
        self.addresses = {}
        self.process = subprocess.Popen(
            self.command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, errors="replace",
        )
        self.reader = threading.Thread(target=self._read_log, daemon=True)
        self.reader.start()

    def _read_log(self):
        for line in self.process.stderr:
            line = re.sub(r"\x1b\[[0-9;]*m", "", line.rstrip("\n"))
            self.log.append(line)
            listens = re.search(r"(\w+) listens address=(\S+)", line)
            if listens:
                self.addresses[listens[1]] = listens[2]

    def wait(self, *, ready=True):
        """Until it listens; until all of its models are there, if `ready`."""
        eventually(lambda: len(self.addresses) == 3 or self.process.poll() is not None, "a server that listens")
        if self.process.poll() is not None:
            self.reader.join(PATIENCE_S)
            raise AssertionError("the server ended:\n" + self.tail())
        path = "/v2/health/ready" if ready else "/v2/health/live"
        eventually(lambda: self.get(path)[0] == 200, path, show=self.tail)
        return self

    @property
    def http(self):
        return self.addresses["http"]

    @property
    def grpc(self):
        return self.addresses["grpc"]

    @property
    def metrics(self):
        return self.addresses["metrics"]

    def get(self, path, address=None):
        """Status and body of a GET."""
        return self.ask("GET", path, address=address)[::2]

    def ask(self, method, path, body=None, headers=(), address=None):
        """Status, headers and body of a request without a client library."""
        url = f"http://{address or self.http}{path}"
        request = urllib.request.Request(url, data=body, headers=dict(headers), method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
                return response.status, response.headers, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()

    def metric(self, name, **labels):
        """The sum of a metric's samples that have these labels."""
        text = self.get("/metrics", self.metrics)[1].decode()
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        total = 0.0
        for line in text.splitlines():
            if re.match(rf"{name}[ {{]", line) and all(label in line for label in wanted):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def requests(self, model, outcome):
        """How many requests to a model have left with this outcome."""
        return self.metric("fermata_requests_total", model=model, outcome=outcome)

    def status(self):
        return json.loads(self.get("/status.json")[1])

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def stop(self):
        """SIGTERM, and the exit code; kills only what does not leave."""
        if self.process.poll() is None:
            self.terminate()
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.reader.join(PATIENCE_S)
        self.process.stderr.close()
        return code

    def tail(self, lines=60):
        return "\n".join(f"    {line}" for line in self.log[-lines:])


class ServerCase(unittest.TestCase):
    """Tests of one server, which all tests of the class share.

    `make` fills the repository; `arguments` go to the server.
    """

    arguments = ()
    ready = True
    server: Server

    @classmethod
    def make(cls, repository):
        raise NotImplementedError

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="fermata-clients-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.repository = Repository(cls.folder / "models")
        cls.repository.folder.mkdir()
        cls.make(cls.repository)
        cls.server = Server(cls.repository, *cls.arguments)
        cls.addClassCleanup(cls.end)
        cls.server.wait(ready=cls.ready)

    @classmethod
    def end(cls):
        code = cls.server.stop()
        panics = [line for line in cls.server.log if "panicked" in line]
        if code != 0 or panics:
            raise AssertionError(f"the server left with code {code} after SIGTERM:\n{cls.server.tail()}")

    def run(self, result=None):
        result = self.defaultTestResult() if result is None else result
        before = len(result.failures) + len(result.errors)
        super().run(result)
        if len(result.failures) + len(result.errors) > before:
            print(f"\nthe log of the server of {self.id()}:\n{self.server.tail()}", flush=True)
        return result


def eventually(condition, what, *, show=lambda: "", patience=PATIENCE_S):
    """Waits for something that must come."""
    end = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {patience} s: {what}\n{show()}")
        time.sleep(0.02)
