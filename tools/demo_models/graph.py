"""Writes the demo's ONNX graphs from trained weights, with ``onnx.helper`` alone.

A *committee* looks at an image through several shifted views and with several members; the class probabilities of all
views and members are averaged. Cost grows with views times members, and so does accuracy. Every graph has the batch
dimension first and free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 9
CLASSES = 10


@dataclass(frozen=True)
class Layer:
    """A convolution ([out, in, k, k], k odd) with "same" padding and ReLU, and max pooling unless ``pool`` is 1."""

    weight: np.ndarray
    bias: np.ndarray
    pool: int = 1


@dataclass(frozen=True)
class TrainedNet:
    """Convolutions, average pooling to 4x4 and a dense layer; ``side``: of the enlarged image, pixels."""

    side: int
    layers: tuple[Layer, ...]
    dense_weight: np.ndarray
    dense_bias: np.ndarray


class _Graph:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self._count = 0

    def constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def weight(self, value: np.ndarray) -> str:
        """A float constant, stored as FP16, which halves the file; onnxruntime casts it once, at the load."""
        return self.add("Cast", self.constant(value.astype(np.float16)), to=TensorProto.FLOAT)

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def add(self, kind: str, *inputs: str, **attributes) -> str:
        self._count += 1
        output = f"t{self._count}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def views(self, image: str, side: int, shifts: Sequence[tuple[int, int]]) -> str:
        """Enlarge an image [n, 1, 8, 8], and look at it under each shift: [views*n, 1, side, side]."""
        scale = self.constant(np.array([1, 1, side / 8, side / 8], np.float32))
        large = self.add("Resize", image, "", scale, mode="linear", coordinate_transformation_mode="half_pixel")
        reach = max(max(abs(dy), abs(dx)) for dy, dx in shifts)
        if reach == 0:
            return large
        padded = self.add("Pad", large, self.ints(0, 0, reach, reach, 0, 0, reach, reach))
        seen = []
        for y, x in ((reach + dy, reach + dx) for dy, dx in shifts):
            seen.append(self.add("Slice", padded, self.ints(y, x), self.ints(y + side, x + side), self.ints(2, 3)))
        return self.add("Concat", *seen, axis=0) if len(seen) > 1 else seen[0]

    def member(self, net: TrainedNet, views: str, count: int) -> str:
        """Class probabilities [n, 10] of one member, averaged over its views."""
        tensor, side = views, net.side
        for layer in net.layers:
            half = layer.weight.shape[2] // 2
            weights = (self.weight(layer.weight), self.constant(layer.bias))
            tensor = self.add("Relu", self.add("Conv", tensor, *weights, pads=[half] * 4))
            if layer.pool > 1:
                tensor = self.add("MaxPool", tensor, kernel_shape=[layer.pool] * 2, strides=[layer.pool] * 2)
                side //= layer.pool
        tensor = self.add("AveragePool", tensor, kernel_shape=[side // 4] * 2, strides=[side // 4] * 2)
        tensor = self.add("Flatten", tensor)
        weights = (self.weight(net.dense_weight), self.constant(net.dense_bias))
        tensor = self.add("Softmax", self.add("Gemm", tensor, *weights, transB=1), axis=1)
        if count > 1:
            tensor = self.add("Reshape", tensor, self.ints(count, -1, CLASSES))
            tensor = self.add("ReduceMean", tensor, axes=[0], keepdims=0)
        return tensor

    def committee(self, image: str, members: Sequence[TrainedNet], shifts: Sequence[tuple[int, int]]) -> str:
        seen = {side: self.views(image, side, shifts) for side in sorted({net.side for net in members})}
        votes = [self.member(net, seen[net.side], len(shifts)) for net in members]
        return self.add("Mean", *votes) if len(votes) > 1 else votes[0]


def digit_reader(members: Sequence[TrainedNet], shifts: Sequence[tuple[int, int]]) -> onnx.ModelProto:
    """``image``, FP32 [-1, 1, 8, 8] (0 to 1), to ``scores``, FP32 [-1, 10], the digits' probabilities."""
    graph = _Graph()
    scores = graph.committee("image", members, shifts)
    return _model(graph, scores, "digits", (1, 8, 8), CLASSES)


def meter_reader(members: Sequence[TrainedNet], shifts: Sequence[tuple[int, int]]) -> onnx.ModelProto:
    """``image``, FP32 [-1, 1, 8, 16], two digits side by side, to ``scores``, FP32 [-1, 100], of 00 to 99.

    Both digits pass the same committee in one batch; a number's probability is the product of its digits'.
    """
    graph = _Graph()
    left = graph.add("Slice", "image", graph.ints(0), graph.ints(8), graph.ints(3))
    right = graph.add("Slice", "image", graph.ints(8), graph.ints(16), graph.ints(3))
    votes = graph.committee(graph.add("Concat", left, right, axis=0), members, shifts)
    pairs = graph.add("Reshape", votes, graph.ints(2, -1, CLASSES))
    tens = graph.add("Unsqueeze", graph.add("Gather", pairs, graph.constant(np.int64(0)), axis=0), graph.ints(2))
    units = graph.add("Unsqueeze", graph.add("Gather", pairs, graph.constant(np.int64(1)), axis=0), graph.ints(1))
    scores = graph.add("Reshape", graph.add("Mul", tens, units), graph.ints(-1, CLASSES * CLASSES))
    return _model(graph, scores, "meters", (1, 8, 16), CLASSES * CLASSES)


def _model(graph: _Graph, scores: str, name: str, shape: tuple[int, ...], classes: int) -> onnx.ModelProto:
    graph.nodes.append(helper.make_node("Identity", [scores], ["scores"]))
    proto = helper.make_graph(
        graph.nodes,
        name,
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", *shape])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", classes])],
        [numpy_helper.from_array(value, key) for key, value in graph.constants.items()],
    )
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model, full_check=True)
    return model
