"""Raw tensors of the V2 binary extension to numpy arrays and back.

Row-major, little-endian; a BYTES element is a u32 length and that many bytes
(https://github.com/kserve/open-inference-protocol, binary tensor data extension).
"""

from __future__ import annotations

import math
import struct
from typing import Any

import ml_dtypes
import numpy as np

from workers.protocol.datatypes import NUMPY
from workers.protocol.frames import Buffer, TensorHeader
from workers.v2.tensors import TensorError, split_bytes

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES: dict[str, np.dtype] = {**NUMPY, "BF16": BF16}
#: V2 datatypes by the type of arrays whose elements are of a fixed size
DATATYPE_OF = {dtype: name for name, dtype in DTYPES.items()}
_LENGTH = struct.Struct("<I")
#: bytes of an array that are rather copied than shared
SMALL = 2048


class CodecError(ValueError):
    """The bytes are not the tensor that their header says."""


def decode(header: TensorHeader, data: memoryview) -> np.ndarray:
    """Decode a tensor; BYTES become objects of ``str``, the others share ``data``.

    Raises:
        CodecError: unknown datatype, a size that does not fit the shape, or BYTES that are not UTF-8.
    """
    name, datatype, shape = header.name, header.datatype, header.shape
    if any(size < 0 for size in shape):
        raise CodecError(f"{name}: shape {list(shape)} must not have negative sizes")
    count = math.prod(shape)
    if datatype == "BYTES":
        try:
            texts = [str(element, "utf-8") for element in split_bytes(data)]
        except TensorError as error:
            raise CodecError(f"{name}: {error}") from None
        except UnicodeDecodeError:
            raise CodecError(f"{name}: elements must be UTF-8 text") from None
        if len(texts) != count:
            raise CodecError(f"{name}: has {len(texts)} BYTES elements; shape {list(shape)} takes {count}")
        return np.fromiter(texts, object, count).reshape(shape)
    dtype = DTYPES.get(datatype)
    if dtype is None:
        raise CodecError(f"{name}: datatype {datatype!r} must be BYTES or one of {', '.join(DTYPES)}")
    if count * dtype.itemsize != len(data):
        raise CodecError(f"{name}: {datatype} {list(shape)} needs {count * dtype.itemsize} bytes, not {len(data)}")
    array = np.frombuffer(data, dtype=dtype)
    # A frame's body begins anywhere; kernels may rely on aligned elements.
    return (array if array.flags.aligned else array.copy()).reshape(shape)


def encode_texts(array: np.ndarray) -> bytes:
    """Encode an array of ``str`` or ``bytes`` as BYTES."""
    parts = []
    for element in array.ravel():
        raw = element.encode() if isinstance(element, str) else bytes(element)
        parts += (_LENGTH.pack(len(raw)), raw)
    return b"".join(parts)


def as_array(value: Any) -> np.ndarray:
    """Return an output as an array; onnxruntime gives some scalars as Python's own."""
    return value if isinstance(value, np.ndarray) else np.array(value, object if isinstance(value, str) else None)


def packed(array: np.ndarray) -> Buffer:
    """Return an array's bytes: a copy if small, else shared where it is contiguous."""
    if array.nbytes <= SMALL:
        return array.tobytes()
    # A memoryview of bytes cannot be cast from bool/half formats; a uint8 view always can.
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memoryview(flat)
