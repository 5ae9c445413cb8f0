"""The models that are served, made by onnx.helper with random weights."""

from __future__ import annotations

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

    def session(self) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(str(self.path), options, providers=["CPUExecutionProvider"])


class _Graph:
    """Nodes and weights as they are added; values are named by their number."""

    def __init__(self, seed: int = 0):
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def add(self, op: str, *inputs: str, output: str | None = None, **attributes) -> str:
        name = output or f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def weight(self, *shape: int) -> str:
        # He's initialisation keeps values from growing or vanishing over many layers.
        fan_in = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        values = self._random.standard_normal(shape, dtype=np.float32) * np.float32(np.sqrt(1.0 / fan_in))
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(values, name))
        return name

    def conv(self, value: str, into: int, out: int, size: int = 3, stride: int = 1) -> str:
        pads = [size // 2] * 4
        weights = self.weight(out, into, size, size)
        return self.add("Conv", value, weights, kernel_shape=[size, size], strides=[stride, stride], pads=pads)

    def head(self, value: str, channels: int) -> None:
        pooled = self.add("Flatten", self.add("GlobalAveragePool", value))
        self.add("MatMul", pooled, self.weight(channels, OUTPUTS), output="y")

    def save(self, path: Path, row: tuple[int, ...]) -> Path:
        graph = helper.make_graph(
            self._nodes,
            path.stem,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *row])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", OUTPUTS])],
            self._weights,
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
        return path


def tiny(folder: Path, name: str = "tiny", seed: int = 0) -> Model:
    graph, row = _Graph(seed), (4,)
    hidden = graph.add("Relu", graph.add("MatMul", "x", graph.weight(4, 16)))
    graph.add("MatMul", hidden, graph.weight(16, OUTPUTS), output="y")
    return Model(name, graph.save(folder / f"{name}.onnx", row), row)


def convolutions(folder: Path, name: str, width: float) -> Model:
    """Save a CNN on 3 x 32 x 32 whose cost grows with the square of ``width``.

    It takes about 4 ms a row at a width of 1.
    """
    graph, row = _Graph(), (3, 32, 32)
    value, channels = "x", 3
    for out, stride in ((64, 1), (96, 1), (128, 2), (192, 1), (192, 2)):
        out = max(1, round(width * out))
        value, channels = graph.add("Relu", graph.conv(value, channels, out, stride=stride)), out
    graph.head(value, channels)
    return Model(name, graph.save(folder / f"{name}.onnx", row), row)
