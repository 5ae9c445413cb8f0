"""Whether the rows of a model influence each other, found by running it.

Rows that are known to run, and others made from them (large, negative, permuted, the model's own constants), run alone,
beside copies of themselves, and beside each other, in batches of several sizes. A row's answer must not depend on the
rows beside it, nor on its place. Structure proves nothing: it only suggests values and sizes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from registry.inspection import walk
from workers.executor.codec import BF16
from workers.executor.independence import QUANTISED, Arrays, Run, around, beside, filled

#: CPU seconds for all runs; a slow model gets few of them
CPU_S = 1.5
#: CPU seconds beside these for runs that fail, or are stopped
SPARE_S = 3.0
#: batch sizes, those most likely to show something first, and the largest that is tried
SIZES = (3, 2, 8, 5, 16, 64, 33, 130, 512)
LARGEST = 512
#: bytes to a multiple of which inputs are aligned: elsewhere kernels may add in another order
ALIGNED = 64
#: bytes of the inputs and outputs of one run
MOST_BYTES = 64 * 2**20
#: constants of the model that become values, those of lists among them, and batches of each size
CONSTANTS, LISTED, MIXTURES = 12, 6, 6
#: elements of a list whose values may be thresholds or keys, of one whose largest may be, and characters of a text
MOST_LISTED, MOST_NUMBERS, MOST_TEXT = 16, 1024, 200
_FACTORS = (100.0, -100.0, 0.0, 1e4, -1e4, 1e-3)
#: for floating-point numbers only: whole ones may be sizes, or counts of steps
_LARGE = (1e7, -1e7)
#: parts of the names of operators that draw at random
_DRAWING = ("Random", "Multinomial", "Bernoulli", "Dropout", "Sampling")


class NotRows(Exception):
    """The output ``name`` of shape ``shape`` for ``rows`` rows has others."""

    def __init__(self, name: str, rows: int, shape: Sequence[int]):
        super().__init__(name)
        self.name, self.rows, self.shape = name, rows, list(shape)


class Unsteady(Exception):
    """The output ``name`` differs in each run, though nothing draws at random."""

    def __init__(self, name: str):
        super().__init__(name)
        self.name = name


class Hints:
    """Suggestions of the model's structure.

    Attributes:
        constants: numbers in it, which may be thresholds of values or of sizes.
        texts: texts in it, which may be keys.
        quantised: rounding may differ by a whole step between batch sizes.
        draws: some operator draws at random.
    """

    def __init__(self, model: onnx.ModelProto | None = None):
        self.constants: list[float] = []
        self.texts: list[str] = []
        self.quantised = self.draws = False
        if model is None:
            return
        single: dict[float, None] = {}
        listed: dict[float, None] = {}
        longer: set[float] = set()
        texts: dict[str, None] = {}
        for message in (one.message for one in walk.messages(model)):
            for value in _values(message):
                array = np.atleast_1d(value)
                if array.dtype.kind == "O":
                    texts.update(dict.fromkeys(map(_text, array.reshape(-1)[:MOST_LISTED])))
                elif array.size:
                    numbers = array.astype(np.float64).reshape(-1)
                    numbers = numbers[np.isfinite(numbers)].tolist()
                    if array.size > MOST_LISTED:
                        longer.add(max(numbers, key=abs, default=0.0))
                    else:
                        (single if array.size == 1 else listed).update(dict.fromkeys(numbers))
            if isinstance(message, onnx.NodeProto):
                self.quantised |= message.op_type.startswith(("Quantize", "QLinear", "Dynamic")) or (
                    message.op_type.endswith("Integer")
                )
                self.draws |= any(part in message.op_type for part in _DRAWING)
        self.texts = [text for text in texts if len(text) <= MOST_TEXT][:CONSTANTS]
        # Large ones are thresholds rather than steps of an exponent or an axis.
        self.constants = sorted(single, key=lambda value: (abs(value) <= 1, abs(value)))[:CONSTANTS]
        others = sorted(set(listed) - set(self.constants), key=abs, reverse=True)
        self.constants += others[:LISTED]
        # A threshold stands out among weights.
        self.constants += sorted(longer - set(self.constants), key=abs)[-1:]

    def sizes(self) -> tuple[int, ...]:
        near = {int(value) + more for value in self.constants if value == int(value) for more in (0, 1)}
        return tuple(sorted(size for size in near if 2 <= size <= LARGEST and size not in SIZES))


def _values(message: Any) -> Iterator[Any]:
    """Yield numbers and texts that a message holds, where they are few."""
    if isinstance(message, onnx.TensorProto):
        # Those outside the file are weights.
        if math.prod(message.dims) <= MOST_NUMBERS and not message.external_data:
            yield numpy_helper.to_array(message)
    elif isinstance(message, onnx.NodeProto):
        for attribute in message.attribute:
            if attribute.type in (onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS) or (
                attribute.name in ("value_int", "value_ints", "min", "max")
            ):
                yield onnx.helper.get_attribute_value(attribute)
            elif attribute.type in (onnx.AttributeProto.STRINGS, onnx.AttributeProto.STRING) and (
                attribute.name.startswith(("keys_", "cats_", "value_string"))
            ):
                yield np.array([attribute.s, *attribute.strings], object)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def keeps_rows(run: Run, base: Arrays, names: Sequence[str], hints: Hints, cpu_s: float = CPU_S) -> None:
    """Run single rows of many values. Raises NotRows."""
    _Trial(run, names, hints, time.process_time() + cpu_s).able(_rows(base, hints))


def unsteady(run: Run, row: Arrays, first: Sequence[np.ndarray], names: Sequence[str], hints: Hints) -> str:
    """The name of an output that is drawn at random; empty: none. Raises Unsteady.

    ``first``: the row's outputs in an earlier run.
    """
    for name, one, other in zip(names, first, run(row), strict=True):
        if beside(one, other):
            if not hints.draws:
                raise Unsteady(name)
            return name
    return ""


def reason(
    run: Run, base: Arrays, first: Sequence[np.ndarray], names: Sequence[str], hints: Hints, cpu_s: float = CPU_S
) -> str:
    """Return why queries must run alone; empty: no influence of other rows was found.

    Args:
        run: runs the model with some rows; may raise anything.
        base: rows that run.
        first: outputs of the first of them alone.
        names: of the outputs.

    Raises:
        NotRows: an output has another number of rows.
        Unsteady: see :func:`unsteady`.
    """
    drawn = unsteady(run, {name: array[:1] for name, array in base.items()}, first, names, hints)
    if drawn:
        return f"{drawn}: it is drawn at random, so that an influence of other rows could not be seen"
    trial = _Trial(run, names, hints, time.process_time() + cpu_s)
    pool = trial.able(_rows(base, hints), first)
    row_bytes = trial.row_bytes
    deck = _shuffled(len(pool))
    for size in (*SIZES[:4], *hints.sizes(), *SIZES[4:]):
        if size * row_bytes > MOST_BYTES:
            continue
        for mixture in _mixtures(len(pool), size, deck):
            found = trial.mixed(pool, mixture)
            if found or trial.over():
                return found
    return ""


class _Trial:
    def __init__(self, run: Run, names: Sequence[str], hints: Hints, until: float):
        self._run = run
        self._names = names
        self._least = QUANTISED if hints.quantised else 0.0
        self._until = until
        self._alone: list[Sequence[np.ndarray]] = []
        #: outputs of copies of one row of the pool, by its place there and their number
        self._copies: dict[tuple[int, int], Sequence[np.ndarray] | None] = {}
        #: by output, the one row whose value differed by its place alone
        self._doubted: dict[str, int] = {}
        self.row_bytes = 1
        #: seconds that failed runs may take beside the others
        self._spare_s = SPARE_S

    def over(self) -> bool:
        return time.process_time() > self._until

    def able(self, rows: Iterator[Arrays], first: Sequence[np.ndarray] | None = None) -> list[Arrays]:
        """Those that run; ``first``: the outputs of the first one, where they are known."""
        pool: list[Arrays] = []
        for row in rows:
            outputs, first = self._tried(row, 1) if first is None else self._checked(first, 1), None
            if outputs is None:
                continue
            pool.append(row)
            self._alone.append(outputs)
            self.row_bytes = max(self.row_bytes, sum(a.nbytes for a in (*row.values(), *outputs)))
            if (len(pool) > 3 and time.process_time() > self._until - CPU_S * 0.6) or self.over():
                break
        return pool

    def mixed(self, pool: Sequence[Arrays], mixture: Sequence[int]) -> str:
        size = len(mixture)
        inputs = {name: np.concatenate([pool[one][name] for one in mixture]) for name in pool[0]}
        together = self._tried(inputs, size)
        if together is None:
            # One row makes the model fail, and the executor then runs each by itself.
            return ""
        # The last place first, which sums, scans and recurrences over rows reach: a slow model has time for one.
        for place in (size - 1, *range(size - 1)):
            one = mixture[place]
            if (one, size) not in self._copies:
                if place < size - 1 and self.over():
                    return ""
                self._copies[one, size] = self._tried(filled(inputs, place, place + 1), size)
            copies = self._copies[one, size]
            if copies is None:
                continue
            for name, alone, many, mine in zip(self._names, self._alone[one], copies, together, strict=True):
                here = slice(place, place + 1)
                found = beside(many[here], mine[here])
                if found:
                    return f"{name}: a row's answer depends on the other rows ({found} in a batch of {size})"
                found = around(alone, many[here], self._least)
                if found and self._certain(name, one, alone):
                    return f"{name}: a row's answer depends on its place ({found} as row {place + 1} of {size})"
        return ""

    def _certain(self, name: str, one: int, alone: np.ndarray) -> bool:
        """Return False for the first row whose whole numbers differ: rounding may do that."""
        if alone.dtype.kind == "f" or alone.dtype == BF16:
            return True
        return self._doubted.setdefault(name, one) != one

    def _tried(self, inputs: Arrays, rows: int) -> Sequence[np.ndarray] | None:
        began = time.process_time()
        try:
            outputs = self._run({name: _aligned(array) for name, array in inputs.items()})
        except Exception:  # onnxruntime raises many types; memory may be short for values and sizes that nobody sent
            spare_s = min(time.process_time() - began, self._spare_s)
            self._spare_s -= spare_s
            self._until += spare_s
            return None
        return self._checked(outputs, rows)

    def _checked(self, outputs: Sequence[np.ndarray], rows: int) -> Sequence[np.ndarray]:
        for name, output in zip(self._names, outputs, strict=True):
            if output.shape[:1] != (rows,):
                raise NotRows(name, rows, output.shape)
        return outputs


def _aligned(array: np.ndarray) -> np.ndarray:
    if array.dtype == object:
        return array
    room = np.empty(array.nbytes + ALIGNED, np.uint8)
    start = -room.ctypes.data % ALIGNED
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _shuffled(pool: int) -> Iterator[int]:
    """Places in the pool at random, none twice before all came once."""
    random = np.random.default_rng(7)
    while True:
        yield from map(int, random.permutation(pool))


def _mixtures(pool: int, size: int, deck: Iterator[int]) -> Iterator[list[int]]:
    order = [place % pool for place in range(size)]
    yield order
    yield order[::-1]
    yield [0] * (size - 1) + [min(3, pool - 1)]
    for _ in range(MIXTURES - 3):
        yield list(islice(deck, size))


def _rows(base: Arrays, hints: Hints) -> Iterator[Arrays]:
    """Yield single rows: those that are known to run, and others made from them."""
    count = len(next(iter(base.values())))
    known = [{name: array[place : place + 1] for name, array in base.items()} for place in range(min(count, 3))]
    yield from known[:1]
    first = known[0]
    yield _changed(first, lambda array: _times(array, _FACTORS[0]))
    yield from known[1:]
    for factor in _FACTORS[1:]:
        yield _changed(first, lambda array, factor=factor: _times(array, factor))
    if any(_floats(array) for array in first.values()):
        for factor in _LARGE:
            yield _changed(first, lambda array, factor=factor: _times(array, factor) if _floats(array) else array)
    yield _changed(first, lambda array: array[:, ::-1] if array.ndim > 1 else array)
    yield _changed(known[-1], _bumped)
    for text in hints.texts:
        yield _changed(
            first, lambda array, text=text: np.full(array.shape, text, object) if array.dtype == object else array
        )
    for constant in hints.constants:
        # Single precision rounds smaller steps away.
        step = 1.0 if abs(constant) < 2**23 else abs(constant) / 100
        for value in (constant, constant + step / 2, constant + step, 2 * constant, constant - step):
            yield _changed(first, lambda array, value=value: _full(array, value))
    # Where some inputs index or count, only the others can be extreme.
    if len(first) > 1 or any(array.dtype.kind in "iuO" for array in first.values()):
        for factor in (*_FACTORS, 3.0):
            yield _changed(first, lambda array, factor=factor: _times(array, factor) if _floats(array) else array)
        for name in first:
            yield {**known[-1], name: _bumped(first[name])}


def _changed(row: Arrays, change: Callable[[np.ndarray], np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.ascontiguousarray(change(array)) for name, array in row.items()}


def _floats(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" or array.dtype == BF16


def _cast(values: Any, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        values = np.clip(np.rint(values), max(limits.min, -(2**53)), min(limits.max, 2**53))
    with np.errstate(all="ignore"):
        return values.astype(array.dtype)


def _times(array: np.ndarray, factor: float) -> np.ndarray:
    if array.dtype == object:
        return np.full(array.shape, {0.0: "", 100.0: "zz top", -100.0: "A"}.get(factor, str(factor)), object)
    if array.dtype == bool:
        return np.full(array.shape, factor > 0)
    return _cast((array.astype(np.float64) + (0.5 if factor else 0.0)) * factor, array)


def _full(array: np.ndarray, value: float) -> np.ndarray:
    if array.dtype == object:
        return np.full(array.shape, str(value), object)
    return _cast(np.full(array.shape, value), array) if array.dtype != bool else np.full(array.shape, value > 0)


def _bumped(array: np.ndarray) -> np.ndarray:
    """Values of the same kind, one step further: another index, another text."""
    if array.dtype == object:
        return np.full(array.shape, "b", object)
    if array.dtype == bool:
        return ~array
    return _cast(array.astype(np.float64) + 1, array)
