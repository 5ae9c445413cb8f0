"""Runs a batch and encodes its outputs, for one query or for many at once.

Done where models run, so that encoding text does not block the event loop.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence

import msgspec
import numpy as np

from workers.protocol.frames import Buffer, ResultTensor, TensorHeader

from . import runs
from .batch import DispatchedBatch
from .codec import DATATYPES, CodecError, encode, packed
from .runs import Part
from .runtime import RunnableModel


class GroupAnswer(msgspec.Struct, eq=False):
    """Outputs of queries whose shapes are equal except for their rows.

    Attributes:
        queries: their places in the batch; None: all.
    """

    queries: Sequence[int] | None
    headers: tuple[ResultTensor, ...] = ()
    body: tuple[Buffer, ...] = ()


#: of a batch: answers, (place, error text) of each query that the model raised for, and seconds inside ``session.run``
Outcome = tuple[list[GroupAnswer], list[tuple[int, str]], float]
#: a query's place in its batch, and its outputs
_Encoded = tuple[int, list[tuple[TensorHeader, Buffer]]]


def of_batch(model: RunnableModel, batch: DispatchedBatch) -> Outcome:
    """Run a batch; every query is in one answer or has an error of its own."""
    bindings, rows, tried = model.io_bindings, batch.rows, False
    fits = rows <= bindings.most_rows and rows <= batch.limit and batch.body is not None
    if fits and not (model.alone and len(batch.ids) > 1):
        wanted = batch.shapes[0].outputs if batch.same else _wanted(batch)
        if wanted is not None:
            packed = bindings.run(batch.body, rows, wanted)
            if packed is not None:
                headers, body, run_s = packed
                return [GroupAnswer(None, headers, body)], [], run_s
            tried = True
    parts, seconds = runs.run(model, batch)
    if tried and all(part.error is None for part in parts):
        # The model runs on arrays only: do not try bindings again.
        bindings.most_rows = 0
    if len(parts) == 1 and parts[0].outputs is not None:
        together = _whole(batch, parts[0].outputs)
        if together is not None:
            return [together], [], seconds
        parts = _cut(batch, parts[0])
    done, failed = _grouped(batch, parts)
    return done, failed, seconds


def _wanted(batch: DispatchedBatch) -> tuple[str, ...] | None:
    """Names of the outputs that all queries want; None: not all want the same."""
    shapes = batch.shapes
    wanted = shapes[0].outputs
    return wanted if batch.same or all(shape.outputs == wanted for shape in shapes) else None


def _whole(batch: DispatchedBatch, outputs: dict[str, np.ndarray]) -> GroupAnswer | None:
    """Encode all queries as one answer; None: outputs differ, or need encoding each."""
    wanted = _wanted(batch)
    if wanted is None:
        return None
    headers, body = [], []
    for name in wanted:
        array = outputs[name]
        datatype = DATATYPES.get(array.dtype)
        if datatype is None:
            return None
        headers.append(ResultTensor(name, datatype, array.shape, array.nbytes))
        body.append(packed(array))
    return GroupAnswer(None, tuple(headers), body)


def _cut(batch: DispatchedBatch, part: Part) -> list[Part]:
    parts, start = [], 0
    for place in part.places:
        end = start + batch.shapes[place].rows
        parts.append(Part((place,), {name: array[start:end] for name, array in part.outputs.items()}))
        start = end
    return parts


def _grouped(batch: DispatchedBatch, parts: Sequence[Part]) -> tuple[list[GroupAnswer], list[tuple[int, str]]]:
    failed: list[tuple[int, str]] = []
    alike: dict[Hashable, list[_Encoded]] = {}
    for part in parts:
        place = part.places[0]
        if part.error is not None:
            failed.append((place, part.error))
            continue
        try:
            tensors = [encode(name, part.outputs[name]) for name in batch.shapes[place].outputs]
        except CodecError as error:
            failed.append((place, str(error)))
            continue
        key = tuple((header.name, header.datatype, header.shape[1:]) for header, _ in tensors)
        alike.setdefault(key, []).append((place, tensors))
    return [_joined(sorted(group, key=operator.itemgetter(0))) for group in alike.values()], failed


def _joined(answers: Sequence[_Encoded]) -> GroupAnswer:
    headers, body = [], []
    for column in zip(*[tensors for _, tensors in answers], strict=True):
        first = column[0][0]
        sizes = tuple([header.nbytes for header, _ in column])
        shape = (sum([header.shape[0] for header, _ in column]), *first.shape[1:])
        headers.append(
            ResultTensor(first.name, first.datatype, shape, sum(sizes), sizes if first.datatype == "BYTES" else ())
        )
        body += [data for _, data in column]
    return GroupAnswer([place for place, _ in answers], tuple(headers), body)
