#!/usr/bin/env python3
"""Serves two real models and an emulated cluster of 64 A100s, asks them something, puts a load on them, and shows it.

    make demo                       builds what is needed, then runs this
    make demo DEMO_SECONDS=120      looks on for longer than 15 seconds
    make demo DEMO_RATE=2000        sends so many requests a second, instead of what this machine can carry
    make demo DEMO_KEEP=1           goes on serving until Ctrl-C

Ctrl-C ends it at any time. What it writes is in out/demo.
"""

import csv
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "out" / "demo"
REPOSITORY = OUT / "models"
FETCHED = ROOT / ".fermata" / "models"
FERMATA = ROOT / os.environ.get("FERMATA", "target/release/fermata")

EXECUTORS = 64
PORTS = (8000, 8001, 8002)
# Requests a second to try, until one goes well. The cluster could take 18,000; two cores, which send them too, not.
RATES = (6000, 4000, 2500, 1500)
# An objective is met if so many requests are in time; so much is good enough for a short trial.
GOOD = 0.99
GOOD_TRIAL = 0.98
# A load generator that is this late has to share its machine.
LAG_US_MAX = 1000
# Of the models that are really run: their objectives, requests a second, where the names of their classes go.
REAL = {
    "magika": (50, 10, "target_label"),
    "orientation": (200, 1, "fetch_name_0"),
}
TERMINAL = sys.stdout.isatty()


def main():
    seconds = number("DEMO_SECONDS", 15)
    rate = number("DEMO_RATE", None)
    if not FERMATA.is_file():
        sys.exit(f"demo: there is no {FERMATA}: run `make demo`, which builds it")
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, interrupt)
    children = []
    try:
        run(children, seconds, rate)
    except KeyboardInterrupt:
        say("\nending early")
        raise SystemExit(130)
    finally:
        # From here on nothing may stop half-way; each of these has a limit.
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, signal.SIG_IGN)
        for child in reversed(children):
            end(child)


def run(children, seconds, rate):
    zoo = list(csv.DictReader((ROOT / "data" / "zoo_a100.csv").open()))
    write_repository(zoo)
    ports = [port if free(port) else None for port in PORTS]
    taken = [str(port) for port, usable in zip(PORTS, ports) if not usable]
    if taken:
        ports = free_ports(len(PORTS))
        say(f"{' and '.join(taken)} in use: the ports are {ports[0]} (HTTP), {ports[1]} (gRPC), {ports[2]} (metrics)")
    url = f"http://127.0.0.1:{ports[0]}"
    serve = [FERMATA, "serve", REPOSITORY.relative_to(ROOT), "--emulated-executors", EXECUTORS, "--cpu-threads", 1]
    serve += ["--address", "127.0.0.1"]
    if taken:
        serve += ["--http-port", ports[0], "--grpc-port", ports[1], "--metrics-port", ports[2]]

    head(f"Serving {len(zoo)} emulated models on {EXECUTORS} emulated A100s, and {' and '.join(REAL)} on the CPU")
    server = start(children, serve, "server.log")
    wait_until_ready(server, url, len(zoo) + len(REAL))
    say(f"  the status page is at {url}")

    head("What are these files? Which way up is this page?")
    client = start(children, [sys.executable, "examples/client.py", url])
    if client.wait() != 0:
        raise SystemExit("demo: the client found something wrong")

    head("A load on all of them")
    if rate is None:
        rate = find_rate(children, url, zoo)
    models = load_of(zoo, rate)
    say(f"  {rate:,.0f} requests/s to the emulated models, {sum(real[1] for real in REAL.values())} to the real ones")
    before = status(url)
    command = [FERMATA, "load", url, *models, "--duration", f"{seconds:g}s", "--json", "--plot", OUT / "load.svg"]
    load = start(children, command, "load.log", OUT / "load.json")
    # The first second warms up, and is not counted.
    time.sleep(1)
    top = [FERMATA, "top", url, "--for", f"{seconds:g}s"]
    if not TERMINAL:
        say()
        top += ["--models", 8]
    # It reads keys, so it stays with the terminal, and a Ctrl-C reaches it too.
    began = time.monotonic()
    start(children, top, session=False).wait()
    if time.monotonic() - began < seconds - 1:
        # Somebody has seen enough: the load ends, and tells what there was.
        load.send_signal(signal.SIGINT)
    load.wait()
    if load.returncode != 0:
        raise SystemExit(f"demo: the load failed: {last_line('load.log')}")
    summary(json.loads((OUT / "load.json").read_text()), before, status(url))

    head("To go on")
    fermata = shell([FERMATA])
    for command, what in (
        (shell(serve), f"serves the same again, with a page for browsers at {url}"),
        (f"{fermata} top {url}", "what it does, live"),
        (f"{fermata} load {url} ResNet50 --goodput --slo-ms 20", "how much of one model it can take"),
        (f"python3 examples/client.py {url} FILE", "what a file is"),
        ("make demo DEMO_SECONDS=120", "a longer look; DEMO_KEEP=1 goes on serving"),
    ):
        say(f"  {command}\n      {what}")
    if os.environ.get("DEMO_KEEP", "") not in ("", "0"):
        head(f"Serving at {url} until Ctrl-C")
        server.wait()


