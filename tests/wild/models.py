"""Small models of the kinds that people bring: every datatype, sequences, images, a fixed batch size of one."""

from __future__ import annotations

from pathlib import Path

from onnx import TensorProto as T
from onnx import helper

from tests.executor.harness import save
from workers.protocol.datatypes import DATATYPES as ALL
from workers.protocol.specs import Signature, TensorSpec

ONNX = {
    "BOOL": T.BOOL,
    "UINT8": T.UINT8,
    "UINT16": T.UINT16,
    "UINT32": T.UINT32,
    "UINT64": T.UINT64,
    "INT8": T.INT8,
    "INT16": T.INT16,
    "INT32": T.INT32,
    "INT64": T.INT64,
    "FP16": T.FLOAT16,
    "FP32": T.FLOAT,
    "FP64": T.DOUBLE,
    "BF16": T.BFLOAT16,
    "BYTES": T.STRING,
}
#: all that one model may take and give; BYTES have one of their own
DATATYPES = tuple(datatype for datatype in ALL if datatype != "BYTES")
_value = helper.make_tensor_value_info

EVERY = Signature(
    tuple(TensorSpec(d.lower(), d, (-1, 2)) for d in DATATYPES),
    tuple(TensorSpec("out_" + d.lower(), d, (-1, 2)) for d in DATATYPES),
)


def every(path: Path) -> Path:
    """Each datatype's input but text as it came."""
    nodes = [helper.make_node("Identity", [d.lower()], ["out_" + d.lower()]) for d in DATATYPES]
    inputs = [_value(d.lower(), ONNX[d], ["batch", 2]) for d in DATATYPES]
    outputs = [_value("out_" + d.lower(), ONNX[d], ["batch", 2]) for d in DATATYPES]
    return save(path, nodes, inputs, outputs)


TOKENS = Signature(
    (TensorSpec("ids", "INT64", (-1, -1)), TensorSpec("mask", "INT64", (-1, -1))),
    (TensorSpec("masked", "INT64", (-1, -1)), TensorSpec("total", "INT64", (-1,)), TensorSpec("width", "INT64", (-1,))),
)


def tokens(path: Path, out: str = "seq") -> Path:
    """Write a model of padded sequences.

    ``masked`` = ids * mask, ``total`` its sum over the sequence, and ``width``, which says how long the sequences of
    the run were that a row was part of. ``out`` is the name of its open dimension.
    """
    nodes = [
        helper.make_node("Mul", ["ids", "mask"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "one"], ["total"], keepdims=0),
        helper.make_node("Shape", ["ids"], ["length"], start=1, end=2),
        helper.make_node("Shape", ["ids"], ["rows"], start=0, end=1),
        helper.make_node("Expand", ["length", "rows"], ["width"]),
    ]
    return save(
        path,
        nodes,
        [_value("ids", T.INT64, ["batch", "seq"]), _value("mask", T.INT64, ["batch", "seq"])],
        [
            _value("masked", T.INT64, ["batch", out]),
            _value("total", T.INT64, ["batch"]),
            _value("width", T.INT64, ["batch"]),
        ],
        [helper.make_tensor("one", T.INT64, [1], [1])],
    )


IMAGES = Signature((TensorSpec("x", "FP32", (-1, 3, -1, -1)),), (TensorSpec("y", "FP32", (-1, 3)),))


def images(path: Path) -> Path:
    """``y``: the mean of each channel."""
    nodes = [helper.make_node("ReduceMean", ["x"], ["y"], axes=[2, 3], keepdims=0)]
    inputs = [_value("x", T.FLOAT, ["batch", 3, "height", "width"])]
    return save(path, nodes, inputs, [_value("y", T.FLOAT, ["batch", 3])])


VECTORS = Signature((TensorSpec("x", "FP32", (-1, -1)),), (TensorSpec("y", "FP32", (-1, -1)),))


def negative(path: Path) -> Path:
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    return save(path, nodes, [_value("x", T.FLOAT, ["b", "n"])], [_value("y", T.FLOAT, ["b", "n"])])


#: outputs that are inputs, constants, and the same value twice
PASSED = {
    "FP32": Signature(
        (TensorSpec("x", "FP32", (-1, 4)),), tuple(TensorSpec(n, "FP32", (-1, 4)) for n in ("y", "x", "z"))
    ),
    "BOOL": Signature((TensorSpec("x", "BOOL", (-1, 2)),), tuple(TensorSpec(n, "BOOL", (-1, 2)) for n in ("y", "x"))),
}


