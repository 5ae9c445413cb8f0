"""Sessions with BF16 tensors, which onnxruntime does not pass as numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime as ort

from workers.protocol.specs import Signature

from .codec import BF16

#: TensorProto.BFLOAT16
_ONNX_TYPE = 16


def possible(signature: Signature) -> bool:
    """Return False for text inputs with BF16 outputs: onnxruntime cannot pass both."""
    text = any(spec.datatype == "BYTES" for spec in signature.inputs)
    return not (text and any(spec.datatype == "BF16" for spec in signature.outputs))


def run(
    session: ort.InferenceSession,
    names: Sequence[str],
    inputs: Mapping[str, np.ndarray],
    options: ort.RunOptions | None,
) -> list[np.ndarray]:
    if any(array.dtype == object for array in inputs.values()):
        given = {name: _value(array) if array.dtype == BF16 else array for name, array in inputs.items()}
        return session.run(names, given, options)
    given = {name: _value(array) for name, array in inputs.items()}
    return [_array(value) for value in session.run_with_ort_values(names, given, options)]


def _value(array: np.ndarray) -> ort.OrtValue:
    if array.dtype == BF16:
        # Not ``ascontiguousarray``, which makes a list of one of a scalar.
        plain = np.asarray(array, order="C").view(np.uint16)
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(plain, _ONNX_TYPE)
    return ort.OrtValue.ortvalue_from_numpy(np.asarray(array, order="C"))


def _array(value: ort.OrtValue) -> np.ndarray:
    kind = value.data_type()
    if kind != "tensor(bfloat16)":
        array = value.numpy()
        return array.astype(object) if kind == "tensor(string)" else array
    size = value.tensor_size_in_bytes()
    # The value owns its memory and goes; a copy stays.
    raw = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(raw, BF16).reshape(value.shape())
