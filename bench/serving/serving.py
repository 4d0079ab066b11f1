"""Measures what the server must show, beside `fermata sim` and beside NVIDIA Triton, and writes it down.

    python3 bench/serving/serving.py                  all rows, about 40 minutes
    python3 bench/serving/serving.py --only lone      one row (names below)
    python3 bench/serving/serving.py --quick          shorter runs, rougher numbers
    python3 bench/serving/serving.py --report         writes docs/results/serving.md again from what is stored

Rows: goodput, triton, identity, lone, overload, cycles, sequence, stalls, alone, mixes. Each is stored as docs/results/serving/ROW.json. Servers
listen on loopback only, and those that were started are stopped. Triton comes from PyPI (see bench/triton).
"""

import argparse
import json
import os
import platform
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "triton"))
import lone  # noqa: E402
import report  # noqa: E402
import triton  # noqa: E402

STORE = ROOT / "docs" / "results" / "serving"
RESNET50 = 'engine = "emulated"\nslo_ms = 25\nalpha_ms = 1.053\nbeta_ms = 5.072\n'
VECTOR = "".join(f'[[{side}put]]\nname = "{side.upper()}PUT0"\ndatatype = "FP32"\nshape = [16]\n' for side in ("in", "out"))
IDENTITY = ROOT / "crates" / "engine" / "tests" / "models" / "identity.onnx"


# A server of ours, and what drives it.


@contextmanager
def serving(args, models, *options):
    """Runs `fermata serve` on these models until the block ends. A model is the text of its fermata.toml, and an
    ONNX file, if it has one."""
    with tempfile.TemporaryDirectory() as folder:
        for name, (settings, file) in models.items():
            (Path(folder) / name / "1").mkdir(parents=True)
            (Path(folder) / name / "fermata.toml").write_text(settings)
            if file:
                shutil.copy(file, Path(folder) / name / "1" / "model.onnx")
        ports = free_ports(3)
        command = [args.fermata, "serve", folder, "--address", "127.0.0.1", "--log", "warn"]
        for name, port in zip(("http", "grpc", "metrics"), ports):
            command += [f"--{name}-port", str(port)]
        process = subprocess.Popen([*command, *map(str, options)], cwd=ROOT)
        server = SimpleNamespace(http=f"http://127.0.0.1:{ports[0]}", grpc=f"grpc://127.0.0.1:{ports[1]}",
                                 metrics=f"http://127.0.0.1:{ports[2]}/metrics", process=process)  # fmt: skip
        try:
            for _ in range(600):
                if process.poll() is not None:
                    sys.exit("error: the server ended")
                if ask(server.http + "/v2/health/ready") == 200:
                    break
                time.sleep(0.1)
            yield server
        finally:
            process.send_signal(signal.SIGTERM)
            if process.wait(60):
                sys.exit(f"error: the server ended with {process.returncode}")


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def ask(url, body=None):
    """The status of a request; zero, if nobody answers."""
    try:
        request = urllib.request.Request(url, data=body, method="POST" if body is not None else "GET")
        return urllib.request.urlopen(request, timeout=60).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def metric(server, name):
    """The sum over all labels."""
    text = urllib.request.urlopen(server.metrics, timeout=10).read().decode()
    lines = [line for line in text.splitlines() if line.startswith((name + "{", name + " "))]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def simulated(args, executors):
    """The goodput that `fermata sim` finds for the same model."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(f'gpus = {executors}\nrequests = 500000\n[[model]]\nname = "resnet50"\n')
        file.write('alpha_ms = 1.053\nbeta_ms = 5.072\nslo_ms = 25\nrate = 400\narrivals = "poisson"\n')
        file.flush()
        done = subprocess.run([args.fermata, "sim", file.name, "--goodput", "--json"], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["goodput_rps"]


def goodput(args, url, rate):
    options = ["--goodput", "--slo-ms", 25, "--rate", rate, "--duration", seconds(args, 10), "--warmup", "1s"]
    return triton.load(args, url, "resnet50", *options)


def seconds(args, full):
    return f"{full // 3 if args.quick else full}s"


# The rows.


def measure_goodput(args):
    """Goodput over the network, on 1 and 8 executors, against the simulator."""
    rows = []
    for executors in (1, 8):
        expected = simulated(args, executors)
        with serving(args, {"resnet50": (RESNET50, None)}, "--emulated-executors", executors) as server:
            for protocol in ("http", "grpc"):
                found = goodput(args, getattr(server, protocol), round(expected * 0.9))
                rows.append({"executors": executors, "protocol": protocol, "simulated_rps": expected,
                             "served_rps": found["goodput_rps"], "latency_ms": found["latency_ms"], "lag_us": found["lag_us"]})  # fmt: skip
                triton.say(f"{executors} executors, {protocol}: {found['goodput_rps']:.0f} of {expected:.0f} rps")
    return rows


def measure_triton(args):
    """One executor, against Triton's best setting, by the same client."""
    with serving(args, {"resnet50": (RESNET50, None)}) as server:
        ours = goodput(args, server.http, 380)["goodput_rps"]
    settings = []
    for name, knobs in triton.settings().items():
        if args.setting and args.setting not in name:
            continue
        repository = triton.write_repository(triton.HOME / "repository", {"resnet50": triton.config("resnet50", 16, **knobs)})
        with triton.serving(repository, args):
            found = goodput(args, triton.urls(args)["http"], 300)["goodput_rps"]
        settings.append({"setting": name, "goodput_rps": found})
        triton.say(f"triton, {name}: {found:.0f} rps")
    # The machine may have changed meanwhile: ours is measured before and after, and the lower one counts.
    with serving(args, {"resnet50": (RESNET50, None)}) as server:
        again = goodput(args, server.http, 380)["goodput_rps"]
    return {"fermata_rps": min(ours, again), "fermata_twice": [ours, again], "triton": settings}


