"""The models that are served, made by onnx.helper with random weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

OUTPUTS = 3


@dataclass(frozen=True)
class Model:
    """A model file with one input and one output.

    The input is ``x`` of FP32 [batch, *row], the output ``y`` of FP32 [batch, 3].
    """

    name: str
    path: Path
    row: tuple[int, ...]

    @property
    def signature(self) -> dict:
        inputs = [{"name": "x", "datatype": "FP32", "shape": [-1, *self.row]}]
        return {"inputs": inputs, "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, OUTPUTS]}]}

    def rows(self, count: int, seed: int = 0) -> np.ndarray:
        return np.random.default_rng(seed).standard_normal((count, *self.row), dtype=np.float32)

    def outputs(self, inputs: Sequence[np.ndarray]) -> list[bytes]:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(self.path), options, providers=["CPUExecutionProvider"])
        return [session.run(["y"], {"x": x})[0].tobytes() for x in inputs]


def _save(folder: Path, name: str, row: tuple[int, ...], nodes: list, weights: dict[str, np.ndarray]) -> Model:
    path = folder / f"{name}.onnx"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *row])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", OUTPUTS])
    tensors = [numpy_helper.from_array(values, name) for name, values in weights.items()]
    graph = helper.make_graph(nodes, name, [x], [y], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return Model(name, path, row)


def _weight(draw: np.random.Generator, *shape: int) -> np.ndarray:
    # He's initialisation keeps values from growing or vanishing over many layers.
    fan_in = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
    return draw.standard_normal(shape, dtype=np.float32) * np.float32(np.sqrt(1.0 / fan_in))


def tiny(folder: Path, name: str = "tiny", seed: int = 0) -> Model:
    draw = np.random.default_rng(seed)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["y"]),
    ]
    return _save(folder, name, (4,), nodes, {"w": _weight(draw, 4, 16), "v": _weight(draw, 16, OUTPUTS)})


def convolutions(folder: Path, name: str, width: float) -> Model:
    """Save a CNN on 3 x 32 x 32 whose cost grows with the square of ``width``.

    It takes about 4 ms a row at a width of 1.
    """
    draw, nodes, weights = np.random.default_rng(0), [], {}
    value, channels = "x", 3
    for i, (out, stride) in enumerate(((64, 1), (96, 1), (128, 2), (192, 1), (192, 2))):
        out = max(1, round(width * out))
        weights[f"w{i}"] = _weight(draw, out, channels, 3, 3)
        pads, strides = [1] * 4, [stride, stride]
        nodes.append(helper.make_node("Conv", [value, f"w{i}"], [f"c{i}"], pads=pads, strides=strides))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        value, channels = f"r{i}", out
    weights["v"] = _weight(draw, channels, OUTPUTS)
    nodes.append(helper.make_node("GlobalAveragePool", [value], ["p"]))
    nodes.append(helper.make_node("Flatten", ["p"], ["f"]))
    nodes.append(helper.make_node("MatMul", ["f", "v"], ["y"]))
    return _save(folder, name, (3, 32, 32), nodes, weights)
