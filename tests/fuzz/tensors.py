"""Packed tensors have as many bytes as their shape says, and survive JSON."""

from __future__ import annotations

from workers.protocol.datatypes import DATATYPES
from workers.v2.tensors import TensorError, check_packed, check_text, elements, pack, unpack

NAMES = list(DATATYPES)


def seeds() -> list[bytes]:
    found = [bytes([place, 1, 2]) + bytes(16) for place in range(len(NAMES))]
    text = b"".join(len(one).to_bytes(4, "little") + one for one in (b"a", b"", "\u00e9".encode(), b"\xff"))
    place = NAMES.index("BYTES")
    return [
        *found,
        bytes([place, 2, 2]) + text,
        bytes([place, 0, 5]),
        bytes([NAMES.index("FP32"), 1, 1]) + b"\0\0\xc0\x7f",
    ]


def check(data: bytes) -> None:
    if len(data) < 3:
        return
    datatype, shape = NAMES[data[0] % len(NAMES)], [data[1], data[2]]
    packed = data[3:]
    try:
        check_packed(datatype, shape, packed)
        if datatype == "BYTES":
            check_text(packed)
    except TensorError as error:
        assert 0 < len(str(error)) < 500
        return
    if datatype == "BYTES":
        assert len(packed) >= 4 * elements(shape)
    try:
        values = unpack(datatype, shape, packed)
    except TensorError:
        # NaN, infinity and BF16 have no JSON form.
        assert datatype in ("FP16", "FP32", "FP64", "BF16")
        return
    assert len(values) == elements(shape)
    assert pack(datatype, shape, values) == packed
