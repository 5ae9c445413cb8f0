"""Sends what a batch gave: results, or refusals of the queries that the model raised for."""

from __future__ import annotations

from collections.abc import Sequence

from workers.protocol.frames import FrameConnection, Result, Results

from .answers import Answer, Outcome
from .granted import Granted
from .intake import Intake
from .lanes import Batch
from .loaded import Loaded
from .meters import Meters
from .peers import Peers


class Replies:
    def __init__(self, peers: Peers, intake: Intake, meters: Meters):
        self._peers = peers
        self._intake = intake
        self._meters = meters

    def of_queries(
        self,
        batch: Batch,
        answers: Sequence[Answer],
        started: float,
        run_s: float,
        held_s: float,
        stopped_s: float = 0.0,
    ) -> None:
        """A result for each query, or its own error; those of one gateway in one write.

        Args:
            started: seconds on the event loop's clock.
            run_s: seconds inside ``session.run``.
            held_s: seconds that the batch held the device.
            stopped_s: the watchdog's limit in seconds if it stopped the batch, else 0.
        """
        loaded = batch.loaded
        variant, application = loaded.variant.name, loaded.variant.application
        results: dict[FrameConnection, list[tuple[Result, tuple]]] = {}
        served = 0
        for answer in answers:
            query = batch.queries[answer.query]
            waited_s = max(0.0, started - query.arrived)
            self._meters.waited(application, waited_s)
            if answer.error is not None:
                if stopped_s:
                    self._cut_off(query.connection, [query.submit.id], loaded, stopped_s, len(batch.queries) > 1)
                else:
                    self._failed(query.connection, query.submit.id, loaded, answer.error)
                continue
            served += 1
            result = Result(
                query.submit.id,
                variant,
                loaded.accuracy,
                loaded.accuracy_normalized,
                waited_s,
                run_s,
                batch.rows,
                answer.headers,
                held_s,
            )
            results.setdefault(query.connection, []).append((result, answer.body))
        for connection, some in results.items():
            self._peers.send_all(connection, some)
        self._meters.answered(application, variant, "ok", served)

    def of_granted(
        self,
        granted: Granted,
        loaded: Loaded,
        outcome: Outcome,
        waited_s: float,
        held_s: float,
        stopped_s: float = 0.0,
    ) -> None:
        """All that was granted together is answered together. ``waited_s``: from receipt to start; others as above."""
        answers, failed, run_s = outcome
        ids, connection = granted.ids, granted.connection
        for answer in answers:
            message = Results(
                granted.number,
                tuple(ids if answer.queries is None else [ids[place] for place in answer.queries]),
                loaded.variant.name,
                loaded.accuracy,
                loaded.accuracy_normalized,
                waited_s,
                run_s,
                granted.rows,
                held_s,
                answer.headers,
                () if granted.rows == len(ids) else _rows(granted, answer.queries),
            )
            self._peers.send(connection, message, answer.body)
        if stopped_s and failed:
            self._cut_off(connection, [ids[place] for place, _ in failed], loaded, stopped_s, len(ids) > 1)
            return
        for place, text in failed:
            self._failed(connection, ids[place], loaded, text)

    def _failed(self, connection: FrameConnection, id: int, loaded: Loaded, text: str) -> None:
        variant = loaded.variant
        self._intake.refuse(connection, [id], variant.application, "failed", f"{variant.name}: {text}", False)

    def _cut_off(
        self, connection: FrameConnection, ids: Sequence[int], loaded: Loaded, limit_s: float, several: bool
    ) -> None:
        """Refuse the queries of a stopped run. Any of several may be the endless one: each may be tried again."""
        variant = loaded.variant
        text = f"{variant.name}: the run did not end within {limit_s:g} s and was stopped"
        self._intake.refuse(connection, ids, variant.application, "stopped", text, several)


def _rows(granted: Granted, places: Sequence[int] | None) -> tuple[int, ...]:
    """Of each of these queries; None: of all."""
    layouts = granted.layouts
    return tuple([layouts[place].rows for place in (range(len(layouts)) if places is None else places)])