def measure_identity(args):
    """Requests a second with 32 connections, against Triton, in turns."""
    model = {"identity": ("slo_ms = 100\n", IDENTITY)}
    rows = []
    for turn in range(2 if args.quick else 3):
        for protocol in ("http", "grpc"):
            options = ["identity", "--concurrency", 32, "--duration", seconds(args, 6)]
            with serving(args, model, "--cpu-threads", 1) as server:
                ours = triton.load(args, getattr(server, protocol), *options)
            repository = triton.write_repository(triton.HOME / "repository", {"identity": triton.config("identity", 16)})
            with triton.serving(repository, args):
                theirs = triton.load(args, triton.urls(args)[protocol], *options)
            row = {"turn": turn, "protocol": protocol}
            for who, found in (("fermata", ours), ("triton", theirs)):
                row[who] = {"rps": found["in_time_rps"], "p50_ms": found["latency_ms"]["p50"], "p99_ms": found["latency_ms"]["p99"],
                            "counts": found["counts"]}  # fmt: skip
            rows.append(row)
            triton.say(f"{protocol}: {row['fermata']['rps']:.0f} against {row['triton']['rps']:.0f} rps")
    return rows


def measure_lone(args):
    """What is added to a request that is alone: the model takes one millisecond."""
    settings = 'engine = "emulated"\nslo_ms = 100\nalpha_ms = 0.1\nbeta_ms = 0.9\n' + VECTOR
    port = lambda url: int(url.rsplit(":", 1)[1])  # noqa: E731
    with serving(args, {"lone": (settings, None)}) as server:
        clients = {"http": lone.Http(port(server.http), "lone"), "grpc": lone.Grpc(port(server.grpc), "lone"), "echo": lone.Echo()}
        taken = lone.microseconds(*clients.values(), count=300 if args.quick else 1000)
        clients["echo"].end()
    *served, echo = (quantiles(times) for times in taken)
    rows = []
    for protocol, whole in zip(clients, served):
        added = {name: value - 1000 - echo["p50"] for name, value in whole.items()}
        rows.append({"protocol": protocol, "whole_us": whole, "added_us": added, "echo_us": echo, "count": len(taken[0])})
        triton.say(f"{protocol}: {whole['p50']:.0f} us, of it added {added['p50']:.0f}, P99 {added['p99']:.0f}; an echo {echo['p50']:.0f}")
    return rows


