"""Reads a validation set: ``.npz`` with an array an input, and ``labels``."""

from __future__ import annotations

import math
import zipfile

import numpy as np

from workers.protocol.specs import Signature, TensorSpec

from .codec import DTYPES

LABELS = "labels"
#: unpacked; a small file can unpack to anything
MAX_BYTES = 4 * 1024**3
#: of one array of texts, once each is an object of Python's
MAX_TEXT_BYTES = 1024**3


class ValidationError(ValueError):
    """The validation set is invalid; names the array and what it must be."""


def text_bytes(array_shape: tuple[int, ...], width: int) -> int:
    """Return the bytes of memory that an array of texts takes here.

    Each text takes a reference and an object, and its characters twice.
    """
    return math.prod(array_shape) * (8 + 56 + 8 * width)


def read(path: str, signature: Signature) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Inputs by name in the signature's types, and the labels.

    Raises:
        ValidationError: not an ``.npz``, too large, arrays missing or of another form, or rows that do not agree.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > MAX_BYTES:
            raise ValidationError(f"validation: unpacks to {size} bytes, the limit is {MAX_BYTES}")
        with np.load(path, allow_pickle=False) as data:
            missing = [name for name in (*(spec.name for spec in signature.inputs), LABELS) if name not in data]
            if missing:
                raise ValidationError(f"validation: array {missing[0]!r} is missing")
            inputs = {spec.name: _fit(spec, data[spec.name]) for spec in signature.inputs}
            labels = data[LABELS]
    except ValidationError:
        raise
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise ValidationError(f"validation: not a readable .npz without pickles: {error}") from None
    if labels.ndim == 0 or len(labels) == 0:
        raise ValidationError("labels: at least one row is needed")
    for name, array in inputs.items():
        if len(array) != len(labels):
            raise ValidationError(f"{name}: has {len(array)} rows, labels {len(labels)}")
    return inputs, labels


def _fit(spec: TensorSpec, array: np.ndarray) -> np.ndarray:
    if array.ndim != len(spec.shape) or any(
        wanted not in (-1, size) for size, wanted in zip(array.shape, spec.shape, strict=True)
    ):
        raise ValidationError(f"{spec.name}: shape must be {list(spec.shape)}, not {list(array.shape)}")
    if spec.datatype == "BYTES":
        width = array.dtype.itemsize // (4 if array.dtype.kind == "U" else 1)
        if (size := text_bytes(array.shape, width)) > MAX_TEXT_BYTES:
            raise ValidationError(f"{spec.name}: its texts take {size} bytes of memory, the limit is {MAX_TEXT_BYTES}")
        if array.dtype.kind == "S":
            array = np.char.decode(array, "utf-8")
        if array.dtype.kind != "U":
            raise ValidationError(f"{spec.name}: must be text, not {array.dtype}")
        return array.astype(object)
    dtype = DTYPES[spec.datatype]
    # An .npz holds no BF16; what a model takes as such comes as FP32.
    if not np.can_cast(array.dtype, np.float32 if spec.datatype == "BF16" else dtype, "same_kind"):
        raise ValidationError(f"{spec.name}: must be {spec.datatype}, not {array.dtype}")
    return np.ascontiguousarray(array, dtype=dtype)
