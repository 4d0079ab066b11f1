"""Measures a real encoder whose requests differ in length: distributions against one latency for each batch size.

    python3 bench/variable/variable.py                all, about half an hour
    python3 bench/variable/variable.py --quick        shorter runs, rougher numbers: a quarter of an hour
    python3 bench/variable/variable.py --report       writes the section of docs/results/orloj.md again from what is stored

MiniLM on one executor of one thread. Requests are as long as the inputs of a conversation service (the Azure LLM trace of 2023, a
sixteenth of each, from 8 to 256), come at random, and have an objective of a few times the 99th percentile of what a request takes alone.
The same model is served in several ways by servers that run side by side; they get the same requests, in turns. What is
found is stored as docs/results/orloj/variable.json. Servers listen on loopback only, and those that were started are stopped.
"""

import argparse
import csv
import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "serving"))
sys.path.insert(0, str(ROOT / "bench" / "triton"))
import client  # noqa: E402
import section  # noqa: E402
from serving import metric, origin, serving  # noqa: E402
from triton import say  # noqa: E402

STORE = ROOT / "docs" / "results" / "orloj" / "variable.json"
MODEL = ROOT / ".fermata" / "models" / "minilm.onnx"
TRACE = ROOT / "data" / "traces" / "azure_llm_2023_conv_2000.csv"
SHORTEST, LONGEST, SCALE = 8, 256, 16
EMBEDDING, HIDDEN = "sentence_embedding", "last_hidden_state"
# Of the rate at which one request after the other would keep the executor busy.
LOADS = (0.5, 0.7, 0.9, 1.1, 1.4)
# Times the 99th percentile of what a request takes alone.
SLOS = (1.5, 3.0)
# Not counted, at the beginning of a run.
WARM_UP_S = 3


def ways(middle):
    """How the model is served: distributions, and one latency for each batch size, from what is measured with one length or all."""

    def at(length):
        return f'run_time = "point"\n[profile.shapes]\ninput_ids = [{length}]\nattention_mask = [{length}]\n'

    return {"spread": "", "point, all lengths": 'run_time = "point"\n', "point, middle length": at(middle),
            "point, longest": at(LONGEST), "point, not padded": at(middle) + "[length]\npad = false\n"}  # fmt: skip


def lengths():
    """What the trace has, in the model's range."""
    with open(TRACE, newline="") as file:
        tokens = [int(row["ContextTokens"]) for row in csv.DictReader(file)]
    return [min(max(round(count / SCALE), SHORTEST), LONGEST) for count in tokens]


def server(args, slo_ms, settings):
    options = ("--cpu-executors", 1, "--cpu-threads", 1)
    return serving(args, {"minilm": (f"slo_ms = {slo_ms}\n{settings}", MODEL)}, *options)


def alone_ms(args, drawn):
    """What requests of some lengths take by themselves, and from that all that were drawn, in milliseconds."""
    grid = sorted({SHORTEST, 16, 32, 64, 96, 128, 192, LONGEST})
    with server(args, 20_000, "") as encoder:
        taken = []
        for length in grid:
            requests = [client.Request(0.0, [2000] * length)]
            runs = [client.send(encoder.http, "minilm", requests, [EMBEDDING])[0].latency for _ in range(9)]
            taken.append(1000 * median(runs))

    def between(length):
        at = next(at for at in range(1, len(grid)) if length <= grid[at])
        share = (length - grid[at - 1]) / (grid[at] - grid[at - 1])
        return taken[at - 1] + share * (taken[at] - taken[at - 1])

    return dict(zip(grid, taken)), sorted(map(between, drawn))


def finish_rate(answers, requests, slo_ms):
    """In time / all, after the beginning; and how the others ended."""
    counted = [answer for answer, request in zip(answers, requests) if request.due >= WARM_UP_S]
    in_time = sum(answer.status == 200 and 1000 * answer.latency <= slo_ms for answer in counted)
    other = {}
    for answer in counted:
        other[str(answer.status)] = other.get(str(answer.status), 0) + 1
    return {"sent": len(counted), "in_time": in_time, "statuses": other}


