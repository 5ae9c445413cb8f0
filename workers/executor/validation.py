"""Reads a validation set: ``.npz`` with an array an input, and ``labels``."""

from __future__ import annotations

import contextlib
import math
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

import numpy as np

from workers.protocol.specs import Signature, TensorSpec

from .codec import DTYPES

LABELS = "labels"
#: rows that trial runs take, and bytes that one array of them may have
FIRST_ROWS = 8
MAX_FIRST_BYTES = 256 * 1024**2
#: of one array of texts, once each is an object of Python's
MAX_TEXT_BYTES = 1024**3


class ValidationError(ValueError):
    """The validation set is invalid; names the array and what it must be."""


def text_bytes(array_shape: tuple[int, ...], width: int) -> int:
    """Bytes of an array of texts in memory: each is an object and its text twice."""
    return math.prod(array_shape) * (8 + 56 + 8 * width)


def read(path: str, signature: Signature) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Inputs by name in the signature's types, and the labels, of a set that was inspected.

    Raises:
        ValidationError: it cannot be read, or an array has another form.
    """
    with _named_errors(), np.load(path, allow_pickle=False) as data:
        return {spec.name: _fit(spec, data[spec.name]) for spec in signature.inputs}, data[LABELS]


def first_rows(path: str, signature: Signature) -> dict[str, np.ndarray]:
    """Read the inputs' first rows in the signature's types; labels need not be there.

    Raises:
        ValidationError: not an ``.npz``, arrays missing or of another form, or without rows.
    """
    with _named_errors(), zipfile.ZipFile(path) as archive:
        missing = {f"{spec.name}.npy" for spec in signature.inputs} - set(archive.namelist())
        if missing:
            raise ValidationError(f"array {min(missing).removesuffix('.npy')!r} is missing")
        arrays = {spec.name: _fit(spec, _head(archive, spec.name)) for spec in signature.inputs}
    counts = {name: len(array) for name, array in arrays.items()}
    if min(counts.values()) < 1 or len(set(counts.values())) > 1:
        raise ValidationError(f"arrays must have as many rows, and one at least, not {counts}")
    return arrays


def npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """A ``.npy`` file's shape, whether in Fortran order, and dtype; or ValueError."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(file)


@contextlib.contextmanager
def _named_errors() -> Iterator[None]:
    try:
        yield
    except ValidationError:
        raise
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise ValidationError(f"not a readable .npz without pickles: {error}") from None


def _head(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(f"{name}.npy") as file:
        shape, fortran, dtype = npy_header(file)
        if dtype.hasobject or not shape:
            raise ValidationError(f"{name}: must have rows, and no Python objects")
        if fortran:
            raise ValidationError(f"{name}: is in Fortran order; save numpy.ascontiguousarray of it")
        first = (min(FIRST_ROWS, shape[0]), *shape[1:])
        size = dtype.itemsize * math.prod(first)
        if size > MAX_FIRST_BYTES:
            raise ValidationError(f"{name}: {first[0]} rows take {size} bytes, the limit is {MAX_FIRST_BYTES}")
        return np.frombuffer(file.read(size), dtype).reshape(first)


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
