"""Builds an ONNX file from the weights of all-MiniLM-L6-v2, an encoder that turns sentences into vectors.

The weights come as a file of the `safetensors` format. A graph is written around them with Python alone: `make setup` must run
on a machine that has nothing else, and of ONNX's format only a handful of messages is needed.

Inputs: `input_ids` and `attention_mask`, INT64 [batch, sequence], up to 512 long. Outputs: `last_hidden_state`, FP32
[batch, sequence, 384], and `sentence_embedding`, FP32 [batch, 384], the mean of it over the places of the mask, of length one.
"""

import array
import json
import struct
import sys

LAYERS, HEADS, WIDTH = 6, 12, 384
EPSILON = 1e-12

FLOAT, INT64 = 1, 7
# Seventeen is the first version with LayerNormalization.
OPSET, IR_VERSION = 17, 8


def from_weights(data):
    """The bytes of the ONNX file for the bytes of the weights."""
    weights = Weights(data)
    graph = Graph()
    hidden = embeddings(graph, weights)
    bias = attention_bias(graph)
    for layer in range(LAYERS):
        hidden = encoder_layer(graph, weights, f"encoder.layer.{layer}", hidden, bias)
    graph.node("Identity", [hidden], output="last_hidden_state")
    pool(graph, hidden)
    return graph.model(
        inputs=[("input_ids", INT64, ["batch", "sequence"]), ("attention_mask", INT64, ["batch", "sequence"])],
        outputs=[
            ("last_hidden_state", FLOAT, ["batch", "sequence", WIDTH]),
            ("sentence_embedding", FLOAT, ["batch", WIDTH]),
        ],
    )


def embeddings(graph, weights):
    words = graph.floats(weights, "embeddings.word_embeddings.weight")
    words = graph.node("Gather", [words, "input_ids"])
    # Positions 0, 1, 2, ...: as many rows of the table as the sequence is long.
    table = graph.floats(weights, "embeddings.position_embeddings.weight")
    length = graph.node("Shape", ["input_ids"], start=1, end=2)
    positions = graph.node("Slice", [table, graph.integers([0]), length, graph.integers([0])])
    # Every sentence is the first of a pair.
    _, types = weights.floats("embeddings.token_type_embeddings.weight")
    types = graph.initializer(FLOAT, [WIDTH], types[:WIDTH])
    total = graph.node("Add", [graph.node("Add", [words, positions]), types])
    return normalise(graph, weights, "embeddings.LayerNorm", total)


def attention_bias(graph):
    """Nothing where the mask is one, and far below every score where it is zero."""
    mask = graph.node("Unsqueeze", ["attention_mask", graph.integers([1, 2])])
    mask = graph.node("Cast", [mask], to=FLOAT)
    return graph.node("Mul", [graph.node("Sub", [graph.constant(1.0), mask]), graph.constant(-1e9)])


