"""Damaged ONNX files: bits flip, or mutations keep the format, by reflection over its messages."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.registry import graphs, hostile

#: sizes, counts and values at which code tends to fail
NUMBERS = (0, 1, -1, 2, 7, 127, 255, *(2**bits for bits in (8, 15, 16, 20, 31, 32, 40)), 2**31 - 1, -(2**63), 2**63 - 1)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 3.4e38, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "x", "y", "w", "batch", "Loop", "If", "ai.onnx", "com.microsoft", "../x", "a" * 10_000, "\0", "é", "%s%n")
_WHOLE = {
    FieldDescriptor.CPPTYPE_INT32: 32,
    FieldDescriptor.CPPTYPE_INT64: 64,
    FieldDescriptor.CPPTYPE_UINT32: 32,
    FieldDescriptor.CPPTYPE_UINT64: 64,
}


@functools.cache
def seeds() -> list[bytes]:
    """Models to begin with: good ones, odd ones and such as attack."""
    conv = graphs.model(
        [
            graphs.node("Reshape", ["x", "to"], ["r"]),
            graphs.node("Conv", ["r", "k"], ["c"], kernel_shape=[1, 1], pads=[0, 0, 0, 0], strides=[1, 1]),
            graphs.node("Flatten", ["c"], ["f"]),
            graphs.node("MatMul", ["f", "w"], ["z"]),
            graphs.node("Softmax", ["z"], ["y"], axis=-1),
        ],
        constants=[graphs.constant("to", [-1, 1, 2, 2]), graphs.constant("k", [[[[1.0]]]], np.float32)],
    )
    functions = hostile.with_functions(hostile.function("twice", graphs.node("Add", ["a", "a"], ["b"])))
    return [
        graphs.good(),
        graphs.nested(3),
        graphs.mixes_rows(),
        graphs.one_row_only(),
        conv.SerializeToString(),
        functions.SerializeToString(),
        hostile.grows_a_string(turns=8),
    ]


def mutated(seed: int) -> bytes:
    rng = random.Random(seed)
    data = rng.choice(seeds())
    if rng.random() < 0.25:
        return _flip(data, rng)
    model = onnx.ModelProto.FromString(data)
    for _ in range(rng.randint(1, 4)):
        _mutate(model, rng)
    data = model.SerializePartialToString()
    return _flip(data, rng) if rng.random() < 0.1 else data


def _flip(data: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(damaged))
        kind = rng.random()
        if kind < 0.6:
            damaged[at] ^= 1 << rng.randrange(8)
        elif kind < 0.8:
            damaged[at:at] = damaged[at : at + rng.randint(1, 64)]
        elif len(damaged) > 100:
            del damaged[at : at + rng.randint(1, 8)]
    return bytes(damaged)


def repeated(field: FieldDescriptor) -> bool:
    # Protobuf 7 has no label any more, and earlier releases no is_repeated.
    known = getattr(field, "is_repeated", None)
    return field.label == FieldDescriptor.LABEL_REPEATED if known is None else known


def _mutate(model: onnx.ModelProto, rng: random.Random) -> None:
    messages = list(_all(model))
    message = rng.choice(messages)
    field = rng.choice(message.DESCRIPTOR.fields)
    if field.message_type is not None:
        _splice(message, field, [other for other in messages if other.DESCRIPTOR is field.message_type], rng)
    elif repeated(field):
        values = getattr(message, field.name)
        if values and rng.random() < 0.5:
            values[rng.randrange(len(values))] = _value(field, rng)
        elif values and rng.random() < 0.5:
            del values[rng.randrange(len(values))]
        else:
            values.extend(_value(field, rng) for _ in range(rng.choice((1, 1, 2, 9, 300))))
    elif rng.random() < 0.2:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _value(field, rng))


def _all(message: Message, depth: int = 0):
    yield message
    if depth < 12:
        for field, value in message.ListFields():
            if field.message_type is not None:
                for inner in value if repeated(field) else (value,):
                    yield from _all(inner, depth + 1)


def _splice(message: Message, field: FieldDescriptor, others: list[Message], rng: random.Random) -> None:
    """Set a message field to one of its kind from elsewhere in the model or an empty one, or remove it."""
    source = type(rng.choice(others)).FromString(rng.choice(others).SerializePartialToString()) if others else None
    target = getattr(message, field.name)
    if repeated(field):
        if len(target) and rng.random() < 0.3:
            del target[rng.randrange(len(target))]
            return
        target = target.add()
    elif rng.random() < 0.2:
        message.ClearField(field.name)
        return
    else:
        target.SetInParent()
    if source is not None:
        target.CopyFrom(source)


def _value(field: FieldDescriptor, rng: random.Random) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice(field.enum_type.values).number
    if kind in _WHOLE:
        signed = kind in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
        low, high = (-(2 ** (_WHOLE[kind] - 1)), 2 ** (_WHOLE[kind] - 1) - 1) if signed else (0, 2 ** _WHOLE[kind] - 1)
        return min(high, max(low, rng.choice(NUMBERS)))
    if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return rng.choice(FLOATS)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if field.type == FieldDescriptor.TYPE_BYTES:
        return rng.randbytes(rng.choice((0, 1, 4, 48, 5000)))
    return rng.choice(TEXTS)