def passed(path: Path, datatype: str) -> Path:
    """``y`` = -x or not x, ``x`` as it came, and ``z`` = y."""
    signature = PASSED[datatype]
    nodes = [helper.make_node("Not" if datatype == "BOOL" else "Neg", ["x"], ["y"])]
    if datatype != "BOOL":
        nodes.append(helper.make_node("Identity", ["y"], ["z"]))
    made = [
        _value(spec.name, ONNX[datatype], ["b", *spec.shape[1:]]) for spec in (*signature.inputs, *signature.outputs)
    ]
    return save(path, nodes, made[:1], made[1:])


SINGLE = Signature((TensorSpec("x", "FP32", (-1, 4)),), (TensorSpec("y", "FP32", (-1, 4)),))


def single(path: Path, rows: int | str = 1) -> Path:
    """``y`` = -x, for a number of rows that is fixed, or any by a name."""
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    return save(path, nodes, [_value("x", T.FLOAT, [rows, 4])], [_value("y", T.FLOAT, [rows, 4])])


TEXT = Signature((TensorSpec("text", "BYTES", (-1, 1)),), (TensorSpec("again", "BYTES", (-1, 1)),))


def text(path: Path) -> Path:
    nodes = [helper.make_node("Identity", ["text"], ["again"])]
    return save(path, nodes, [_value("text", T.STRING, ["b", 1])], [_value("again", T.STRING, ["b", 1])])


def tokens_of(path: Path, length: int) -> Path:
    """As :func:`tokens`, but a sum over weights of its own takes one length only."""
    nodes = [
        helper.make_node("Mul", ["ids", "mask"], ["masked"]),
        helper.make_node("Mul", ["masked", "weights"], ["weighted"]),
        helper.make_node("ReduceSum", ["weighted", "one"], ["total"], keepdims=0),
        helper.make_node("Identity", ["total"], ["width"]),
    ]
    return save(
        path,
        nodes,
        [_value("ids", T.INT64, ["batch", "seq"]), _value("mask", T.INT64, ["batch", "seq"])],
        [
            _value("masked", T.INT64, ["batch", "seq"]),
            _value("total", T.INT64, ["batch"]),
            _value("width", T.INT64, ["batch"]),
        ],
        [
            helper.make_tensor("one", T.INT64, [1], [1]),
            helper.make_tensor("weights", T.INT64, [1, length], [1] * length),
        ],
    )


NUMBERS = ("FP16", "FP32", "FP64", "BF16")
RECIPROCALS = Signature(
    (TensorSpec("x", "FP32", (-1, -1)),),
    (*(TensorSpec("y_" + d.lower(), d, (-1, -1)) for d in NUMBERS), TensorSpec("size", "INT64", (-1, -1))),
)


def reciprocals(path: Path) -> Path:
    """1/x in each of :data:`NUMBERS`, NaN at 0, and x as a whole number."""
    nodes = [
        helper.make_node("Div", ["x", "x"], ["one"]),
        helper.make_node("Div", ["one", "x"], ["y_fp32"]),
        *(helper.make_node("Cast", ["y_fp32"], ["y_" + d.lower()], to=ONNX[d]) for d in NUMBERS if d != "FP32"),
        helper.make_node("Cast", ["x"], ["size"], to=T.INT64),
    ]
    outputs = [_value(f"y_{d.lower()}", ONNX[d], ["b", "n"]) for d in NUMBERS]
    return save(path, nodes, [_value("x", T.FLOAT, ["b", "n"])], [*outputs, _value("size", T.INT64, ["b", "n"])])


def text_beside_bf16(path: Path) -> Path:
    """Text and a BF16 tensor as they came."""
    nodes = [helper.make_node("Identity", ["text"], ["again"]), helper.make_node("Identity", ["bf16"], ["out_bf16"])]
    return save(
        path,
        nodes,
        [_value("text", T.STRING, ["b", 1]), _value("bf16", T.BFLOAT16, ["b", 2])],
        [_value("again", T.STRING, ["b", 1]), _value("out_bf16", T.BFLOAT16, ["b", 2])],
    )


def scalar(path: Path) -> Path:
    """One number for the whole batch."""
    nodes = [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)]
    return save(path, nodes, [_value("x", T.FLOAT, ["b", 4])], [_value("y", T.FLOAT, [])])
