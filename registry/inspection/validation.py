"""Inspection of a validation set, an ``.npz`` file.

It has one array an input, as the signature names them, and ``labels``. Arrays are judged by their headers; contents are
only streamed through (for the archive's checksums and for values that are not finite), except labels.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from typing import Any, BinaryIO

import numpy as np

from registry.errors import InputFault, InvalidInput, invalid
from registry.inspection import limits
from registry.signatures import DATATYPES
from workers import metrics
from workers.executor.validation import MAX_TEXT_BYTES, npy_header, text_bytes
from workers.protocol.datatypes import NUMPY

#: of made-up answers held at a time
_PIECE_BYTES = 32 * 2**20

#: an .npz holds no BF16
_KINDS = {**NUMPY, "BF16": NUMPY["FP32"]}


def inspect(path: str, signature: dict[str, Any], metric: str) -> dict[str, Any]:
    """The number of ``rows`` of a validation set. Raises InvalidInput."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _inspect(archive, signature, metric)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise invalid("file", f"is not a whole .npz archive: {str(error)[:200]}") from None


def _inspect(archive: zipfile.ZipFile, signature: dict[str, Any], metric: str) -> dict[str, Any]:
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    wanted = {tensor["name"]: tensor for tensor in signature["inputs"]}
    if "labels" in wanted:
        raise invalid("file.labels", "an input of the application has the name labels, so no array can hold the labels")
    unpacked = sum(info.file_size for info in archive.infolist())
    if unpacked > limits.MAX_VALIDATION_BYTES:
        raise invalid("file", f"unpacks to {unpacked} bytes; the limit is {limits.MAX_VALIDATION_BYTES} bytes")
    faults = [
        InputFault(f"file.{name[:60]}", f"is neither an input nor labels; the inputs are {', '.join(wanted)}")
        for name in members
        if name not in wanted and name != "labels"
    ]
    faults += [InputFault(f"file.{name}", "is missing") for name in [*wanted, "labels"] if name not in members]
    if faults:
        raise InvalidInput(faults)
    rows: dict[str, int] = {}
    for name, tensor in wanted.items():
        shape, dtype = _header(archive, members[name], name)
        faults += _check_array(f"file.{name}", shape, dtype, tensor)
        rows[name] = shape[0] if shape else 0
    faults += _check_labels(archive, members["labels"], rows, signature, metric)
    counts = set(rows.values())
    if not faults and len(counts) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in rows.items())
        faults.append(InputFault("file", f"the arrays differ in rows: {counts}"))
    if faults:
        raise InvalidInput(faults)
    return {"rows": counts.pop()}


def _header(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of an array, whose member is read to its end.

    So length and checksum are known to be right, and every value finite: one NaN makes the accuracy meaningless.
    """
    with archive.open(info) as file:
        shape, dtype = _npy_header(file, name)
        length, rest, finite = 0, b"", True
        while chunk := file.read(1 << 20):
            length += len(chunk)
            if dtype.kind == "f":
                rest += chunk
                whole = len(rest) // dtype.itemsize * dtype.itemsize
                finite = finite and bool(np.isfinite(np.frombuffer(rest[:whole], dtype)).all())
                rest = rest[whole:]
    expected = dtype.itemsize
    for size in shape:
        expected *= size
    if length != expected:
        raise invalid(f"file.{name}", f"holds {length} bytes; its header promises {expected}")
    if not finite:
        raise invalid(f"file.{name}", "holds values that are not finite (NaN or infinite)")
    return shape, dtype


def _npy_header(file: BinaryIO, name: str) -> tuple[tuple[int, ...], np.dtype]:
    try:
        shape, _, dtype = npy_header(file)
    except ValueError as error:
        raise invalid(f"file.{name}", f"is not a .npy array: {str(error)[:200]}") from None
    if dtype.hasobject:
        raise invalid(f"file.{name}", "holds Python objects, which are never unpickled; use S or U strings")
    return shape, dtype


def _check_array(field: str, shape: tuple[int, ...], dtype: np.dtype, tensor: dict[str, Any]) -> list[InputFault]:
    expected, datatype = tensor["shape"], tensor["datatype"]
    right = dtype.kind in "SU" if datatype == "BYTES" else dtype.newbyteorder("=") == _KINDS[datatype]
    faults = []
    if not right:
        faults.append(InputFault(f"{field}.datatype", f"is {dtype}; the application's signature says {datatype}"))
    if len(shape) != len(expected) or any(
        want not in (-1, size) for size, want in zip(shape[1:], expected[1:], strict=False)
    ):
        faults.append(InputFault(f"{field}.shape", f"is {list(shape)}; the application's signature says {expected}"))
    if right and datatype == "BYTES":
        width = dtype.itemsize // (4 if dtype.kind == "U" else 1)
        size = text_bytes(shape, width)
        if size > MAX_TEXT_BYTES:
            detail = (
                f"would take {size} bytes as {math.prod(shape)} texts in an executor; the limit is {MAX_TEXT_BYTES}"
            )
            faults.append(InputFault(field, detail))
    return faults


def _check_labels(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, rows: dict[str, int], signature: dict[str, Any], metric: str
) -> list[InputFault]:
    shape, dtype = _header(archive, info, "labels")
    if not shape:
        return [InputFault("file.labels.shape", "is a single value; one label a row is needed")]
    rows["labels"] = shape[0]
    if not 1 <= shape[0] <= limits.MAX_VALIDATION_ROWS:
        return [InputFault("file.labels.shape", f"has {shape[0]} rows; 1 to {limits.MAX_VALIDATION_ROWS} are allowed")]
    if dtype.kind not in "biufSU":
        return [InputFault("file.labels.datatype", f"is {dtype}; numbers or strings are needed")]
    with archive.open(info) as file:
        labels = np.lib.format.read_array(file, allow_pickle=False)
    return _rehearse(labels, signature["outputs"], metric)


def _rehearse(labels: np.ndarray, outputs: list[dict[str, Any]], metric: str) -> list[InputFault]:
    """Try the metric on empty answers, so that wrong labels are rejected now."""
    if any(size == -1 for tensor in outputs for size in tensor["shape"][1:]):
        return []
    row_bytes = sum(DATATYPES[tensor["datatype"]] * math.prod(tensor["shape"][1:]) for tensor in outputs)
    piece = max(1, min(4096, _PIECE_BYTES // row_bytes))
    total = metrics.create(metric)
    try:
        for start in range(0, len(labels), piece):
            some = labels[start : start + piece]
            total.add({tensor["name"]: _blank(tensor, len(some)) for tensor in outputs}, some)
        total.percent()
    except metrics.MetricError as error:
        text = str(error)
        field = "file.labels" if text.startswith("labels") else "metric"
        return [InputFault(field, text.removeprefix("labels: "))]
    return []


def _blank(tensor: dict[str, Any], rows: int) -> np.ndarray:
    shape = [rows, *tensor["shape"][1:]]
    if tensor["datatype"] == "BYTES":
        return np.full(shape, "", dtype=object)
    return np.zeros(shape, dtype=_KINDS[tensor["datatype"]])