def measure(args):
    drawn = lengths()
    grid, alone = alone_ms(args, drawn)
    mean, p99 = sum(alone) / len(alone), alone[int(0.99 * len(alone))]
    say(f"alone: {mean:.1f} ms on average, P99 {p99:.1f} ms")
    seconds, turns = (10, 1) if args.quick else (15, 2)
    found = {"alone_ms": grid, "alone_mean_ms": mean, "alone_p99_ms": p99, "seconds": seconds, "turns": turns, "slos": []}
    for times in SLOS:
        slo_ms = round(times * p99, 1)
        with ExitStack() as stack:
            # One after the other: what they measure at the start must not disturb the others.
            servers = {way: stack.enter_context(server(args, slo_ms, settings))
                       for way, settings in ways(sorted(drawn)[len(drawn) // 2]).items()}  # fmt: skip
            for encoder in servers.values():
                client.send(encoder.http, "minilm", client.poisson(drawn, 300 / mean, 5, 0), [EMBEDDING])
            rows = []
            for load in LOADS:
                runs = {way: [] for way in servers}
                for turn in range(turns):
                    requests = client.poisson(drawn, 1000 * load / mean, seconds + WARM_UP_S, 100 * turn + int(10 * load))
                    for way, encoder in servers.items():
                        answers = client.send(encoder.http, "minilm", requests, [EMBEDDING])
                        runs[way].append(finish_rate(answers, requests, slo_ms))
                rates = {way: sum(run["in_time"] for run in each) / sum(run["sent"] for run in each) for way, each in runs.items()}
                rows.append({"load": load, "finish_rate": rates, "runs": runs})
                say(f"SLO {slo_ms} ms, load {load}: " + ", ".join(f"{way} {rate:.3f}" for way, rate in rates.items()))
            counters = {way: counted(encoder) for way, encoder in servers.items()}
            found["slos"].append({"times": times, "slo_ms": slo_ms, "rows": rows, "counters": counters})
            if "equal" not in found:
                found["equal"] = equal(servers["spread"], drawn)
                say(f"outputs: {found['equal']}")
    return found


def counted(encoder):
    """What the server counts of its batches."""
    batches, rows = metric(encoder, "fermata_batches_total"), metric(encoder, "fermata_rows_total")
    return {"batches": batches, "mean_batch": rows / max(batches, 1),
            "foretold": metric(encoder, "fermata_batches_foretold_total") / max(batches, 1),
            "alone_runs": metric(encoder, "fermata_alone_runs_total")}  # fmt: skip


def equal(encoder, drawn):
    """Requests of mixed lengths all at once, and each again by itself: the largest difference of any output."""
    requests = [client.Request(0.0, request.words) for request in client.poisson(drawn, 100, 0.8, 7)]
    both = [EMBEDDING, HIDDEN]
    batches, rows = metric(encoder, "fermata_batches_total"), metric(encoder, "fermata_rows_total")
    together = client.send(encoder.http, "minilm", requests, both, timeout_ms=60_000)
    batches, rows = metric(encoder, "fermata_batches_total") - batches, metric(encoder, "fermata_rows_total") - rows
    largest, compared = 0.0, 0
    for request, answer in zip(requests, together):
        again = client.send(encoder.http, "minilm", [request], both, timeout_ms=60_000)[0]
        if answer.status != 200 or again.status != 200:
            sys.exit(f"error: {answer.status} and {again.status} in place of an answer")
        for name in both:
            pairs = zip(answer.outputs[name], again.outputs[name], strict=True)
            largest = max(largest, *(abs(one - other) for one, other in pairs))
        compared += 1
    return {"requests": compared, "mean_batch": rows / max(batches, 1), "largest_difference": largest}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--report", action="store_true")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--fermata", default=str(target / "release" / "fermata"))
    args = parser.parse_args()
    if not args.report:
        if not MODEL.exists():
            sys.exit(f"error: {MODEL.relative_to(ROOT)} is missing: run `make setup`")
        STORE.parent.mkdir(parents=True, exist_ok=True)
        stored = {"quick": args.quick, **origin(), "result": measure(args)}
        STORE.write_text(json.dumps(stored, indent=1) + "\n")
    section.write(STORE, STORE.parent.with_suffix(".md"))
    say(f"written: {STORE.parent.with_suffix('.md').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
