"""Buckets as the bytes of a row: names' numbers, then columns of numbers, compressed. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from scheduler.history.folding import APPLICATION, DEVICE, Bucket

#: quick, and within a tenth of the best here: columns are mostly small numbers
LEVEL = 1
_IDS, _NUMBERS = np.dtype("<u4"), np.dtype("<i8")
#: gives the number of (kind, name), or the name of a number
Numbering = Callable[[str, str], int]


class PackedRow(NamedTuple):
    seconds: int
    total: bytes
    applications: bytes
    variants: bytes
    devices: bytes


def pack(bucket: Bucket, number: Numbering) -> PackedRow:
    return PackedRow(
        bucket.seconds,
        np.array(bucket.total(), _NUMBERS).tobytes(),
        _table({number("a", name): sums for name, sums in bucket.applications.items()}),
        _table({number("v", name): [count] for name, count in bucket.variants.items()}),
        _table({number("d", name): sums for name, sums in bucket.devices.items()}),
    )


def unpack(packed: PackedRow, names: Mapping[int, str]) -> Bucket:
    """The reverse of :func:`pack`; what has no name any more is left out."""

    def rows(data: bytes, width: int) -> dict[str, list[int]]:
        ids, columns = table(data, width)
        return {names[i]: row for i, row in zip(ids.tolist(), columns.T.tolist(), strict=True) if i in names}

    return Bucket(
        packed.seconds,
        rows(packed.applications, len(APPLICATION)),
        {name: row[0] for name, row in rows(packed.variants, 1).items()},
        rows(packed.devices, len(DEVICE)),
    )


def _table(rows: Mapping[int, list[int]]) -> bytes:
    """Pack rows with their numbers in rising order; empty: no row.

    Neighbouring rows of the history then compare by their bytes.
    """
    if not rows:
        return b""
    ids = sorted(rows)
    columns = np.array([rows[i] for i in ids], _NUMBERS).T
    return zlib.compress(np.array(ids, _IDS).tobytes() + columns.tobytes(), LEVEL)


def table(data: bytes, width: int) -> tuple[np.ndarray, np.ndarray]:
    if not data:
        return np.empty(0, _IDS), np.empty((width, 0), _NUMBERS)
    raw = zlib.decompress(data)
    count = len(raw) // (_IDS.itemsize + width * _NUMBERS.itemsize)
    ids = np.frombuffer(raw, _IDS, count)
    return ids, np.frombuffer(raw, _NUMBERS, count * width, count * _IDS.itemsize).reshape(width, count)


def totals(data: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(data), _NUMBERS).reshape(len(data), len(APPLICATION))