def write_repository(zoo):
    """The model repository. Files that are as they should be stay, and so do measured latencies beside them."""
    wanted = {row["model"] for row in zoo} | set(REAL)
    for folder in REPOSITORY.glob("*"):
        if folder.name not in wanted:
            shutil.rmtree(folder)
    for row in zoo:
        settings = f'slo_ms = {row["slo_ms"]}\nengine = "emulated"\n'
        settings += f'alpha_ms = {row["alpha_ms"]}\nbeta_ms = {row["beta_ms"]}\n'
        write(REPOSITORY / row["model"] / "fermata.toml", settings)
    labels = {
        "magika": json.loads((FETCHED / "magika.json").read_text())["target_labels_space"],
        "orientation": ["0", "90", "180", "270"],
    }
    for name, (slo_ms, _, output) in REAL.items():
        folder = REPOSITORY / name
        write(folder / "fermata.toml", f"slo_ms = {slo_ms}\n")
        write(folder / "config.pbtxt", f'output {{ name: "{output}" label_filename: "labels.txt" }}\n')
        write(folder / "labels.txt", "\n".join(labels[name]) + "\n")
        write(folder / "1" / "model.onnx", (FETCHED / f"{name}.onnx").read_bytes())


def write(file, content):
    content = content.encode() if isinstance(content, str) else content
    if not file.is_file() or file.read_bytes() != content:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def free(port):
    with socket.socket() as probe:
        # As the server does: a port that was closed a moment ago is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_ports(count):
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def wait_until_ready(server, url, models):
    began = time.monotonic()
    while True:
        if server.poll() is not None:
            raise SystemExit(f"demo: the server ended: {last_line('server.log')}")
        ready = ready_models(url)
        passed = time.monotonic() - began
        line = f"  {ready} of {models} models are ready, {passed:.0f} s"
        if ready == models and answers(f"{url}/v2/health/ready"):
            say(f"\r{line}\033[K" if TERMINAL else line)
            return
        if TERMINAL:
            print(f"\r{line}; real ones are measured at each batch size, once\033[K", end="", flush=True)
        if passed > 120:
            raise SystemExit(f"demo: the server is not ready after 2 minutes: {last_line('server.log')}")
        time.sleep(0.1)