def quantiles(times):
    """Of sorted times."""
    return {name: times[min(int(share * len(times)), len(times) - 1)] for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}


def measure_overload(args):
    """Three times the peak for a minute."""
    with serving(args, {"resnet50": (RESNET50, None)}, "--emulated-executors", 8) as server:
        peak = goodput(args, server.http, 4800)
        before = metric(server, "process_resident_memory_bytes")
        memory, stop = [], threading.Event()

        def watch():
            while not stop.wait(2):
                memory.append(metric(server, "process_resident_memory_bytes"))

        watcher = threading.Thread(target=watch)
        watcher.start()
        options = ["resnet50", "--rate", round(3 * peak["goodput_rps"]), "--slo-ms", 25, "--duration", seconds(args, 60)]
        found = triton.load(args, server.http, *options, "--connections", 2048)
        stop.set()
        watcher.join()
        return {"peak_rps": peak["goodput_rps"], "offered_rps": found["offered_rps"], "sent_rps": found["sent_rps"],
                "in_time_rps": found["in_time_rps"], "counts": found["counts"], "errors": found.get("errors"),
                "latency_ms": found["latency_ms"], "memory_before": before, "memory": memory,
                "memory_after": metric(server, "process_resident_memory_bytes")}  # fmt: skip


def measure_cycles(args):
    """Models are loaded, loaded again and unloaded while others, and one that is being reloaded, are asked."""
    cycles = 100 if args.quick else 1000
    file = ("slo_ms = 2000\n", IDENTITY)
    models = {"steady": ('engine = "emulated"\nslo_ms = 2000\nalpha_ms = 0.1\nbeta_ms = 0.9\n' + VECTOR, None),
              "reloaded": file, "guest": file}  # fmt: skip
    with serving(args, models, "--model-control-mode", "explicit", "--load-model", "*", "--cpu-threads", 1) as server:
        load = server.http + "/v2/repository/models/"

        def turn():
            for step in ("guest/load", "reloaded/load", "guest/load", "guest/unload"):
                if ask(load + step, b"{}") != 200:
                    sys.exit(f"error: {step} failed")

        for _ in range(20):
            turn()
        before = metric(server, "process_resident_memory_bytes")
        command = [args.fermata, "load", server.http, "steady=200@2000", "reloaded=200@2000", "--duration", "3600s", "--json"]
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        began, halfway = time.time(), 0
        for cycle in range(cycles):
            turn()
            if cycle == cycles // 2:
                halfway = metric(server, "process_resident_memory_bytes")
        took = time.time() - began
        driver.send_signal(signal.SIGINT)
        found = json.loads(driver.communicate()[0])
        time.sleep(2)
        return {"cycles": cycles, "seconds": took, "counts": found["counts"], "latency_ms": found["latency_ms"],
                "memory_before": before, "memory_halfway": halfway, "memory_after": metric(server, "process_resident_memory_bytes")}  # fmt: skip


def measure_sequence(args):
    """One model under four loads, one after the other: what one of them teaches must not hold up the next."""
    settings = 'engine = "emulated"\nslo_ms = 10\nalpha_ms = 0.075\nbeta_ms = 0.5\n' + VECTOR
    loads = {"one client": ["--concurrency", 1], "200 requests/s": ["--rate", 200],
             "1,000 requests/s": ["--rate", 1000], "one client again": ["--concurrency", 1]}  # fmt: skip
    rows = []
    for turn in range(1 if args.quick else 3):
        for policy in ("eager", "fermata", "fermata:release"):
            with serving(args, {"model": (settings, None)}, "--emulated-executors", 1, "--policy", policy) as server:
                for name, options in loads.items():
                    found = triton.load(args, server.http, "model", *options, "--slo-ms", 10, "--duration", "3s")
                    counts, latency = found["counts"], found["latency_ms"]
                    rows.append({"turn": turn, "policy": policy, "load": name, "counts": counts, "latency_ms": latency})
                    triton.say(f"{policy}, {name}: P50 {latency['p50']:.2f}, P99 {latency['p99']:.2f} ms")
    return rows


