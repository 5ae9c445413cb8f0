"""Queries to several gateways: the load, and queries with their attempts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import onnxruntime

from appliance.demo.manifest import DemoApplication
from benchmarks.faults.checker import Query, queries_of
from benchmarks.faults.clients import Stream
from benchmarks.faults.history import Event

INPUTS = 8


def stream(application: DemoApplication, rate: float) -> Stream:
    spec = application.signature["inputs"][0]
    rows = [np.asarray(row, np.float32)[np.newaxis] for row in application.samples()[spec["name"]][:INPUTS]]
    outputs = {}
    for variant in application.variants:
        session = onnxruntime.InferenceSession(str(variant.path), providers=["CPUExecutionProvider"])
        outputs[variant.name] = [session.run(None, {spec["name"]: row})[0].tobytes() for row in rows]
    inputs = {"columns": list(rows[0].shape[1:]), "rows": [row.tobytes() for row in rows], "input": spec["name"]}
    return Stream(application.name, "http", rate, outputs=outputs, **inputs)


class Asked(NamedTuple):
    """A query with its attempts.

    Attributes:
        place: of the first address.
        again: the second attempt; None where it was not repeated.
    """

    place: int
    first: Query
    again: Query | None

    @property
    def last(self) -> Query:
        return self.again or self.first

    @property
    def took_s(self) -> float:
        return self.last.end.at - self.first.sent.at


def asked(events: Iterable[Event]) -> list[Asked]:
    attempts: dict[str, list[Query]] = {}
    for query in queries_of(events):
        attempts.setdefault(query.sent.id.rpartition("@")[0], []).append(query)
    return [Asked(int(some[0].sent.id.rpartition("@")[2]), some[0], (*some, None)[1]) for some in attempts.values()]
