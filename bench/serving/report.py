"""docs/results/serving.md from the stored rows."""

import json
from statistics import median

HEAD = """# Serving, measured

What `python3 bench/serving/serving.py` found: `fermata serve` on loopback under `fermata load`, both on the same
two cores, beside `fermata sim` for the same load and beside NVIDIA Triton 2.51 (the server of the PyPI wheel
nvidia-pytriton 0.7.0, its python backend). Arrivals are Poisson and open loop; latencies count from the moment at
which a request was due. *Goodput* is the highest rate at which 99 % of the requests are in time.
"""


def write(store, file):
    parts = [HEAD]
    for name, section in SECTIONS.items():
        path = store / f"{name}.json"
        if path.exists():
            stored = json.loads(path.read_text())
            parts.append(section(stored["result"]))
            parts.append(f"`python3 bench/serving/serving.py --only {name}{' --quick' if stored['quick'] else ''}`, "
                         f"commit {stored['commit']}, {stored['date']}, {stored['cores']} cores of {stored['cpu']}.\n")  # fmt: skip
    file.write_text("\n".join(parts))


def table(head, rows):
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def goodput(rows):
    lines = [[f"{row['executors']} over {row['protocol']}", f"{row['simulated_rps']:,.0f}", f"{row['served_rps']:,.0f}",
              f"{row['served_rps'] / row['simulated_rps']:.3f}", "0.95"] for row in rows]  # fmt: skip
    return "## goodput: over the network against the simulator\n\nResNet50 emulated (1.053 b + 5.072 ms), SLO 25 ms.\n\n" + table(
        ["executors", "simulated (requests/s)", "served", "served / simulated", "at least"], lines)  # fmt: skip


def triton(result):
    best = max(result["triton"], key=lambda each: each["goodput_rps"])
    ratio = result["fermata_rps"] / best["goodput_rps"] if best["goodput_rps"] else float("inf")
    lines = [["**fermata**, which has no setting", f"{result['fermata_rps']:,.0f}", f"{ratio:.2f} (at least 1.25)"]]
    lines += [[f"Triton, {each['setting']}", f"{each['goodput_rps']:,.0f}", ""] for each in
              sorted(result["triton"], key=lambda each: -each["goodput_rps"])]  # fmt: skip
    return ("## triton: one executor, setting by setting\n\nThe same model; Triton's python backend sleeps for as long. "
            "Fermata was measured before and after, and the lower one counts.\n\n"
            + table(["server", "goodput (requests/s)", "against Triton's best"], lines))  # fmt: skip


def identity(rows):
    lines = []
    for protocol in ("http", "grpc"):
        turns = [row for row in rows if row["protocol"] == protocol]
        middle = lambda who, key: median(row[who][key] for row in turns)  # noqa: E731
        ratio = median(row["fermata"]["rps"] / row["triton"]["rps"] for row in turns)
        lines.append([protocol, f"{middle('fermata', 'rps'):,.0f}", f"{middle('triton', 'rps'):,.0f}", f"{ratio:.1f}", "4",
                      f"{middle('fermata', 'p99_ms'):.2f}", f"{middle('triton', 'p99_ms'):.2f}"])  # fmt: skip
    return ("## identity: requests a second\n\nFP32[16], 32 connections with one request each in flight; medians of turns. "
            "Fermata runs the ONNX model in ONNX Runtime, Triton a python model that returns its input.\n\n"
            + table(["protocol", "fermata (requests/s)", "Triton", "ratio", "at least", "fermata P99 (ms)", "Triton P99 (ms)"], lines))  # fmt: skip


def lone(rows):
    lines = [[row["protocol"], f"{row['whole_us']['p50']:,.0f}", f"{row['echo_us']['p50']:.0f}", f"{row['added_us']['p50']:.0f}", "150",
              f"{row['added_us']['p99']:.0f}", "500"] for row in rows]  # fmt: skip
    return ("## lone: what is added to a request that is alone\n\nAn emulated model that takes 1 ms, asked by a client on a bare socket that sends one request, waits for "
            "its answer and sleeps for 30 ms; an echo over the same loopback by the same client, in turns. *Added* is what the request took, less the millisecond "
            "and the median of the echo: two sockets and two threads to be woken that any server needs.\n\n"
            + table(["protocol", "the whole, median (us)", "an echo", "added, median", "at most", "added, P99", "at most"], lines))  # fmt: skip


def overload(result):
    mib = 1 << 20
    memory = result["memory"] or [result["memory_before"]]
    lines = [
        ["peak (requests/s)", f"{result['peak_rps']:,.0f}", ""],
        ["offered", f"{result['offered_rps']:,.0f}", ""],
        ["in time", f"{result['in_time_rps']:,.0f}", ""],
        ["in time / peak", f"{result['in_time_rps'] / result['peak_rps']:.3f}", "0.97"],
        ["unanswered or failed", f"{result['counts'].get('failed', 0):,}", "0"],
        ["memory before, most, after (MiB)", f"{result['memory_before'] / mib:.0f}, {max(memory) / mib:.0f}, {result['memory_after'] / mib:.0f}", "flat"],
    ]
    return "## overload: three times the peak\n\nResNet50 emulated on 8 executors, over HTTP.\n\n" + table(["what", "measured", "at least"], lines)