def measure_stalls(args):
    """The server is stopped for 2 to 5 ms once a second. An objective of 10 ms bears that: nothing need be lost."""
    alpha, beta = 0.075, 0.5
    settings = f'engine = "emulated"\nslo_ms = 10\nalpha_ms = {alpha}\nbeta_ms = {beta}\n' + VECTOR
    # Batches of four, back to back.
    full = 4 / (4 * alpha + beta) * 1000
    rows = []
    for turn in range(1 if args.quick else 3):
        for policy in ("eager", "fermata", "fermata:release"):
            with serving(args, {"model": (settings, None)}, "--emulated-executors", 1, "--policy", policy) as server:
                for share in (0.05, 0.3):
                    options = ["--rate", round(share * full), "--slo-ms", 10, "--duration", seconds(args, 12)]
                    with stopped_now_and_then(server.process, turn) as stops:
                        found = triton.load(args, server.http, "model", *options)
                    rows.append({"turn": turn, "policy": policy, "load": share, "rate": round(share * full), "stops": len(stops),
                                 "longest_stop_ms": max(stops), "counts": found["counts"], "latency_ms": found["latency_ms"]})  # fmt: skip
                    triton.say(f"{policy}, {share:.0%}: {found['counts']}, longest stop {max(stops):.1f} ms")
    return rows


@contextmanager
def stopped_now_and_then(process, seed):
    """Stops a process for 2 to 5 ms once a second until the block ends; how long each stop took, in milliseconds."""
    done, stops, chance = threading.Event(), [], random.Random(seed)

    def stop():
        while not done.wait(1):
            process.send_signal(signal.SIGSTOP)
            begun = time.perf_counter()
            time.sleep(chance.uniform(0.002, 0.005))
            process.send_signal(signal.SIGCONT)
            stops.append(1000 * (time.perf_counter() - begun))

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        yield stops
    finally:
        done.set()
        thread.join()


# Networks as they were measured on an H200.


def measured(name):
    """How long batches of 1, 2, ... take, in milliseconds: linear between the sizes that were measured."""
    file = json.loads((ROOT / "profiles" / "h200" / f"{name}.json").read_text())
    row = next(row for row in file["shares"] if row["percent"] == 100)
    known = list(zip(file["batches"], row["median_ms"]))
    table = []
    for (low, before), (high, after) in zip(known, known[1:]):
        table += [before + (after - before) * (size - low) / (high - low) for size in range(low, high)]
    table.append(known[-1][1])
    # A larger batch takes no less: medians may differ by their noise.
    return [max(table[: at + 1]) for at in range(len(table))]


def emulated(name, slo_ms, times=1):
    """The settings of an emulated network, with latencies and objective this many times as long."""
    table = ", ".join(f"{times * ms:.4f}" for ms in measured(name))
    return f'engine = "emulated"\nslo_ms = {times * slo_ms}\nlatency_ms = [{table}]\n' + VECTOR


def measure_alone(args):
    """Clients that ask in a loop, after Poisson traffic on two other models."""
    names = ("resnet50", "lenet", "bert_short")
    models = {name: (emulated(name, 10), None) for name in names}
    rows = []
    for turn in range(1 if args.quick else 3):
        for policy in ("eager", "fermata", "fermata:release"):
            with serving(args, models, "--emulated-executors", 1, "--policy", policy) as server:
                for rate in (200, 1000, 4000):
                    for name in names:
                        others = [f"{other}={rate / 2}@10" for other in names if other != name]
                        triton.load(args, server.http, *others, "--duration", "1500ms")
                        for clients in (1, 4):
                            options = ["--concurrency", clients, "--slo-ms", 10, "--warmup", "0", "--duration", "1s"]
                            found = triton.load(args, server.http, name, *options)
                            rows.append({"turn": turn, "policy": policy, "after": rate, "model": name, "clients": clients,
                                         "counts": found["counts"], "latency_ms": found["latency_ms"]})  # fmt: skip
            triton.say(f"turn {turn + 1}, {policy}: done")
    return rows


