"""Recognise a truncated model: protobuf's parser only says that it failed.

Reads the outermost fields of a ``ModelProto`` in the protobuf wire format (https://protobuf.dev/programming-guides/encoding)
by seeking over their contents.
"""

from __future__ import annotations

from typing import BinaryIO

#: field number -> wire type of what a ModelProto may hold (onnx.proto3): 0 a varint, 2 a length and that many bytes
_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}


def missing_bytes(path: str, size: int) -> int:
    """Bytes missing from a model's file that stops inside a field; else 0."""
    with open(path, "rb") as file:
        seen = 0
        while file.tell() < size:
            try:
                tag = _varint(file)
                if tag is None:
                    return 1 if seen else 0
                if _FIELDS.get(tag >> 3) != tag & 7:
                    return 0
                value = _varint(file)
            except ValueError:
                return 0
            if value is None:
                return 1 if seen else 0
            if tag & 7 == 2:
                end = file.tell() + value
                if end > size:
                    return end - size if seen else 0
                file.seek(end)
            seen += 1
    return 0


def _varint(file: BinaryIO) -> int | None:
    """The next number; None at the end. Raises ValueError: too long for a varint."""
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            return None
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise ValueError("not a varint")
