"""Tensors of the V2 protocol as JSON lists and as packed bytes.

The layout of packed bytes is the binary extension's: row-major, little-endian; BYTES elements with a u32 length before
each. Conversion is strict: values that do not fit raise :class:`TensorError`, whose text names the limit, instead of
being rounded or wrapped.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence

import numpy as np

from workers.protocol.datatypes import ITEM_BYTES, NUMPY
from workers.protocol.frames import Buffer

_U32 = struct.Struct("<I")
_WAY_OUT = "ask for binary data (the output's parameters.binary_data: true)"


class TensorError(ValueError):
    """A tensor's data does not fit its datatype or shape."""


class NoJsonForm(TensorError):
    """A tensor is whole, and JSON has no form for some of its values."""


def elements(shape: Sequence[int]) -> int:
    return math.prod(shape)


def check_packed(datatype: str, shape: Sequence[int], data: Buffer) -> None:
    count, size = elements(shape), len(data)
    item = ITEM_BYTES.get(datatype)
    if item is not None:
        if size != count * item:
            raise TensorError(f"has {size} bytes; shape {list(shape)} of {datatype} takes {count * item}")
        if datatype == "BOOL" and np.any(np.frombuffer(data, np.uint8) > 1):
            raise TensorError("BOOL elements must be the bytes 0 or 1")
        return
    if count * _U32.size > size:
        raise TensorError(f"has {size} bytes; shape {list(shape)} of BYTES takes at least {count * _U32.size}")
    found = 0
    for _ in split_bytes(data):
        found += 1
        if found > count:
            raise TensorError(f"has more than the {count} BYTES elements that shape {list(shape)} takes")
    if found != count:
        raise TensorError(f"has {found} BYTES elements; shape {list(shape)} takes {count}")


def check_text(data: Buffer) -> None:
    """Check that every element of packed BYTES is UTF-8, as ONNX strings must be."""
    if bytes(data).isascii():
        return
    for place, element in enumerate(split_bytes(data)):
        try:
            str(element, "utf-8")
        except UnicodeDecodeError:
            raise TensorError(f"element {place} of BYTES is not UTF-8; models take text") from None


def split_bytes(data: Buffer):
    offset, size = 0, len(data)
    while offset < size:
        if offset + 4 > size:
            raise TensorError(f"BYTES element at byte {offset} has no whole length (4 bytes, little-endian)")
        (length,) = _U32.unpack_from(data, offset)
        offset += 4
        if offset + length > size:
            raise TensorError(f"BYTES element at byte {offset} is {length} bytes long, {size - offset} are left")
        yield data[offset : offset + length]
        offset += length


def flatten(data: object, shape: Sequence[int]) -> list:
    """JSON data, flat or nested as ``shape`` says, as a flat list."""
    if not isinstance(data, list):
        if not shape:
            return [data]
        raise TensorError("must be a list")
    count = elements(shape)
    if not data or not isinstance(data[0], list):
        if len(data) != count:
            raise TensorError(f"has {len(data)} elements; shape {list(shape)} takes {count}")
        return data
    if not shape:
        raise TensorError("is nested; shape [] takes a single element")
    level = data
    if len(level) != shape[0]:
        raise TensorError(f"has {len(level)} rows; shape {list(shape)} takes {shape[0]}")
    for depth, size in enumerate(shape[1:], 1):
        if any(type(part) is not list or len(part) != size for part in level):
            raise TensorError(f"is nested, but not as shape {list(shape)}: each list of level {depth} takes {size}")
        level = list(itertools.chain.from_iterable(level))
    return level


def pack(datatype: str, shape: Sequence[int], data: object) -> bytes:
    """JSON data (see :func:`flatten`) as packed bytes.

    Raises:
        TensorError: wrong element types, out of the datatype's range, or not as many as the shape takes.
    """
    flat = flatten(data, shape)
    kinds = set(map(type, flat))
    if list in kinds:
        raise TensorError(f"mixes lists and values, or is nested deeper than shape {list(shape)}")
    if datatype == "BYTES":
        _only(kinds, {str}, "BYTES", "strings")
        encoded = [text.encode() for text in flat]
        return b"".join(itertools.chain.from_iterable((_U32.pack(len(item)), item) for item in encoded))
    if datatype == "BF16":
        raise TensorError("BF16 has no JSON form; send it as binary data")
    dtype = NUMPY[datatype]
    if dtype.kind == "b":
        _only(kinds, {bool}, datatype, "true or false")
    elif dtype.kind in "iu":
        _only(kinds, {int}, datatype, "whole numbers")
    else:
        _only(kinds, {int, float}, datatype, "numbers")
    try:
        with np.errstate(over="ignore"):
            array = np.array(flat, dtype)
    except OverflowError:
        raise TensorError(_range(datatype)) from None
    if dtype.kind == "f" and not np.isfinite(array).all():
        raise TensorError(_range(datatype))
    return array.tobytes()


def _only(kinds: set[type], allowed: set[type], datatype: str, words: str) -> None:
    wrong = kinds - allowed
    if wrong:
        names = {str: "strings", bool: "booleans", type(None): "null", float: "fractions", int: "numbers"}
        found = ", ".join(sorted(names.get(kind, "objects") for kind in wrong))
        raise TensorError(f"of {datatype} must be {words}; it has {found}")


def _range(datatype: str) -> str:
    dtype = NUMPY[datatype]
    info = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return f"of {datatype} must be from {info.min} to {info.max}"


def unpack(datatype: str, shape: Sequence[int], data: Buffer, null: bool = False) -> list:
    """Packed bytes as a flat JSON list.

    Args:
        null: give None for NaN and infinities.

    Raises:
        NoJsonForm: NaN, infinity, BF16, or BYTES that are not UTF-8; the caller may ask for binary data instead.
        TensorError: bytes that do not fit the shape.
    """
    check_packed(datatype, shape, data)
    if datatype == "BYTES":
        try:
            return [bytes(part).decode() for part in split_bytes(data)]
        except UnicodeDecodeError:
            raise NoJsonForm(f"has BYTES elements that are not UTF-8; {_WAY_OUT}") from None
    if datatype == "BF16":
        raise NoJsonForm(f"BF16 has no JSON form; {_WAY_OUT}")
    array = np.frombuffer(data, NUMPY[datatype])
    values = array.tolist()
    if array.dtype.kind == "f" and not (finite := np.isfinite(array)).all():
        if not null:
            raise NoJsonForm(
                f"has NaN or infinity, which have no JSON form; {_WAY_OUT}, or have the application answer with null "
                '(its setting non_finite: "null")'
            )
        for place in np.flatnonzero(~finite).tolist():
            values[place] = None
    return values
