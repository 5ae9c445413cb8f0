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
from .codec import DATATYPE_OF, CodecError, encode_texts, packed
from .runtime import Arrays, RunError, RunnableModel


class GroupAnswer(msgspec.Struct, eq=False):
    """Outputs of queries whose shapes are equal except for their rows."""

    queries: Sequence[int] | None  # their places in the batch; None: all
    headers: tuple[ResultTensor, ...] = ()
    body: Sequence[Buffer] = ()


#: of a batch: answers, (place, error text) of each query that the model raised for, and seconds inside ``session.run``
Outcome = tuple[list[GroupAnswer], list[tuple[int, str]], float]


def of_batch(model: RunnableModel, batch: DispatchedBatch) -> Outcome:
    """Run a batch; every query is in one answer or has an error of its own."""
    answers: list[GroupAnswer] = []
    failed: list[tuple[int, str]] = []
    seconds, every = 0.0, range(len(batch.ids))
    in_one_piece = batch.body is not None and not model.alone
    runs = [every] if in_one_piece else _runs(model, batch)
    while runs:
        places = runs.pop(0)
        # A run that fails is repeated query by query, so that one query does not fail its neighbours.
        try:
            inputs = batch.whole() if places is every else batch.inputs(places)
            outputs, took = model.run(inputs, batch.limit)
        except (RunError, padding.PaddingError) as error:
            if len(places) > 1:
                runs[:0] = [[place] for place in places]
            else:
                failed.append((places[0], str(error)))
            continue
        seconds += took
        # Queries are answered together, unless they want other outputs or were padded.
        groups = [(places, outputs)]
        if not batch.same or (batch.padding and batch.body is None):
            groups = _cut(model, batch, places, inputs, outputs) or groups
        # A type that V2 lacks is every query's: no further run would help.
        for group, arrays in groups:
            try:
                answers.append(_encoded(batch, group, arrays))
            except CodecError as error:
                failed += [(place, str(error)) for place in group]
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


def _cut(
    model: RunnableModel, batch: DispatchedBatch, places: Sequence[int], inputs: Arrays, outputs: Arrays
) -> list[tuple[Sequence[int], Arrays]]:
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
        groups.append(([place], cut))
        start = end
    return groups


def _encoded(batch: DispatchedBatch, places: Sequence[int], outputs: Arrays) -> GroupAnswer:
    every = len(places) == len(batch.ids)
    shapes = batch.shapes if every else [batch.shapes[place] for place in places]
    headers, body = [], []
    for name in shapes[0].outputs:
        array = outputs[name]
        datatype = DATATYPE_OF.get(array.dtype)
        if datatype is not None:
            headers.append(ResultTensor(name, datatype, array.shape, array.nbytes))
            body.append(packed(array))
            continue
        if array.dtype != object:
            raise CodecError(f"{name}: arrays of {array.dtype} have no V2 datatype")
        # Rows of text differ in length: each query's part has a size of its own.
        ends = np.cumsum([shape.rows for shape in shapes])
        parts = [encode_texts(part) for part in np.split(array, ends[:-1])]
        sizes = tuple(map(len, parts))
        headers.append(ResultTensor(name, "BYTES", array.shape, sum(sizes), sizes))
        body += parts
    return GroupAnswer(None if every else places, tuple(headers), body)
