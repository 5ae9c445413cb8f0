"""Models without a batch dimension, and with rows that influence each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from workers.protocol.specs import Signature, TensorSpec

F, LONG, B, S = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
_V2 = {F: "FP32", LONG: "INT64", B: "BOOL", S: "BYTES"}
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
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _example(nodes, inputs, outputs, constants, query, batch: bool) -> Example:
    def spec(name, kind, shape) -> TensorSpec:
        sizes = tuple(size if isinstance(size, int) else -1 for size in shape)
        return TensorSpec(name, _V2[kind], sizes if batch else (-1, *sizes))

    signature = Signature(tuple(spec(*one) for one in inputs), tuple(spec(*one) for one in outputs), batch)
    return Example(model(nodes, inputs, outputs, constants), signature, query)


def _random(number: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(number).standard_normal(shape).astype(np.float32)


def unbatched() -> dict[str, Example]:
    zero, one = np.array([0], np.int64), np.array([1], np.int64)
    found = {
        "ctc": (
            [node("Transpose", ["image"], ["logits"], perm=[1, 0, 2])],
            [("image", F, ["N", 6, 4])],
            [("logits", F, [6, "N", 4])],
            (),
            lambda n: {"image": _random(n, 1 + n % 2, 6, 4)},
        ),
        "pitch": (
            [node("Max", ["audio", "low"], ["y"])],
            [("audio", F, [1, "S"]), ("low", F, [])],
            [("y", F, [1, "S"])],
            (),
            lambda n: {"audio": _random(n, 1, 2 + n % 3), "low": np.array(n / 10, np.float32)},
        ),
        "score": (
            [node("ReduceMean", ["x"], ["score"], keepdims=0)],
            [("x", F, [1, 4])],
            [("score", F, [])],
            (),
            lambda n: {"x": _random(n, 1, 4)},
        ),
        "state": (
            [
                node("ReduceSum", ["h", "axes"], ["s"], keepdims=0),
                node("Add", ["x", "s"], ["y"]),
                node("Add", ["h", "h"], ["hn"]),
            ],
            [("x", F, [1, 3]), ("h", F, [2, 1, 3])],
            [("y", F, [1, 3]), ("hn", F, [2, 1, 3])],
            [("axes", np.array([0, 1], np.int64))],
            lambda n: {"x": _random(n, 1, 3), "h": _random(n + 100, 2, 1, 3)},
        ),
        "voice": (
            [
                node("Cast", ["text"], ["t"], to=F),
                node("ReduceSum", ["scales", "axes"], ["s"], keepdims=0),
                node("Mul", ["t", "s"], ["audio"]),
            ],
            [("text", LONG, ["N", "L"]), ("scales", F, [3])],
            [("audio", F, ["N", "L"])],
            [("axes", zero)],
            lambda n: {"text": np.full((1, 1 + n % 4), n, np.int64), "scales": _random(n, 3)},
        ),
        "all": (
            [node("ReduceMean", ["x", "axes"], ["y"], keepdims=1)],
            [("x", F, ["N", 4])],
            [("y", F, [1, 4])],
            [("axes", zero)],
            lambda n: {"x": _random(n, 1 + n % 3, 4)},
        ),
        "detector": (
            [
                node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["picked"]),
                node("Gather", ["picked", "last"], ["places"], axis=1),
                node("Squeeze", ["places", "one"], ["flat"]),
                node("Squeeze", ["boxes", "zero"], ["all"]),
                node("Gather", ["all", "flat"], ["found"], axis=0),
            ],
            [("boxes", F, [1, "boxes", 4]), ("scores", F, [1, 1, "boxes"])],
            [("found", F, ["objects", 4])],
            [
                ("most", np.array([10], np.int64)),
                ("iou", np.array([0.5], np.float32)),
                ("least", np.array([0.5], np.float32)),
                ("last", np.array([2], np.int64)),
                ("one", one),
                ("zero", zero),
            ],
            # 0 to 4 objects, far apart.
            lambda n: {
                "boxes": np.array([[[n, 10 * i, n + 1, 10 * i + 1] for i in range(5)]], np.float32),
                "scores": np.array([[[0.9 if i < n % 5 else 0.1 for i in range(5)]]], np.float32),
            },
        ),
        "flags": (
            [node("Not", ["on"], ["off"]), node("Identity", ["word"], ["same"])],
            [("on", B, []), ("word", S, [])],
            [("off", B, []), ("same", S, [])],
            (),
            lambda n: {"on": np.array(n % 2 == 0), "word": np.array(f"wort {n}", object)},
        ),
    }
    return {name: _example(*parts, batch=False) for name, parts in found.items()}


def dependent() -> dict[str, Example]:
    """Models of rows that influence each other; queries of 1 to 3 rows."""
    x, y = [("x", F, ["N", 2])], [("y", F, ["N", 2])]
    whole = [("x", LONG, ["N", 2])], [("y", LONG, ["N", 2])]
    axis, rows = ("axis", np.array([0], np.int64)), lambda n: {"x": _random(n, 1 + n % 3, 2)}
    scalar = ("axis", np.array(0, np.int64))
    weights = [
        ("W", _random(1, 1, 3, 2)),
        ("R", _random(2, 1, 3, 3)),
        ("one", np.array([1], np.int64)),
        ("both", np.array([1, 2], np.int64)),
    ]
    found = {
        "sum": ([node("CumSum", ["x", "axis"], ["y"])], x, y, [scalar], rows),
        "counts": (
            [node("CumSum", ["x", "axis"], ["y"])],
            *whole,
            [scalar],
            lambda n: {"x": np.full((1 + n % 3, 2), n, np.int64)},
        ),
        "most": (
            [
                node("ReduceMax", ["x", "axis"], ["most"], keepdims=1),
                node("Sub", ["x", "most"], ["less"]),
                node("Add", ["less", "x"], ["y"]),
            ],
            x,
            y,
            [axis],
            rows,
        ),
        "time": (
            [
                node("Unsqueeze", ["x", "one"], ["t"]),
                node("RNN", ["t", "W", "R"], ["Y"], hidden_size=3),
                node("Squeeze", ["Y", "both"], ["y"]),
            ],
            x,
            [("y", F, ["N", 3])],
            weights,
            rows,
        ),
    }
    return {name: _example(*parts, batch=True) for name, parts in found.items()}
