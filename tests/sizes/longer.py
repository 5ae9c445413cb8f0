"""A model that takes the longer the longer its sequences are.

The number of rows does not matter.
"""

from __future__ import annotations

from pathlib import Path

from onnx import TensorProto, helper

from tests.executor.harness import save
from workers.protocol.specs import Signature, TensorSpec

SIGNATURE = Signature((TensorSpec("x", "FP32", (-1, -1)),), (TensorSpec("y", "FP32", (-1,)),))


def longer(path: Path) -> Path:
    """Write a model whose run takes as many steps as its sequences are long.

    ``y`` is how long the sequences of the run were that a row was part of. The steps are made one after the other, each
    with some work.
    """
    value, tensor = helper.make_tensor_value_info, helper.make_tensor
    side = 48
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("MatMul", ["h", "weights"], ["m"]),
            helper.make_node("Tanh", ["m"], ["next"]),
        ],
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("go", TensorProto.BOOL, []),
            value("h", TensorProto.FLOAT, [1, side]),
        ],
        [value("on", TensorProto.BOOL, []), value("next", TensorProto.FLOAT, [1, side])],
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["length"], start=1, end=2),
        helper.make_node("Squeeze", ["length"], ["turns"]),
        helper.make_node("Loop", ["turns", "", "begin"], ["end"], body=body),
        helper.make_node("ReduceSum", ["end"], ["sum"], keepdims=0),
        helper.make_node("Mul", ["sum", "zero"], ["nothing"]),
        helper.make_node("Shape", ["x"], ["rows"], start=0, end=1),
        helper.make_node("Cast", ["length"], ["long"], to=TensorProto.FLOAT),
        helper.make_node("Expand", ["long", "rows"], ["each"]),
        helper.make_node("Add", ["each", "nothing"], ["y"]),
    ]
    initializers = [
        tensor("begin", TensorProto.FLOAT, [1, side], [0.1] * side),
        tensor("weights", TensorProto.FLOAT, [side, side], [0.01] * side * side),
        tensor("zero", TensorProto.FLOAT, [], [0.0]),
    ]
    given = [value("x", TensorProto.FLOAT, ["b", "n"])]
    return save(path, nodes, given, [value("y", TensorProto.FLOAT, ["b"])], initializers)