MIXES = ((("mobilenetv2", 3), ("resnet152", 50)), (("lenet", 2), ("resnet152", 30)), (("bert_short", 3), ("vgg16", 50)),
         (("resnet50", 3), ("mobilenetv2", 10), ("resnet152", 50)))  # fmt: skip


def measure_mixes(args):
    """The four mixes of `fermata bench mixes` over the network: ten times as long at a tenth of the
    rates, and (not with --quick) as they are."""
    rows = []
    for times in (10,) if args.quick else (10, 1):
        for mix in MIXES:
            for executors in (1, 2):
                expected = simulated_mix(args, mix, executors, times)
                models = {name: (emulated(name, slo, times), None) for name, slo in mix}
                with serving(args, models, "--emulated-executors", executors) as server:
                    # Equal rates: a search multiplies all of them.
                    each = expected * 0.95 / len(mix)
                    loads = [f"{name}={each:.2f}@{times * slo}" for name, slo in mix]
                    options = ["--goodput", "--duration", seconds(args, 12 if times > 1 else 6), "--warmup", "2s"]
                    found = triton.load(args, server.http, *loads, *options)["goodput_rps"]
                rows.append({"times": times, "mix": mix, "executors": executors, "simulated_rps": expected, "served_rps": found})
                triton.say(f"x{times}, {' + '.join(name for name, _ in mix)} on {executors}: {found:.0f} of {expected:.0f} rps")
    return rows


def simulated_mix(args, mix, executors, times):
    """The goodput that `fermata sim` finds for a mix at equal rates."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(f"gpus = {executors}\nrequests = 400000\n")
        for name, slo in mix:
            table = ", ".join(f"{times * ms:.4f}" for ms in measured(name))
            file.write(f'[[model]]\nname = "{name}"\nlatency_ms = [{table}]\nslo_ms = {times * slo}\nrate = {1000 / times}\narrivals = "poisson"\n')
        file.flush()
        done = subprocess.run([args.fermata, "sim", file.name, "--goodput", "--json"], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["goodput_rps"]


ROWS = {"goodput": measure_goodput, "triton": measure_triton, "identity": measure_identity,
        "lone": measure_lone, "overload": measure_overload, "cycles": measure_cycles,
        "sequence": measure_sequence, "stalls": measure_stalls, "alone": measure_alone,
        "mixes": measure_mixes}  # fmt: skip


def origin():
    """With which commit, on what, and when."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    models = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {"commit": commit.stdout.strip(), "cores": os.cpu_count(), "cpu": (models or [platform.machine()])[0],
            "date": time.strftime("%Y-%m-%d"), "load_average": os.getloadavg()[0]}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=ROWS, action="append", help="a row; several may be given")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--setting", help="triton: only settings with this in their name")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--http-port", type=int, default=18000, help="of Triton")
    parser.add_argument("--grpc-port", type=int, default=18001, help="of Triton")
    parser.add_argument("--http-threads", type=int, default=8, help="Triton's --http-thread-count")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--fermata", default=str(target / "release" / "fermata"))
    args = parser.parse_args()
    STORE.mkdir(parents=True, exist_ok=True)
    for name in [] if args.report else args.only or ROWS:
        triton.say(f"{name}: {ROWS[name].__doc__}")
        stored = {"quick": args.quick, **origin(), "result": ROWS[name](args)}
        (STORE / f"{name}.json").write_text(json.dumps(stored, indent=1) + "\n")
    report.write(STORE, STORE.with_suffix(".md"))
    triton.say(f"written: {STORE.with_suffix('.md').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
