#!/usr/bin/env python3
"""Writes the small models of the tests into its own folder.

Run `pip install onnx`, then this file."""

from pathlib import Path

import onnx
from onnx import TensorProto as T
from onnx import helper as h


def tensors(specs):
    return [h.make_tensor_value_info(name, kind, shape) for name, kind, shape in specs]


def write(name, nodes, inputs, outputs, initializers=()):
    """Outputs are specs, or already infos."""
    outputs = outputs if isinstance(outputs[0], onnx.ValueInfoProto) else tensors(outputs)
    graph = h.make_graph(nodes, name, tensors(inputs), outputs, list(initializers))
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 19)], ir_version=9, producer_name="fermata")
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, Path(__file__).with_name(f"{name}.onnx"))


def identity(name, kind, shape):
    write(name, [h.make_node("Identity", ["x"], ["y"])], [("x", kind, shape)], [("y", kind, shape)])


identity("identity", T.FLOAT, ["batch", 16])
identity("identity_bytes", T.STRING, ["batch", 2])
identity("identity_fp16", T.FLOAT16, ["batch", 4])
identity("identity_bf16", T.BFLOAT16, ["batch", 4])
identity("identity_bool", T.BOOL, ["batch", 3])
# An axis, apart from the batch, whose length the request chooses.
identity("dynamic", T.FLOAT, ["batch", "length"])
# Declares a fixed batch of one.
identity("fixed", T.FLOAT, [1, 3, 2])
# A type that is not in the protocol.
identity("identity_fp8", T.FLOAT8E4M3FN, ["batch", 2])

write(
    "add",
    [h.make_node("Add", ["a", "b"], ["sum"]), h.make_node("Sub", ["a", "b"], ["difference"])],
    [("a", T.INT64, ["batch", 2]), ("b", T.INT64, ["batch", 2])],
    [("sum", T.INT64, ["batch", 2]), ("difference", T.INT64, ["batch", 2])],
)

# The output is the input, without a node in between.
write("passthrough", [], [("x", T.FLOAT, ["batch", 4])], [("x", T.FLOAT, ["batch", 4])])

# Declares an output with the batch, but returns twice as many rows.
write(
    "doubled",
    [h.make_node("Concat", ["x", "x"], ["y"], axis=0)],
    [("x", T.FLOAT, ["batch", 4])],
    [("y", T.FLOAT, ["rows", 4])],
)

# Fails while running if the index is out of range.
write(
    "gather",
    [h.make_node("Gather", ["table", "index"], ["y"])],
    [("index", T.INT64, ["batch", 1])],
    [("y", T.FLOAT, ["batch", 1])],
    [h.make_tensor("table", T.FLOAT, [3], [10.0, 20.0, 30.0])],
)

# A sequence of tensors, which is not in the protocol.
write(
    "sequence",
    [h.make_node("SequenceConstruct", ["x"], ["y"])],
    [("x", T.FLOAT, ["batch", 2])],
    [h.make_tensor_sequence_value_info("y", T.FLOAT, ["batch", 2])],
)

# Requests of different lengths, with a mask of the elements that count. The outputs are the share of
# each element in the sum, and the mean.
write(
    "encoder",
    [
        h.make_node("Mul", ["ids", "attention_mask"], ["counted"]),
        h.make_node("Cast", ["counted"], ["values"], to=T.FLOAT),
        h.make_node("Cast", ["attention_mask"], ["mask"], to=T.FLOAT),
        h.make_node("ReduceSum", ["values", "length"], ["total"]),
        h.make_node("ReduceSum", ["mask", "length"], ["count"]),
        h.make_node("Div", ["values", "total"], ["share"]),
        h.make_node("Div", ["total", "count"], ["mean"]),
    ],
    [("ids", T.INT64, ["batch", "words"]), ("attention_mask", T.INT64, ["batch", "words"])],
    [("share", T.FLOAT, ["batch", "words"]), ("mean", T.FLOAT, ["batch", 1])],
    [h.make_tensor("length", T.INT64, [1], [1])],
)

# The length comes after another axis.
write(
    "channels",
    [h.make_node("Identity", ["x"], ["y"])],
    [("x", T.FLOAT, ["batch", 2, "time"]), ("mask", T.BOOL, ["batch", "time"])],
    [("y", T.FLOAT, ["batch", 2, "time"])],
)

# The mean of all elements, which padding changes.
write(
    "mean",
    [h.make_node("ReduceMean", ["x", "length"], ["y"])],
    [("x", T.FLOAT, ["batch", "length"])],
    [("y", T.FLOAT, ["batch", 1])],
    [h.make_tensor("length", T.INT64, [1], [1])],
)

# Strings that differ in number.
write(
    "words",
    [h.make_node("Identity", ["text"], ["y"])],
    [("text", T.STRING, ["batch", "words"]), ("mask", T.INT32, ["batch", "words"])],
    [("y", T.STRING, ["batch", "words"])],
)

# Declares an output as long as the input, but returns twice the length.
write(
    "stretched",
    [h.make_node("Concat", ["x", "x"], ["y"], axis=1)],
    [("x", T.INT64, ["batch", "words"]), ("mask", T.INT64, ["batch", "words"])],
    [("y", T.INT64, ["batch", "words"])],
)
