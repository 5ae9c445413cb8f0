"""Inputs for trial runs: of the inspection, the profiler and a warm-up. Pure.

Rows that were given (a validation set's, or a sample's) come first; without any, values are made up. Each input then
has a *rung* of the ladder for its datatype (docs/shapes.md): the inspection finds rungs with which the model runs, and
profiler and warm-up use the same.
"""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import combinations_with_replacement, zip_longest

import numpy as np

from workers.protocol.specs import Signature, TensorSpec

from .codec import BF16, DTYPES
from .padding import Axes

Arrays = Mapping[str, np.ndarray]
#: axes by input, the first one 0
Places = Mapping[str, Collection[int]]
#: the rung of each input
Rungs = Mapping[str, str]
#: how often rungs are exchanged for others: so far are combinations from the first one
_EXCHANGES = 4

_Make = Callable[[tuple[int, ...], int, np.random.Generator], np.ndarray]
_FLOATS: dict[str, _Make] = {
    "normal": lambda shape, size, random: random.standard_normal(shape, np.float32),
    "fractions": lambda shape, size, random: random.uniform(0.05, 0.95, shape),
    "ones": lambda shape, size, random: np.ones(shape),
    "hundreds": lambda shape, size, random: random.uniform(280.0, 400.0, shape),
    "counts": lambda shape, size, random: random.integers(1, 4, shape),
    "lengths": lambda shape, size, random: np.full(shape, size),
    "zeros": lambda shape, size, random: np.zeros(shape),
    "negative": lambda shape, size, random: -random.uniform(0.05, 4.0, shape),
}
_WHOLE: dict[str, _Make] = {
    "bits": lambda shape, size, random: random.integers(0, 2, shape),
    "ones": lambda shape, size, random: np.ones(shape),
    "lengths": lambda shape, size, random: np.full(shape, size),
    "counts": lambda shape, size, random: random.integers(1, 4, shape),
    "zeros": lambda shape, size, random: np.zeros(shape),
    "places": lambda shape, size, random: np.arange(math.prod(shape)).reshape(shape) % max(1, size),
    "hundreds": lambda shape, size, random: random.integers(100, 128, shape),
}
_TEXTS: dict[str, _Make] = {
    name: lambda shape, size, random, words=words: np.resize(np.array(words, object), shape)
    for name, words in {
        "digits": [str(digit) for digit in range(10)],
        "words": ["a", "the", "word", "some"],
        "sentences": ["the quick brown fox jumps over the lazy dog", "it rained on Monday, so we stayed at home"],
        "decimals": ["0.5", "1.25", "3.0"],
        "dates": ["2020-01-31", "1999-12-01"],
        "empty": [""],
    }.items()
}
_FLAGS: dict[str, _Make] = {
    "bits": _WHOLE["bits"],
    "ones": _WHOLE["ones"],
    "zeros": _WHOLE["zeros"],
}
#: names of inputs that tell their rung
_HINTS = {
    "lengths": re.compile(r"(?i)(?<![a-z])(lens?|lengths?|sizes?|num|counts?|width|height|frames)(?![a-z])"),
    "fractions": re.compile(r"(?i)(?<![a-z])(threshold|thresh|iou|prob|probability|score|conf|alpha|ratio)(?![a-z])"),
    "ones": re.compile(r"(?i)(?<![a-z])(mask|divisor|denominator|temperature|scales?)(?![a-z])"),
}


