"""Models without a batch dimension, and with rows that influence each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper

from workers.protocol.specs import Signature, TensorSpec

F, LONG, B, S = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
_V2 = {F: "FP32", LONG: "INT64", B: "BOOL", S: "BYTES"}
_VERSIONS = {"opset_imports": [helper.make_opsetid("", 18)], "ir_version": 8}
node = helper.make_node


class Example(NamedTuple):
    """A model, its application's signature, and queries by the client's number."""

    proto: onnx.ModelProto
    signature: Signature
    query: Callable[[int], dict[str, np.ndarray]]


def model(nodes, inputs, outputs, constants=()) -> onnx.ModelProto:
    """``inputs`` and ``outputs``: (name, type, shape); ``constants``: (name, value)."""
    infos = ([helper.make_tensor_value_info(*one) for one in some] for some in (inputs, outputs))
    graph = helper.make_graph(nodes, "g", *infos, [numpy_helper.from_array(np.asarray(v), n) for n, v in constants])
    return helper.make_model(graph, **_VERSIONS)


def _example(text: str, query, batch: bool, constants=()) -> Example:
    graph = onnx.parser.parse_graph(text)
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants)

    def spec(value: onnx.ValueInfoProto) -> TensorSpec:
        tensor = value.type.tensor_type
        sizes = tuple(size.dim_value or -1 for size in tensor.shape.dim)
        return TensorSpec(value.name, _V2[tensor.elem_type], sizes if batch else (-1, *sizes))

    signature = Signature(tuple(map(spec, graph.input)), tuple(map(spec, graph.output)), batch)
    return Example(helper.make_model(graph, **_VERSIONS), signature, query)


def _random(number: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(number).standard_normal(shape).astype(np.float32)


def unbatched() -> dict[str, Example]:
    found = {
        "ctc": (
            "g (float[N, 6, 4] image) => (float[6, N, 4] logits) { logits = Transpose <perm = [1, 0, 2]> (image) }",
            lambda n: {"image": _random(n, 1 + n % 2, 6, 4)},
        ),
        "pitch": (
            "g (float[1, S] audio, float low) => (float[1, S] y) { y = Max(audio, low) }",
            lambda n: {"audio": _random(n, 1, 2 + n % 3), "low": np.array(n / 10, np.float32)},
        ),
        "score": (
            "g (float[1, 4] x) => (float score) { score = ReduceMean <keepdims = 0> (x) }",
            lambda n: {"x": _random(n, 1, 4)},
        ),
        "state": (
            """g (float[1, 3] x, float[2, 1, 3] h) => (float[1, 3] y, float[2, 1, 3] hn) <int64[2] axes = {0, 1}> {
                s = ReduceSum <keepdims = 0> (h, axes)
                y = Add(x, s)
                hn = Add(h, h)
            }""",
            lambda n: {"x": _random(n, 1, 3), "h": _random(n + 100, 2, 1, 3)},
        ),
        "voice": (
            """g (int64[N, L] text, float[3] scales) => (float[N, L] audio) <int64[1] axes = {0}> {
                t = Cast <to = 1> (text)
                s = ReduceSum <keepdims = 0> (scales, axes)
                audio = Mul(t, s)
            }""",
            lambda n: {"text": np.full((1, 1 + n % 4), n, np.int64), "scales": _random(n, 3)},
        ),
        "all": (
            "g (float[N, 4] x) => (float[1, 4] y) <int64[1] axes = {0}> { y = ReduceMean <keepdims = 1> (x, axes) }",
            lambda n: {"x": _random(n, 1 + n % 3, 4)},
        ),
        "detector": (
            """g (float[1, boxes, 4] boxes, float[1, 1, boxes] scores) => (float[objects, 4] found)
            <int64[1] most = {10}, float[1] iou = {0.5}, float[1] least = {0.5}, int64[1] last = {2},
             int64[1] one = {1}, int64[1] zero = {0}> {
                picked = NonMaxSuppression(boxes, scores, most, iou, least)
                places = Gather <axis = 1> (picked, last)
                flat = Squeeze(places, one)
                all = Squeeze(boxes, zero)
                found = Gather <axis = 0> (all, flat)
            }""",
            # 0 to 4 objects, far apart.
            lambda n: {
                "boxes": np.array([[[n, 10 * i, n + 1, 10 * i + 1] for i in range(5)]], np.float32),
                "scores": np.array([[[0.9 if i < n % 5 else 0.1 for i in range(5)]]], np.float32),
            },
        ),
        "flags": (
            "g (bool on, string word) => (bool off, string same) { off = Not(on) same = Identity(word) }",
            lambda n: {"on": np.array(n % 2 == 0), "word": np.array(f"wort {n}", object)},
        ),
    }
    return {name: _example(*parts, batch=False) for name, parts in found.items()}


def dependent() -> dict[str, Example]:
    """Models of rows that influence each other; queries of 1 to 3 rows."""
    sums = "g ({0}[N, 2] x) => ({0}[N, 2] y) <int64 axis = {{0}}> {{ y = CumSum(x, axis) }}"
    most = """g (float[N, 2] x) => (float[N, 2] y) <int64[1] axis = {0}> {
        most = ReduceMax <keepdims = 1> (x, axis)
        less = Sub(x, most)
        y = Add(less, x)
    }"""
    time = """g (float[N, 2] x) => (float[N, 3] y) <int64[1] one = {1}, int64[2] both = {1, 2}> {
        t = Unsqueeze(x, one)
        Y = RNN <hidden_size = 3> (t, W, R)
        y = Squeeze(Y, both)
    }"""
    weights = [("W", _random(1, 1, 3, 2)), ("R", _random(2, 1, 3, 3))]

    def rows(n: int) -> dict[str, np.ndarray]:
        return {"x": _random(n, 1 + n % 3, 2)}

    return {
        "sum": _example(sums.format("float"), rows, True),
        "counts": _example(sums.format("int64"), lambda n: {"x": np.full((1 + n % 3, 2), n, np.int64)}, True),
        "most": _example(most, rows, True),
        "time": _example(time, rows, True, weights),
    }
