"""Comparison of outputs: does an answer depend on other queries of its run? Pure.

The same rows at the same place of a run of the same size give the same bits, whatever stands beside them: no kernel of
an independent model looks at other rows. So :func:`beside` is exact. Runs of other sizes may use other kernels, which
round differently: :func:`around` allows for that, and only for floating-point numbers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from .codec import BF16

Arrays = Mapping[str, np.ndarray]
#: returns the outputs of a run, in the order of the signature
Run = Callable[[Arrays], Sequence[np.ndarray]]
RunSoon = Callable[[Arrays], Awaitable[Sequence[np.ndarray]]]
#: largest difference between runs of different sizes, as a part of the output's largest value, that is no influence:
#: sums of unlike order; quantised models round differently by a whole step
_ROUNDING = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-4, np.dtype(np.float16): 2e-2, BF16: 1e-1}
QUANTISED = 1e-2


class KeptBatch(NamedTuple):
    """Queries that were served in one run."""

    inputs: Arrays
    rows: tuple[int, ...]  # of each query


def beside(expected: np.ndarray, found: np.ndarray) -> str:
    """Describe how rows differ at the same place beside others; empty: not at all."""
    if expected.shape != found.shape:
        return _other_shape(expected, found)
    # NaN alone differs from itself.
    wrong = int(np.count_nonzero((expected != found) & ((expected == expected) | (found == found))))
    return f"{wrong} of {expected.size} values differ" if wrong else ""


def around(expected: np.ndarray, found: np.ndarray, least: float = 0.0) -> str:
    """Describe how rows differ between runs of unlike sizes; empty: not at all.

    Args:
        least: part of the largest value by which floating-point numbers may differ at least.
    """
    if expected.dtype not in _ROUNDING:
        return beside(expected, found)
    if expected.shape != found.shape:
        return _other_shape(expected, found)
    if expected.tobytes() == found.tobytes():
        return ""
    with np.errstate(all="ignore"):
        a, b = expected.astype(np.float64), found.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        finite = np.isfinite(a) & np.isfinite(b)
        if not np.all(same | finite):
            return "some values are finite with one and not with the other"
        scale = max(float(np.max(np.abs(a), where=finite, initial=0.0)), 1e-30)
        most = float(np.max(np.abs(a - b) / scale, where=finite, initial=0.0))
    if most <= max(_ROUNDING[expected.dtype], least):
        return ""
    return "it is another one altogether" if most > 1 else f"it changes by {most:.2%}"


def _other_shape(expected: np.ndarray, found: np.ndarray) -> str:
    return f"its shape is {list(found.shape)} instead of {list(expected.shape)}"


def filled(inputs: Arrays, start: int, end: int) -> dict[str, np.ndarray]:
    """Return inputs with copies of the rows from ``start`` to ``end`` for all others."""
    rows = len(next(iter(inputs.values())))
    places = start + (np.arange(rows) - start) % (end - start)
    return {name: array[places] for name, array in inputs.items()}


async def influence(run: RunSoon, inputs: Arrays, rows: Sequence[int], names: Sequence[str]) -> str:
    """Run queries together and each alone, and describe how one differs; or empty.

    A difference in whole numbers or text counts only if other rows cause it: rounding, which differs between runs of
    different sizes, may decide between two labels that are as good.

    Args:
        rows: of each query.
        names: of the outputs.

    Raises:
        Exception: what ``run`` raises.
    """
    together, start = await run(inputs), 0
    for count in rows:
        end = start + count
        alone = await run({name: array[start:end] for name, array in inputs.items()})
        strict: Sequence[np.ndarray] | None = None
        for place, (name, output, every) in enumerate(zip(names, alone, together, strict=True)):
            difference = around(output, every[start:end], QUANTISED)
            if difference and output.dtype not in _ROUNDING and output.shape == every[start:end].shape:
                strict = strict or await run(filled(inputs, start, end))
                difference = beside(strict[place][start:end], every[start:end])
            if difference:
                return f"{name}: beside other queries {difference}"
        start = end
    return ""
