"""Queries of different sizes in one run: inputs padded, outputs cut back. Pure.

The symbolic names of a model's dimensions define which axes of an output follow which axes of the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

Arrays = Mapping[str, np.ndarray]
#: by tensor, the symbolic name of each axis; None: fixed or nameless
Axes = Mapping[str, tuple[str | None, ...]]
#: bytes that padding may blow up one run's inputs to; queries that would need more run each alone
MAX_BYTES = 256 * 1024 * 1024


class PaddingError(ValueError):
    """Padded inputs would be too large."""


def symbols(shape: Sequence[int | str | None] | None) -> tuple[str | None, ...]:
    """The names of a tensor's axes, as onnxruntime shows its shape."""
    return tuple(size if isinstance(size, str) else None for size in shape or ())


def lengths(axes: Axes, arrays: Arrays, padding: Mapping[str, float]) -> dict[str, int] | None:
    """Lengths of padded axes by symbolic name; None: two of one name differ."""
    sizes: dict[str, int] = {}
    for name in padding:
        array = arrays[name]
        for axis, symbol in enumerate(axes[name]):
            if axis and symbol is not None and sizes.setdefault(symbol, array.shape[axis]) != array.shape[axis]:
                return None
    return sizes


def concatenate(queries: Sequence[Arrays], padding: Mapping[str, float], most: int = MAX_BYTES) -> Arrays:
    """Join queries' inputs, padding shorter ones; raises PaddingError beyond ``most`` bytes."""
    if len(queries) == 1:
        return queries[0]
    if (size := _padded_bytes(queries, padding)) > most:
        raise PaddingError(f"padded inputs would take {size} bytes, at most {most} are allowed")
    return {name: _joined([query[name] for query in queries], padding.get(name)) for name in queries[0]}


def _padded_bytes(queries: Sequence[Arrays], padding: Mapping[str, float]) -> int:
    total = 0
    for name in padding:
        arrays = [query[name] for query in queries]
        longest = np.max([array.shape[1:] for array in arrays], axis=0)
        total += sum(len(array) for array in arrays) * math.prod(longest.tolist()) * arrays[0].itemsize
    return total


def _joined(arrays: Sequence[np.ndarray], value: float | None) -> np.ndarray:
    if value is None or len({array.shape[1:] for array in arrays}) == 1:
        return np.concatenate(arrays)
    longest = np.max([array.shape[1:] for array in arrays], axis=0)
    whole = np.full((sum(len(array) for array in arrays), *longest), value, arrays[0].dtype)
    start = 0
    for array in arrays:
        inner = tuple(slice(0, size) for size in array.shape[1:])
        whole[(slice(start, start + len(array)), *inner)] = array
        start += len(array)
    return whole


def cut(
    array: np.ndarray, symbols: Sequence[str | None], own: Mapping[str, int], whole: Mapping[str, int]
) -> np.ndarray:
    """One query's rows of an output; axes named as padded ones get its own length."""
    places = []
    for axis, size in enumerate(array.shape):
        symbol = symbols[axis] if axis and len(symbols) == array.ndim else None
        follows = symbol is not None and whole.get(symbol) == size
        places.append(slice(0, own[symbol]) if follows else slice(None))
    return array[tuple(places)]