def encoder_layer(graph, weights, name, hidden, bias):
    def heads(which, order):
        every = linear(graph, weights, f"{name}.attention.self.{which}", hidden)
        apart = graph.node("Reshape", [every, graph.integers([0, 0, HEADS, WIDTH // HEADS])])
        return graph.node("Transpose", [apart], perm=order)

    query, key = heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1])
    scores = graph.node("MatMul", [query, key])
    scores = graph.node("Div", [scores, graph.constant((WIDTH // HEADS) ** 0.5)])
    shares = graph.node("Softmax", [graph.node("Add", [scores, bias])], axis=-1)
    mixed = graph.node("MatMul", [shares, heads("value", [0, 2, 1, 3])])
    mixed = graph.node("Transpose", [mixed], perm=[0, 2, 1, 3])
    mixed = graph.node("Reshape", [mixed, graph.integers([0, 0, WIDTH])])
    mixed = linear(graph, weights, f"{name}.attention.output.dense", mixed)
    hidden = normalise(
        graph, weights, f"{name}.attention.output.LayerNorm", graph.node("Add", [mixed, hidden])
    )
    wide = gelu(graph, linear(graph, weights, f"{name}.intermediate.dense", hidden))
    narrow = linear(graph, weights, f"{name}.output.dense", wide)
    return normalise(graph, weights, f"{name}.output.LayerNorm", graph.node("Add", [narrow, hidden]))


def linear(graph, weights, name, x):
    (rows, columns), values = weights.floats(f"{name}.weight")
    # PyTorch has outputs by inputs, and a product wants inputs by outputs.
    turned = array.array("f")
    for column in range(columns):
        turned.extend(values[column::columns])
    weight = graph.initializer(FLOAT, [columns, rows], turned)
    return graph.node("Add", [graph.node("MatMul", [x, weight]), graph.floats(weights, f"{name}.bias")])


def normalise(graph, weights, name, x):
    scale, bias = (graph.floats(weights, f"{name}.{part}") for part in ("weight", "bias"))
    return graph.node("LayerNormalization", [x, scale, bias], axis=-1, epsilon=EPSILON)


def gelu(graph, x):
    erf = graph.node("Erf", [graph.node("Div", [x, graph.constant(2**0.5)])])
    scaled = graph.node("Mul", [x, graph.node("Add", [erf, graph.constant(1.0)])])
    return graph.node("Mul", [scaled, graph.constant(0.5)])


def pool(graph, hidden):
    mask = graph.node("Cast", [graph.node("Unsqueeze", ["attention_mask", graph.integers([2])])], to=FLOAT)
    total = graph.node("ReduceSum", [graph.node("Mul", [hidden, mask]), graph.integers([1])], keepdims=0)
    count = graph.node("ReduceSum", [mask, graph.integers([1])], keepdims=0)
    mean = graph.node("Div", [total, graph.node("Max", [count, graph.constant(1e-9)])])
    graph.node("LpNormalization", [mean], output="sentence_embedding", axis=1, p=2)


class Weights:
    """Tensors by name: a length, a header of JSON, and then the numbers."""

    def __init__(self, data):
        (length,) = struct.unpack_from("<Q", data)
        self.header = json.loads(data[8 : 8 + length])
        self.numbers = memoryview(data)[8 + length :]

    def floats(self, name):
        """The shape and the values of a tensor."""
        if name not in self.header or self.header[name]["dtype"] != "F32":
            sys.exit(f"minilm: the weights have no FP32 {name}")
        begin, end = self.header[name]["data_offsets"]
        values = array.array("f")
        values.frombytes(self.numbers[begin:end])
        if sys.byteorder == "big":
            values.byteswap()
        return self.header[name]["shape"], values


class Graph:
    """Collects nodes and constants, and writes them as ONNX's protocol buffers have them."""

    def __init__(self):
        self.nodes, self.initializers, self.constants, self.count = [], [], {}, 0

    def node(self, kind, inputs, output=None, **attributes):
        """Adds a node; its output, by name."""
        output = output or self.fresh()
        fields = [text(1, name) for name in inputs] + [text(2, output), text(3, f"{kind}_{output}"), text(4, kind)]
        fields += [message(5, attribute(name, value)) for name, value in attributes.items()]
        self.nodes.append(message(1, b"".join(fields)))
        return output

    def initializer(self, kind, shape, values):
        name = self.fresh()
        if sys.byteorder == "big":
            values = values[:]
            values.byteswap()
        fields = [number(1, axis) for axis in shape] + [number(2, kind), text(8, name), data(9, values.tobytes())]
        self.initializers.append(message(5, b"".join(fields)))
        return name

    def floats(self, weights, name):
        return self.initializer(FLOAT, *weights.floats(name))

    def integers(self, values):
        return self.shared(INT64, [len(values)], array.array("q", values))

    def constant(self, value):
        return self.shared(FLOAT, [], array.array("f", [value]))

    def shared(self, kind, shape, values):
        """The same constant is written once."""
        key = (kind, tuple(shape), tuple(values))
        if key not in self.constants:
            self.constants[key] = self.initializer(kind, shape, values)
        return self.constants[key]

    def fresh(self):
        self.count += 1
        return f"t{self.count}"

    def model(self, inputs, outputs):
        graph = self.nodes + [text(2, "all-MiniLM-L6-v2")] + self.initializers
        graph += [message(11, tensor(*spec)) for spec in inputs] + [message(12, tensor(*spec)) for spec in outputs]
        opset = text(1, "") + number(2, OPSET)
        fields = [number(1, IR_VERSION), text(2, "fermata"), message(7, b"".join(graph)), message(8, opset)]
        return b"".join(fields)


def tensor(name, kind, shape):
    """What an input or an output is: numbers are lengths, and words name free axes."""
    axes = [number(1, axis) if isinstance(axis, int) else text(2, axis) for axis in shape]
    shape = b"".join(message(1, axis) for axis in axes)
    return text(1, name) + message(2, message(1, number(1, kind) + message(2, shape)))


def attribute(name, value):
    """Floats are type 1, whole numbers 2, lists of them 7."""
    if isinstance(value, float):
        return text(1, name) + varint(2 << 3 | 5) + struct.pack("<f", value) + number(20, 1)
    if isinstance(value, int):
        return text(1, name) + number(3, value) + number(20, 2)
    return text(1, name) + b"".join(number(8, one) for one in value) + number(20, 7)


# Protocol buffers: a field is its number and how it is written (0: a number, 2: bytes with their length before them).


def number(field, value):
    return varint(field << 3) + varint(value)


def data(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value


def text(field, value):
    return data(field, value.encode())


message = data


def varint(value):
    """Seven bits a byte, the lowest first; negative numbers as 64 bits."""
    value &= (1 << 64) - 1
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)