class TrialValues:
    """Makes inputs of any number of rows.

    Args:
        rungs: of inputs; one that has none gets the first of its ladder.
        given: rows to take instead, one at least; open dimensions are cut or repeated where another size is asked for.
        ones: open axes by input that are not set to the size of open dimensions: 1, or as in ``given``.
    """

    def __init__(
        self, signature: Signature, rungs: Rungs | None = None, given: Arrays | None = None, ones: Places | None = None
    ):
        self._signature = signature
        self._rungs = rungs or {}
        self._given = given
        self._ones = ones or {}

    def forms(self, axes: Axes) -> list[TrialValues]:
        """These values with and without a batch of one, where a model may have its own.

        A signature without a batch dimension may still leave that of the model open. It leads an input of several
        dimensions, or is named as one that does.

        Args:
            axes: names of the model's own.
        """
        places = [
            (spec.name, place, name, place == 0 and len(spec.shape) > 2)
            for spec in (() if self._signature.batch else self._signature.inputs)
            for place, (size, name) in enumerate(zip_longest(spec.shape[1:], axes[spec.name]))
            if size == -1
        ]
        names = {name for _, _, name, leads in places if leads} - {None}
        ones: dict[str, set[int]] = {}
        for spec_name, place, name, leads in places:
            if leads or name in names:
                ones.setdefault(spec_name, set()).add(place)
        return [TrialValues(self._signature, self._rungs, self._given, ones), self] if ones else [self]

    def rows(self, count: int, open_size: int = 1, size: int = 0, seed: int = 0) -> dict[str, np.ndarray]:
        """Return inputs of ``count`` rows.

        Args:
            size: of open dimensions beside the batch; 0: the largest that the application declares, else that of the
                given rows, else ``open_size``.
        """
        if self._given is not None:
            return {
                spec.name: _repeated(spec, self._given[spec.name], count, size, self._ones.get(spec.name, ()))
                for spec in self._signature.inputs
            }
        random = np.random.default_rng(seed)
        return {
            spec.name: self._made(spec, count, size or spec.most or open_size, random)
            for spec in self._signature.inputs
        }

    def _made(self, spec: TensorSpec, rows: int, open_size: int, random: np.random.Generator) -> np.ndarray:
        ones = self._ones.get(spec.name, ())
        own = [(1 if place in ones else open_size) if size < 0 else size for place, size in enumerate(spec.shape[1:])]
        shape = (rows, *own)
        rungs = ladder(spec)
        make = rungs.get(self._rungs.get(spec.name, "")) or next(iter(rungs.values()))
        values = make(shape, _length(self._signature, spec, open_size), random)
        return np.ascontiguousarray(values if spec.datatype == "BYTES" else _cast(values, DTYPES[spec.datatype]))


def ladder(spec: TensorSpec) -> Mapping[str, _Make]:
    """Return the rungs of an input, those that its name suggests first."""
    dtype = DTYPES.get(spec.datatype)
    rungs = _TEXTS
    if dtype is not None:
        rungs = _FLAGS if dtype.kind == "b" else _FLOATS if dtype.kind == "f" or dtype == BF16 else _WHOLE
    first = [name for name, hint in _HINTS.items() if name in rungs and hint.search(spec.name)]
    return {name: rungs[name] for name in (*first, *rungs)}


def combinations(signature: Signature) -> Iterator[dict[str, str]]:
    """Yield rungs for all inputs, the most plausible first.

    First come the same places of all ladders, then few exchanges of single inputs' rungs before many.
    """
    ladders = {spec.name: tuple(ladder(spec)) for spec in signature.inputs}
    longest = max(map(len, ladders.values()))
    for place in range(longest):
        yield {name: rungs[min(place, len(rungs) - 1)] for name, rungs in ladders.items()}
    for exchanges in range(1, _EXCHANGES + longest):
        for raised in combinations_with_replacement(ladders, exchanges):
            places = Counter(raised)
            if all(place < len(ladders[name]) for name, place in places.items()):
                yield {name: rungs[places[name]] for name, rungs in ladders.items()}


def unpack(packed: bytes, signature: Signature) -> Arrays:
    with np.load(io.BytesIO(packed), allow_pickle=False) as file:
        rows = {spec.name: file[spec.name] for spec in signature.inputs}
    return {
        spec.name: rows[spec.name].astype(object if spec.datatype == "BYTES" else DTYPES[spec.datatype])
        for spec in signature.inputs
    }


def pack(rows: Arrays) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **{name: _plain(array) for name, array in rows.items()})
    return file.getvalue()


def _plain(array: np.ndarray) -> np.ndarray:
    if array.dtype == object:
        texts = [text.decode() if isinstance(text, bytes) else text for text in array.ravel()]
        return np.array(texts, np.str_).reshape(array.shape)
    return array.astype(np.float32) if array.dtype == BF16 else array


def _cast(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = np.clip(values, limits.min, limits.max)
    return values.astype(dtype)


def _length(signature: Signature, spec: TensorSpec, open_size: int) -> int:
    """The length that an input may speak of: an open dimension, else a first one."""
    others = [other for other in signature.inputs if other is not spec and not _HINTS["lengths"].search(other.name)]
    sizes = [size for other in (*others, spec) for size in other.shape[1:]]
    return open_size if min(sizes, default=1) < 0 else next(iter(sizes), 1)


def _repeated(spec: TensorSpec, array: np.ndarray, rows: int, size: int, ones: Collection[int]) -> np.ndarray:
    wanted = size or spec.most
    for axis, declared in enumerate(spec.shape[1:], 1):
        if declared < 0 and wanted and array.shape[axis] and axis - 1 not in ones:
            array = np.take(array, np.arange(wanted) % array.shape[axis], axis)
    return np.ascontiguousarray(array[np.arange(rows) % len(array)])
