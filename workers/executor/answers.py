"""Runs a batch and encodes its outputs.

Done where models run, so that encoding text does not block the event loop.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec
import numpy as np

from workers.protocol.frames import Buffer, ResultTensor

from . import padding
from .batch import DispatchedBatch
from .codec import DATATYPE_OF, CodecError, encode, packed
from .request_shapes import CheckedShape
from .runtime import Arrays, RunError, RunnableModel


class GroupAnswer(msgspec.Struct, eq=False):
    """Outputs of queries whose shapes are equal except for their rows."""

    queries: Sequence[int] | None  # their places in the batch; None: all
    headers: tuple[ResultTensor, ...] = ()
    body: Sequence[Buffer] = ()


#: of a batch: answers, (place, error text) of each query that the model raised for, and seconds inside ``session.run``
Outcome = tuple[list[GroupAnswer], list[tuple[int, str]], float]


def of_batch(model: RunnableModel, batch: DispatchedBatch) -> Outcome:
    """Run a batch; every query is in one answer or has an error of its own.

    A run that fails is repeated query by query, so that one query does not fail its neighbours. Where outputs cannot be
    encoded, that would not help: they are of the same type for every query.
    """
    answers: list[GroupAnswer] = []
    failed: list[tuple[int, str]] = []
    seconds, every = 0.0, range(len(batch.ids))
    in_one_piece = batch.body is not None and not model.alone
    runs = [every] if in_one_piece else _runs(model, batch)
    while runs:
        places = runs.pop(0)
        try:
            inputs = batch.whole() if places is every else batch.inputs(places)
            outputs, took = model.run(inputs, batch.limit)
        except (RunError, padding.PaddingError) as error:
            if len(places) > 1:
                runs[:0] = [[place] for place in places]
            else:
                failed.append((places[0], str(error)))
        else:
            seconds += took
            answers += _answers(model, batch, places, inputs, outputs, failed)
    return answers, failed, seconds


def _runs(model: RunnableModel, batch: DispatchedBatch) -> list[Sequence[int]]:
    """Places of queries by run: those of one shape, unless queries run alone.

    Lengths that contradict each other are the model's to refuse, not to be padded away: such a query runs alone.
    """
    if model.alone:
        return [[place] for place in range(len(batch.ids))]
    runs: dict[Hashable, list[int]] = {}
    for place, shape in enumerate(batch.shapes):
        fits = not batch.padding or padding.lengths(model.inputs, batch.arrays[place], batch.padding) is not None
        runs.setdefault(shape.key if fits else place, []).append(place)
    return list(runs.values())


def _answers(
    model: RunnableModel,
    batch: DispatchedBatch,
    places: Sequence[int],
    inputs: Arrays,
    outputs: Arrays,
    failed: list[tuple[int, str]],
) -> list[GroupAnswer]:
    """Encode the outputs of a run, query by query where outputs or padding differ.

    Queries whose outputs cannot be encoded are added to ``failed``.
    """
    shapes = batch.shapes if len(places) == len(batch.ids) else [batch.shapes[place] for place in places]
    groups = [(places if shapes is not batch.shapes else None, shapes, outputs)]
    if not batch.same or (batch.padding and batch.body is None):
        groups = _cut(model, batch, places, inputs, outputs) or groups
    answers = []
    for place, group, arrays in groups:
        headers, body = [], []
        for name in group[0].outputs:
            array = arrays[name]
            datatype = DATATYPE_OF.get(array.dtype)
            if datatype is not None:
                headers.append(ResultTensor(name, datatype, array.shape, array.nbytes))
                body.append(packed(array))
                continue
            # Rows of text differ in length: each query's part has a size of its own.
            ends = np.cumsum([shape.rows for shape in group])
            try:
                parts = [encode(name, part)[1] for part in np.split(array, ends[:-1])]
            except CodecError as error:
                failed += [(k, str(error)) for k in (places if place is None else place)]
                break
            sizes = tuple(map(len, parts))
            headers.append(ResultTensor(name, "BYTES", array.shape, sum(sizes), sizes))
            body += parts
        else:
            answers.append(GroupAnswer(place, tuple(headers), body))
    return answers


def _cut(
    model: RunnableModel, batch: DispatchedBatch, places: Sequence[int], inputs: Arrays, outputs: Arrays
) -> list[tuple[Sequence[int], Sequence[CheckedShape], Arrays]]:
    """Each query's own outputs without padding; empty: the run's can stay in one."""
    shapes = [batch.shapes[place] for place in places]
    longest, lengths = {}, [{}] * len(places)
    if batch.padding and batch.body is None and len(places) > 1:
        longest = padding.lengths(model.inputs, inputs, batch.padding)
        lengths = [padding.lengths(model.inputs, batch.arrays[place], batch.padding) for place in places]
    if all(own == longest and shape.outputs == shapes[0].outputs for own, shape in zip(lengths, shapes, strict=True)):
        return []
    groups, start = [], 0
    for place, shape, own in zip(places, shapes, lengths, strict=True):
        end = start + shape.rows
        cut = {
            name: padding.cut(array[start:end], model.outputs[name], own, longest) for name, array in outputs.items()
        }
        groups.append(([place], [shape], cut))
        start = end
    return groups
