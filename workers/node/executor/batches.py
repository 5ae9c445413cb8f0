"""Runs one batch, synchronously, in the device's thread: every query gets its outputs or its own error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workers.protocol.frames import Buffer, TensorHeader

from .codec import CodecError, encode
from .queries import Query
from .runtime import Model, RunError, concatenate


@dataclass(slots=True)
class Answer:
    """``outputs`` with their headers, or the ``error`` that the model raised for this query."""

    query: Query
    headers: tuple[TensorHeader, ...] = ()
    body: tuple[Buffer, ...] = ()
    error: str | None = None


def run(model: Model, queries: Sequence[Query], max_rows: int) -> tuple[list[Answer], float]:
    """Answers in any order, and the seconds spent inside ``session.run``.

    Queries whose free dimensions differ cannot stand in one array and run one after the other. If a batch of several
    fails, each of its queries is tried once by itself, so that one poisonous query does not fail its neighbours.
    """
    by_form: dict[tuple, list[Query]] = {}
    for query in queries:
        by_form.setdefault(query.form, []).append(query)
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
    outputs, seconds = model.run(concatenate([query.arrays for query in queries]), max_rows)
    answers, start = [], 0
    for query in queries:
        answers.append(_answer(query, outputs, start))
        start += query.rows
    return answers, seconds


def _answer(query: Query, outputs: dict[str, np.ndarray], start: int) -> Answer:
    names = query.submit.outputs or outputs.keys()
    try:
        parts = [encode(name, outputs[name][start : start + query.rows]) for name in names]
    except CodecError as error:
        return Answer(query, error=str(error))
    return Answer(query, tuple(header for header, _ in parts), tuple(data for _, data in parts))
