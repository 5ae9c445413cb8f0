"""Runs one batch, synchronously, in the device's thread: every query gets its outputs or its own error."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from workers.protocol.frames import Buffer, TensorHeader

from . import padding
from .codec import CodecError, encode
from .queries import Query
from .runtime import Model, RunError

#: inputs of one run that padding may blow up to at most; queries that would need more run each by itself
MAX_PADDED_BYTES = 256 * 1024 * 1024


@dataclass(slots=True)
class Answer:
    """``outputs`` with their headers, or the ``error`` that the model raised for this query."""

    query: Query
    headers: tuple[TensorHeader, ...] = ()
    body: tuple[Buffer, ...] = ()
    error: str | None = None


def run(model: Model, queries: Sequence[Query], max_rows: int) -> tuple[list[Answer], float]:
    """Answers in any order, and the seconds spent inside ``session.run``.

    Queries of different forms cannot stand in one array and run one after the other. If a batch of several fails, each
    of its queries is tried once by itself, so that one poisonous query does not fail its neighbours.
    """
    by_form: dict[Hashable, list[Query]] = {}
    for query in queries:
        # Lengths that contradict each other are the model's to refuse, not ours to pad away.
        fits = not query.padding or padding.lengths(model.inputs, query.arrays, query.padding) is not None
        by_form.setdefault(query.form if fits else query.id, []).append(query)
    answers, seconds = [], 0.0
    for group in by_form.values():
        for attempt in (group,) if len(group) == 1 else (group, *([query] for query in group)):
            try:
                done, took = _together(model, attempt, max_rows)
            except RunError as error:
                if len(attempt) == 1:
                    answers.append(Answer(attempt[0], error=str(error)))
                continue
            answers += done
            seconds += took
            if len(attempt) == len(group):
                break
    return answers, seconds


def _together(model: Model, queries: Sequence[Query], max_rows: int) -> tuple[list[Answer], float]:
    values, arrays = queries[0].padding, [query.arrays for query in queries]
    if values and len(queries) > 1 and (size := padding.padded_bytes(arrays, values)) > MAX_PADDED_BYTES:
        raise RunError(f"padded inputs would take {size} bytes, at most {MAX_PADDED_BYTES} are allowed")
    inputs = padding.concatenate(arrays, values)
    outputs, seconds = model.run(inputs, max_rows)
    whole = padding.lengths(model.inputs, inputs, values) if values and len(queries) > 1 else None
    answers, start = [], 0
    for query in queries:
        mine = {name: array[start : start + query.rows] for name, array in outputs.items()}
        if whole:
            own = padding.lengths(model.inputs, query.arrays, values)
            mine = {name: padding.cut(array, model.outputs[name], own, whole) for name, array in mine.items()}
        answers.append(_answer(query, mine))
        start += query.rows
    return answers, seconds


def _answer(query: Query, outputs: dict[str, np.ndarray]) -> Answer:
    names = query.submit.outputs or outputs.keys()
    try:
        parts = [encode(name, outputs[name]) for name in names]
    except CodecError as error:
        return Answer(query, error=str(error))
    return Answer(query, tuple(header for header, _ in parts), tuple(data for _, data in parts))
