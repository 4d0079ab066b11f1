"""Sends sentences to an encoder when they are due, over HTTP, with the standard library alone.

Latencies count from the moment at which a request was due, so that a client that is late makes nobody look fast.
"""

import array
import asyncio
import json
import random
import time
from dataclasses import dataclass

# Ordinary words of the vocabulary; below are the signs.
WORDS = (1000, 29000)


@dataclass
class Request:
    """When it is due, in seconds from the start, and its words."""

    due: float
    words: list


@dataclass
class Answer:
    """The status, how long after it was due, and the outputs by name."""

    status: int
    latency: float
    outputs: dict


def poisson(lengths, rate, seconds, seed):
    """Requests of a rate, each as long as the next of `lengths`, which are gone through in a random order."""
    draw = random.Random(seed)
    requests, due = [], 0.0
    while (due := due + draw.expovariate(rate)) < seconds:
        length = draw.choice(lengths)
        requests.append(Request(due, [draw.randint(*WORDS) for _ in range(length)]))
    return requests


def send(url, model, requests, outputs, timeout_ms=None):
    """The answers, in the order of the requests."""
    return asyncio.run(Client(url, model, outputs, timeout_ms).send(requests))


class Client:
    def __init__(self, url, model, outputs, timeout_ms):
        host, port = url.rsplit("/", 1)[1].rsplit(":", 1)
        self.address = (host, int(port))
        self.path = f"/v2/models/{model}/infer"
        self.outputs = outputs
        self.timeout_ms = timeout_ms
        self.idle = []

    async def send(self, requests):
        bodies = [self.body(request.words) for request in requests]
        began = time.perf_counter()

        async def one(request, body):
            await asyncio.sleep(began + request.due - time.perf_counter())
            status, outputs = await self.ask(body)
            return Answer(status, time.perf_counter() - began - request.due, outputs)

        answers = await asyncio.gather(*map(one, requests, bodies))
        for _, writer in self.idle:
            writer.close()
        return answers

    def body(self, words):
        count = len(words)
        tensor = {"datatype": "INT64", "shape": [1, count], "parameters": {"binary_data_size": 8 * count}}
        head = {"inputs": [{"name": name, **tensor} for name in ("input_ids", "attention_mask")],
                "outputs": [{"name": name, "parameters": {"binary_data": True}} for name in self.outputs]}  # fmt: skip
        if self.timeout_ms:
            head["parameters"] = {"timeout": int(1000 * self.timeout_ms)}
        text = json.dumps(head).encode()
        data = text + array.array("q", words).tobytes() + array.array("q", [1] * count).tobytes()
        lines = f"POST {self.path} HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: {len(text)}\r\n"
        return f"{lines}Content-Length: {len(data)}\r\n\r\n".encode() + data

    async def ask(self, body):
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection(*self.address)
        writer.write(body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status = int(head.split(" ", 2)[1])
        fields = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if line)
        data = await reader.readexactly(int(fields["content-length"]))
        self.idle.append((reader, writer))
        return status, decoded(data, int(fields["inference-header-content-length"])) if status == 200 else {}


def decoded(data, json_length):
    """The outputs of a response by name, as floats."""
    head, rest, outputs = json.loads(data[:json_length]), data[json_length:], {}
    for output in head["outputs"]:
        size = output["parameters"]["binary_data_size"]
        outputs[output["name"]], rest = array.array("f", rest[:size]), rest[size:]
    return outputs
