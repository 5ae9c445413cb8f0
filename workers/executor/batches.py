"""Runs one batch, synchronously, where models run: every query gets its outputs or its own error."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from . import padding
from .granted import Granted
from .runtime import Arrays, Model, RunError

#: inputs of one run that padding may blow up to at most; queries that would need more run each by itself
MAX_PADDED_BYTES = 256 * 1024 * 1024


class Runnable(Protocol):
    """A query as it runs: ``form`` is what those that share a run have in common, ``arrays`` its inputs by name, rows
    first; ``padding`` as in ``ApplicationSpec``."""

    rows: int
    arrays: Arrays
    form: Hashable
    padding: dict[str, float]


class Part(msgspec.Struct, eq=False):
    """``outputs`` of queries, by name, row after row, or the ``error`` that the model raised for the only one.
    ``places``: which queries of the batch, in the order of their rows."""

    places: Sequence[int]
    outputs: Arrays | None = None
    error: str | None = None


@dataclass(slots=True)
class _One:
    rows: int
    arrays: Arrays
    form: Hashable
    padding: dict[str, float]


def granted(model: Model, batch: Granted) -> tuple[list[Part], float]:
    """The parts of a granted batch, which together hold each of its queries once, and the seconds spent inside
    ``session.run``.

    If the run fails, each of its queries is tried once by itself, so that one poisonous query does not fail its
    neighbours."""
    if batch.body is None:
        return singly(model, _queries(batch, batch.arrays), batch.limit)
    whole = batch.whole()
    try:
        outputs, seconds = model.run(whole, batch.limit)
        return [Part(range(len(batch.ids)), outputs)], seconds
    except RunError as error:
        if len(batch.ids) == 1:
            return [Part((0,), error=str(error))], 0.0
    parts, seconds, start = [], 0.0, 0
    for place, layout in enumerate(batch.layouts):
        end = start + layout.rows
        part, took = _attempt(model, {name: array[start:end] for name, array in whole.items()}, place, batch.limit)
        parts.append(part)
        seconds += took
        start = end
    return parts, seconds


def _queries(batch: Granted, arrays: Iterable[Arrays]) -> list[_One]:
    return [
        _One(layout.rows, mine, layout.key, batch.padding) for layout, mine in zip(batch.layouts, arrays, strict=True)
    ]


def _attempt(model: Model, inputs: Arrays, place: int, max_rows: int) -> tuple[Part, float]:
    try:
        outputs, seconds = model.run(inputs, max_rows)
    except RunError as error:
        return Part((place,), error=str(error)), 0.0
    return Part((place,), outputs), seconds


def singly(model: Model, queries: Sequence[Runnable], max_rows: int) -> tuple[list[Part], float]:
    """One part a query, in any order, and the seconds spent inside ``session.run``.

    Queries of different forms cannot stand in one array and run one after the other. If a batch of several fails, each
    of its queries is tried once by itself.
    """
    by_form: dict[Hashable, list[int]] = {}
    for place, query in enumerate(queries):
        # Lengths that contradict each other are the model's to refuse, not ours to pad away.
        fits = not query.padding or padding.lengths(model.inputs, query.arrays, query.padding) is not None
        by_form.setdefault(query.form if fits else place, []).append(place)
    parts, seconds = [], 0.0
    for group in by_form.values():
        if len(group) > 1:
            try:
                done, took = _together(model, queries, group, max_rows)
            except RunError:
                pass
            else:
                parts += done
                seconds += took
                continue
        for place in group:
            part, took = _attempt(model, queries[place].arrays, place, max_rows)
            parts.append(part)
            seconds += took
    return parts, seconds


def _together(
    model: Model, queries: Sequence[Runnable], group: Sequence[int], max_rows: int
) -> tuple[list[Part], float]:
    values, arrays = queries[group[0]].padding, [queries[place].arrays for place in group]
    if values and (size := padding.padded_bytes(arrays, values)) > MAX_PADDED_BYTES:
        raise RunError(f"padded inputs would take {size} bytes, at most {MAX_PADDED_BYTES} are allowed")
    inputs = padding.concatenate(arrays, values)
    outputs, seconds = model.run(inputs, max_rows)
    whole = padding.lengths(model.inputs, inputs, values) if values else None
    parts, start = [], 0
    for place in group:
        query = queries[place]
        mine = {name: array[start : start + query.rows] for name, array in outputs.items()}
        if whole:
            own = padding.lengths(model.inputs, query.arrays, values)
            mine = {name: padding.cut(array, model.outputs[name], own, whole) for name, array in mine.items()}
        parts.append(Part((place,), mine))
        start += query.rows
    return parts, seconds