def ready_models(url):
    try:
        return sum(model.get("state") == "READY" for model in post(f"{url}/v2/repository/index"))
    except (urllib.error.URLError, ConnectionError, TimeoutError, ValueError):
        return 0


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def post(url):
    request = urllib.request.Request(url, b"{}", {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=5) as response:
        return json.load(response)


def status(url):
    with urllib.request.urlopen(f"{url}/status.json", timeout=5) as response:
        return json.load(response)


def load_of(zoo, rate):
    """The arguments of `fermata load`: a few models are popular and many are not, by their place in the zoo."""
    shares = [(place + 1) ** -0.5 for place in range(len(zoo))]
    models = [
        f"{row['model']}={rate * share / sum(shares):.1f}@{row['slo_ms']}" for row, share in zip(zoo, shares)
    ]
    return models + [f"{name}={rps}@{slo_ms}" for name, (slo_ms, rps, _) in REAL.items()]


def find_rate(children, url, zoo):
    """What this machine, which also sends the requests, carries now: the emulated cluster could take more."""
    for rate in RATES[:-1]:
        command = [FERMATA, "load", url, *load_of(zoo, rate), "--warmup", "0.5s", "--duration", "2s", "--json"]
        load = start(children, command, "load.log", OUT / "trial.json")
        if load.wait() != 0:
            raise SystemExit(f"demo: the load failed: {last_line('load.log')}")
        share = json.loads((OUT / "trial.json").read_text())["in_time_share"]
        good = share >= GOOD_TRIAL
        note = "" if good else ": more than this machine can do now"
        say(f"  tried {rate:,} requests/s for 2 s, {percent(share)} in time{note}")
        if good:
            return rate
    return RATES[-1]


def summary(load, before, after):
    models, counts = load["models"], load["counts"]
    head("What came of it")
    say(f"  {counts['sent']:,} requests in {load['seconds']:.0f} s, {percent(load['in_time_share'])} answered within their SLOs", end="")
    lost = ", ".join(f"{counts[word]:,} {word}" for word in ("late", "shed", "missed", "failed") if counts[word])
    say(f"; {lost}" if lost else "")
    good = sum(model["in_time_share"] >= GOOD for model in models.values())
    say(f"  {good} of {len(models)} models have {100 * GOOD:.0f} % in time")
    lag = load["lag_us"]["p99"]
    if lag > LAG_US_MAX:
        say(f"  this machine does other things too: one in a hundred requests was sent {lag / 1e3:.1f} ms late, or more")
    past = {model["name"]: dict(map(tuple, model["batches"])) for model in before["models"]}
    batches = {
        model["name"]: {size: count - past.get(model["name"], {}).get(size, 0) for size, count in model["batches"]}
        for model in after["models"]
    }
    say(f"  a batch has {mean(batches.values()):.1f} requests on average")
    for pool in after["pools"]:
        say(f"  pool {pool['name']}: {pool['executors']} executor{'s' * (pool['executors'] > 1)}, {100 * pool['busy']:.0f} % busy")
    say()
    say(f"  {'model':18}{'SLO':>8}{'requests/s':>12}{'in time':>10}{'p50':>10}{'p99':>10}{'of SLO':>8}{'batch':>7}{'largest':>9}")
    zoo = [name for name in models if name not in REAL]
    for name in zoo[:3] + zoo[len(zoo) // 2 : len(zoo) // 2 + 2] + zoo[-2:] + list(REAL):
        model, sizes = models[name], batches.get(name, {})
        latency = model["latency_ms"] or {"p50": 0, "p99": 0}
        largest = max((size for size, count in sizes.items() if count), default=0)
        say(
            f"  {name:18}{model['slo_ms']:>5g} ms{model['sent_rps']:>12,.0f}{percent(model['in_time_share']):>10}"
            f"{latency['p50']:>7.1f} ms{latency['p99']:>7.1f} ms{100 * latency['p99'] / model['slo_ms']:>6.0f} %"
            f"{mean([sizes]):>7.1f}{largest:>9}"
        )
    say(f"\n  all models: {(OUT / 'load.json').relative_to(ROOT)}; a picture of the run: {(OUT / 'load.svg').relative_to(ROOT)}")


def mean(models):
    """The mean size of batches, of which each model has so many by size."""
    batches = [batch for sizes in models for batch in sizes.items()]
    count = sum(n for _, n in batches)
    return sum(size * n for size, n in batches) / count if count else 0.0


def start(children, command, log=None, out=None, session=True):
    """Starts a program. In a session of its own, a Ctrl-C does not reach it: it is ended in its turn, by `end`."""
    OUT.mkdir(parents=True, exist_ok=True)
    files = [open(OUT / log, "w") if log else None, open(out, "w") if out else None]
    stdout = files[1] or files[0]
    child = subprocess.Popen(
        [str(part) for part in command],
        cwd=ROOT,
        # What somebody has set for other runs is not meant for this one.
        env={name: value for name, value in os.environ.items() if not name.startswith("FERMATA_")},
        stdin=None if not session else subprocess.DEVNULL,
        stdout=stdout,
        stderr=files[0],
        start_new_session=session,
    )
    for file in filter(None, files):
        file.close()
    children.append(child)
    return child


def end(child):
    """Asks a program to end, and waits until it has: the server answers what it has begun."""
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(timeout=40)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def interrupt(*_):
    raise KeyboardInterrupt


def number(name, default):
    text = os.environ.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 1 <= value <= 1e6:
        sys.exit(f"demo: {name}: '{text}' is not a number from 1 to 1,000,000")
    return value


def last_line(log):
    lines = (OUT / log).read_text(errors="replace").strip().splitlines()
    return f"{lines[-1]} ({(OUT / log).relative_to(ROOT)})" if lines else "it said nothing"


def shell(command):
    parts = [part.relative_to(ROOT) if isinstance(part, Path) and part.is_relative_to(ROOT) else part for part in command]
    return " ".join(str(part) for part in parts)


def percent(share):
    # Rounded down, so that only what is whole is called so.
    return f"{int(1000 * share) / 10:.1f} %"


def head(text):
    say(f"\n{chr(27)}[1m{text}{chr(27)}[0m" if TERMINAL else f"\n{text}")


def say(text="", end="\n"):
    print(text, end=end, flush=True)


if __name__ == "__main__":
    main()
