"""The section of docs/results/orloj.md about a real encoder, from what is stored."""

import json

TITLE = "A real encoder, requests that differ in length"
HEADING = f"## variable: {TITLE}\n"
CONTENTS = f"- [variable](#variable-a-real-encoder-requests-that-differ-in-length): {TITLE}\n"


def write(store, file):
    """Writes the section's own file, and puts it at the end of the document, as `fermata bench orloj` does when it has that file."""
    text = HEADING + "\n" + section(json.loads(store.read_text()))
    store.with_suffix(".md").write_text(text)
    before = (file.read_text() if file.exists() else "").partition("\n" + HEADING)[0]
    if CONTENTS not in before:
        head, first, rest = before.partition("\n## ")
        before = head + ("" if head.endswith("\n") or not head else "\n") + CONTENTS + first + rest
    file.write_text(before + "\n" + text)


def section(stored):
    found = stored["result"]
    parts = [f"""MiniLM (6 layers, 384 wide) in ONNX Runtime on one thread, behind HTTP. Requests are as long as the inputs of the Azure LLM trace of 2023 (conversations), a sixteenth of each, from 8 to 256; alone they
take {found['alone_mean_ms']:.1f} ms on average and {found['alone_p99_ms']:.1f} ms at the 99th percentile. Arrivals are Poisson; a load of 1 would keep the executor busy with one request after the other. *Finish rate*: answered within
the objective, from the moment at which a request was due, over all that were sent. Servers that run side by side get the same requests, in turns ({found['turns']} of {found['seconds']} s for each cell).

*spread* is what is served without a setting. *point* is `run_time = "point"`: one latency for each batch size, as it was measured with requests of all lengths, of the middle length, or of the longest, and corrected while
serving by what batches take (their 95th percentile); *not padded* runs the requests of a batch one length after another (`pad = false`), which costs less on a processor.
"""]  # fmt: skip
    for slo in found["slos"]:
        ways = list(slo["rows"][0]["finish_rate"])
        head = ["load", *ways, "spread / best point"]
        lines = []
        for row in slo["rows"]:
            rates = row["finish_rate"]
            best = max(rate for way, rate in rates.items() if way != "spread")
            lines.append([row["load"], *(f"{rates[way]:.3f}" for way in ways), f"{rates['spread'] / best:.2f}"])
        parts.append(f"Objective {slo['slo_ms']} ms ({slo['times']:g} times P99):\n\n" + table(head, lines))
        counters = slo["counters"]
        lines = [[way, f"{each['mean_batch']:.2f}", f"{each['foretold']:.2f}", f"{each['alone_runs']:.0f}"] for way, each in counters.items()]
        parts.append(table(["way", "mean batch", "batches foretold within 10 %", "requests run again alone"], lines))
    equal = found["equal"]
    parts.append(f"Outputs: {equal['requests']} requests of mixed lengths, sent at once and run in batches of {equal['mean_batch']:.1f} on average, differ from each run by itself by at most "
                 f"{equal['largest_difference']:.1e} in any element of both outputs (allowed: 1e-4).\n")  # fmt: skip
    parts.append(f"<sub>`python3 bench/variable/variable.py{' --quick' if stored['quick'] else ''}` · commit {stored['commit']} · {stored['cpu']}, {stored['cores']} cores · {stored['date']}</sub>\n")
    return "\n".join(parts)


def table(head, rows):
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)
