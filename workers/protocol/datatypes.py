"""Datatypes of tensors, by their names in the V2 protocol."""

from __future__ import annotations

import numpy as np

#: V2 datatype, numpy's type (BF16 and BYTES have none), onnxruntime's name for its tensors, and the field of gRPC's
#: InferTensorContents (others are sent raw)
_TABLE = (
    ("BOOL", "?", "bool", "bool_contents"),
    ("UINT8", "<u1", "uint8", "uint_contents"),
    ("UINT16", "<u2", "uint16", "uint_contents"),
    ("UINT32", "<u4", "uint32", "uint_contents"),
    ("UINT64", "<u8", "uint64", "uint64_contents"),
    ("INT8", "<i1", "int8", "int_contents"),
    ("INT16", "<i2", "int16", "int_contents"),
    ("INT32", "<i4", "int32", "int_contents"),
    ("INT64", "<i8", "int64", "int64_contents"),
    ("FP16", "<f2", "float16", ""),
    ("FP32", "<f4", "float", "fp32_contents"),
    ("FP64", "<f8", "double", "fp64_contents"),
    ("BF16", "", "bfloat16", ""),
    ("BYTES", "", "string", "bytes_contents"),
)
NUMPY = {name: np.dtype(code) for name, code, *_ in _TABLE if code}
ITEM_BYTES: dict[str, int] = {**{name: dtype.itemsize for name, dtype in NUMPY.items()}, "BF16": 2}
#: bytes of an element; of BYTES, of a rough string
DATATYPES: dict[str, int] = {**ITEM_BYTES, "BYTES": 16}
ONNXRUNTIME_TYPES = {f"tensor({onnxruntime})": name for name, _, onnxruntime, _ in _TABLE}
CONTENTS = {name: field for name, *_, field in _TABLE if field}
