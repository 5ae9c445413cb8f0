"""Sends what a batch gave: results, or refusals of the queries that the model raised for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workers.protocol.frames import FrameConnection, Result, Results

from .answers import Answer, Together
from .intake import Intake
from .lanes import Batch
from .meters import Meters
from .peers import Peers


@dataclass(slots=True)
class Took:
    """Of a batch: when it ``started`` (seconds on the event loop's clock), seconds inside ``session.run``, and seconds
    that it held the device."""

    started: float
    run_s: float
    held_s: float


class Replies:
    def __init__(self, peers: Peers, intake: Intake, meters: Meters):
        self._peers = peers
        self._intake = intake
        self._meters = meters

    def of_queries(self, batch: Batch, answers: Sequence[Answer], took: Took) -> None:
        """A result for each query, or its own error; those of one gateway in one write."""
        loaded = batch.loaded
        variant, application = loaded.variant.name, loaded.variant.application
        results: dict[FrameConnection, list[tuple[Result, tuple]]] = {}
        served = 0
        for answer in answers:
            query = batch.queries[answer.query]
            waited_s = max(0.0, took.started - query.arrived)
            self._meters.waited(application, waited_s)
            if answer.error is not None:
                self._failed(query.connection, query.submit.id, batch, answer.error)
                continue
            served += 1
            result = Result(
                query.submit.id,
                variant,
                loaded.accuracy,
                loaded.accuracy_normalized,
                waited_s,
                took.run_s,
                batch.rows,
                answer.headers,
                took.held_s,
            )
            results.setdefault(query.connection, []).append((result, answer.body))
        for connection, some in results.items():
            self._peers.send_all(connection, some)
        self._meters.answered(application, variant, "ok", served)

    def of_granted(
        self, batch: Batch, answers: Sequence[Together], failed: Sequence[tuple[int, str]], took: Took
    ) -> None:
        """All that was granted together is answered together."""
        granted, loaded = batch.granted, batch.loaded
        variant, application = loaded.variant.name, loaded.variant.application
        ids, waited_s = granted.ids, max(0.0, took.started - granted.arrived)
        served = 0
        for answer in answers:
            whole = len(answer.queries) == len(ids)
            message = Results(
                granted.number,
                tuple(ids) if whole else tuple([ids[place] for place in answer.queries]),
                variant,
                loaded.accuracy,
                loaded.accuracy_normalized,
                waited_s,
                took.run_s,
                batch.rows,
                took.held_s,
                answer.headers,
            )
            self._peers.send(granted.connection, message, answer.body)
            served += len(message.ids)
        for place, text in failed:
            self._failed(granted.connection, ids[place], batch, text)
        self._meters.waited(application, waited_s, len(ids))
        self._meters.answered(application, variant, "ok", served)

    def _failed(self, connection: FrameConnection, id: int, batch: Batch, text: str) -> None:
        variant = batch.loaded.variant
        self._intake.refuse(connection, [id], variant.application, "failed", f"{variant.name}: {text}", False)