def cycles(result):
    mib = 1 << 20
    lines = [
        ["cycles (load, reload another, reload, unload)", f"{result['cycles']:,} in {result['seconds']:.0f} s", ""],
        ["requests meanwhile, by outcome", ", ".join(f"{name} {count:,}" for name, count in result["counts"].items()), "none failed"],
        ["latency P99 (ms)", f"{result['latency_ms']['p99']:.1f}", ""],
        ["memory before, halfway, after (MiB)", f"{result['memory_before'] / mib:.0f}, {result['memory_halfway'] / mib:.0f}, {result['memory_after'] / mib:.0f}", "back"],
    ]
    return ("## cycles: models come and go\n\nTwo models are asked 200 times a second each, one of which is reloaded in every cycle; "
            "a third is loaded, reloaded and unloaded. All but one are ONNX models. 20 cycles before the first reading.\n\n"
            + table(["what", "measured", "asked"], lines))  # fmt: skip


def sequence(rows):
    lines = []
    for load in dict.fromkeys(row["load"] for row in rows):
        middle = lambda policy, name: median(row["latency_ms"][name] for row in rows if (row["policy"], row["load"]) == (policy, load))  # noqa: B023, E731
        for policy in dict.fromkeys(row["policy"] for row in rows):
            counts = [row["counts"] for row in rows if (row["policy"], row["load"]) == (policy, load)]
            answered, sent = (sum(each.get(name, 0) for each in counts) for name in ("in_time", "sent"))
            cells = [f"{middle(policy, name):.2f} | {middle(policy, name) / middle('eager', name):.2f}" for name in ("p50", "p99")]
            lines.append([f"{load}, `{policy}`", *cells, f"{sent - answered:,} of {sent:,}"])
    return ("## sequence: four loads on one model, one after the other\n\nOne emulated model (0.075 b + 0.5 ms), SLO 10 ms, one executor, "
            "three seconds each; medians of the turns. What was learned from one load must not hold up the next. Asked of `fermata`: 1.1 of eager.\n\n"
            + table(["load, policy", "P50 (ms)", "over eager", "P99 (ms)", "over eager", "not in time"], lines))  # fmt: skip


def stalls(rows):
    lines = []
    for share in dict.fromkeys(row["load"] for row in rows):
        for policy in dict.fromkeys(row["policy"] for row in rows):
            same = [row for row in rows if (row["policy"], row["load"]) == (policy, share)]
            bad, sent = (sum(row["counts"].get(name, 0) for row in same) for name in ("in_time", "sent"))
            lines.append([f"{share:.0%}, `{policy}`", f"{same[0]['rate']:,}", sum(row["stops"] for row in same),
                          f"{max(row['longest_stop_ms'] for row in same):.1f}", f"{median(row['latency_ms']['p99'] for row in same):.2f}",
                          f"{sent - bad:,} of {sent:,}"])  # fmt: skip
    return ("## stalls: a server that is stopped now and then\n\nOne emulated model (0.075 b + 0.5 ms), SLO 10 ms, one executor; the server's process is stopped for 2 to "
            "5 ms once a second (SIGSTOP). The objective bears that, so every request could be in time; stops that took longer than 9 ms are those of this machine.\n\n"
            + table(["load, policy", "requests/s", "stops", "longest (ms)", "P99 (ms)", "not in time"], lines))  # fmt: skip


def alone(rows):
    keys = dict.fromkeys((row["model"], row["clients"], row["after"]) for row in rows)
    middle = lambda policy, key: median(row["latency_ms"]["p50"] for row in rows  # noqa: E731
                                        if row["policy"] == policy and (row["model"], row["clients"], row["after"]) == key)  # fmt: skip
    lines = []
    for key in sorted(keys, key=lambda key: (key[1], key[0], key[2])):
        eager = middle("eager", key)
        ratios = [middle(policy, key) / eager for policy in ("fermata", "fermata:release")]
        lines.append([f"{key[0]}, {key[1]} client{'s' if key[1] > 1 else ''}, {key[2]:,}/s before", f"{eager:.3f}",
                      *(f"{ratio:.2f}" if ratio <= 1.05 else f"**{ratio:.2f}**" for ratio in ratios)])  # fmt: skip
    return ("## alone: clients that ask in a loop, after other traffic\n\nThree networks of an H200, emulated on one executor, SLO 10 ms, over HTTP. Before, Poisson traffic on the "
            "other two. Medians, of the medians of the turns, over those of eager batching. Asked: at most 1.05.\n\n"
            + table(["model, clients, traffic", "eager (ms)", "fermata", "fermata:release"], lines))  # fmt: skip


def mixes(rows):
    lines = []
    for row in rows:
        ratio = row["served_rps"] / row["simulated_rps"]
        shown = f"**{ratio:.3f}**" if row["times"] > 1 and ratio < 0.95 else f"{ratio:.3f}"
        lines.append([", ".join(f"{name} {row['times'] * slo} ms" for name, slo in row["mix"]), row["executors"],
                      f"{row['simulated_rps']:,.0f}", f"{row['served_rps']:,.0f}", shown, "0.95" if row["times"] > 1 else "-"])  # fmt: skip
    return ("## mixes: four mixes over the network\n\nThe mixes of `docs/results/mixes.md` on emulated executors, over HTTP: with profiles and objectives ten times as long, and as "
            "they are. Simulated: `fermata sim`, without a network.\n\n"
            + table(["mix", "executors", "simulated (requests/s)", "served", "served / simulated", "at least"], lines))  # fmt: skip


SECTIONS = {"goodput": goodput, "triton": triton, "identity": identity, "lone": lone, "overload": overload, "cycles": cycles,
            "sequence": sequence, "stalls": stalls, "alone": alone, "mixes": mixes}
