"""Runs one batch: every query gets its outputs or its own error. Synchronous."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec

from . import padding
from .batch import DispatchedBatch
from .runtime import Arrays, RunError, RunnableModel

#: bytes that padding may blow up one run's inputs to; queries that would need more run each by itself
MAX_PADDED_BYTES = 256 * 1024 * 1024


class Part(msgspec.Struct, eq=False):
    """Outputs of some queries of a batch.

    Attributes:
        places: which queries, in the order of their rows.
        outputs: by name, row after row.
        error: the model's, for the only query.
    """

    places: Sequence[int]
    outputs: Arrays | None = None
    error: str | None = None


def run(model: RunnableModel, batch: DispatchedBatch) -> tuple[list[Part], float]:
    """Run a batch; return parts that hold each query once, and ``session.run`` time.

    Queries of different shapes cannot stand in one array and run one after the other. If a run fails, each of its
    queries is tried once by itself, so that one failing query does not fail its neighbours. Where queries run alone,
    each is a run of its own from the start.
    """
    if model.alone:
        whole = None if batch.body is None else batch.whole()
        return _apart(model, batch, range(len(batch.ids)), whole)
    if batch.body is not None:
        whole = batch.whole()
        groups: list[Sequence[int]] = [range(len(batch.ids))]
    else:
        whole, groups = None, _by_shape(model, batch)
    parts, seconds = [], 0.0
    for places in groups:
        try:
            if whole is None:
                done, took = _together(model, batch, places)
            else:
                outputs, took = model.run(whole, batch.limit)
                done = [Part(places, outputs)]
        except RunError as error:
            done, took = _apart(model, batch, places, whole) if len(places) > 1 else ([_failed(places[0], error)], 0.0)
        parts += done
        seconds += took
    return parts, seconds


def _by_shape(model: RunnableModel, batch: DispatchedBatch) -> list[Sequence[int]]:
    """Group places of queries that may share a run.

    Lengths that contradict each other are the model's to refuse, not to be padded away: such a query runs by itself.
    """
    groups: dict[Hashable, list[int]] = {}
    for place, shape in enumerate(batch.shapes):
        fits = not batch.padding or padding.lengths(model.inputs, batch.arrays[place], batch.padding) is not None
        groups.setdefault(shape.key if fits else place, []).append(place)
    return list(groups.values())


def _together(model: RunnableModel, batch: DispatchedBatch, places: Sequence[int]) -> tuple[list[Part], float]:
    values, arrays = batch.padding, [batch.arrays[place] for place in places]
    if len(places) == 1:
        outputs, seconds = model.run(arrays[0], batch.limit)
        return [Part(places, outputs)], seconds
    if values and (size := padding.padded_bytes(arrays, values)) > MAX_PADDED_BYTES:
        raise RunError(f"padded inputs would take {size} bytes, at most {MAX_PADDED_BYTES} are allowed")
    inputs = padding.concatenate(arrays, values)
    outputs, seconds = model.run(inputs, batch.limit)
    whole = padding.lengths(model.inputs, inputs, values) if values else None
    parts, start = [], 0
    for place, given in zip(places, arrays, strict=True):
        end = start + batch.shapes[place].rows
        mine = {name: array[start:end] for name, array in outputs.items()}
        if whole:
            own = padding.lengths(model.inputs, given, values)
            mine = {name: padding.cut(array, model.outputs[name], own, whole) for name, array in mine.items()}
        parts.append(Part((place,), mine))
        start = end
    return parts, seconds


def _apart(
    model: RunnableModel, batch: DispatchedBatch, places: Sequence[int], whole: Arrays | None
) -> tuple[list[Part], float]:
    """Run each query by itself.

    Args:
        whole: inputs of the whole batch, where its queries have none of their own.
    """
    parts, seconds, start = [], 0.0, 0
    for place in places:
        if whole is None:
            inputs = batch.arrays[place]
        else:
            end = start + batch.shapes[place].rows
            inputs = {name: array[start:end] for name, array in whole.items()}
            start = end
        try:
            outputs, took = model.run(inputs, batch.limit)
        except RunError as error:
            parts.append(_failed(place, error))
        else:
            parts.append(Part((place,), outputs))
            seconds += took
    return parts, seconds


def _failed(place: int, error: RunError) -> Part:
    return Part((place,), error=str(error))
