"""Sends answers: results of a batch, and refusals with their reason."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from workers import log
from workers.protocol.control import OVERLOAD_BUDGET_SHARE, FaultReport
from workers.protocol.frame_connection import FrameConnection
from workers.protocol.frames import Refusal, Relay, Results

from .accounting import Accounts
from .answers import GroupAnswer, Outcome
from .batch import DispatchedBatch, RefusalInfo
from .loaded import DeviceResidents, Loaded
from .peers import Peers

_log = log.get("executor.replies")


class Replies:
    def __init__(self, device: str, peers: Peers, residents: DeviceResidents, accounts: Accounts):
        self._device = device
        self._peers = peers
        self._residents = residents
        self._accounts = accounts

    def answer(
        self,
        batch: DispatchedBatch,
        loaded: Loaded,
        outcome: Outcome,
        queue_s: float,
        occupied_s: float,
        stopped_s: float = 0.0,
    ) -> None:
        """Answer a batch; ``stopped_s``: the limit at which the watchdog stopped it, or 0."""
        answers, failed, run_s = outcome
        ids, connection, variant = batch.ids, batch.connection, loaded.variant
        if connection.remote:
            answers, large = split_large(answers, connection.most_sent, range(len(ids)))
            failed = [*failed, *large]
        for answer in answers:
            message = Results(
                batch.number,
                tuple(ids if answer.queries is None else [ids[place] for place in answer.queries]),
                variant.name,
                loaded.accuracy,
                loaded.accuracy_normalized,
                queue_s,
                run_s,
                batch.rows,
                occupied_s,
                answer.headers,
                () if batch.rows == len(ids) else _rows(batch, answer.queries),
            )
            self._peers.send(connection, message, answer.body)
        if stopped_s:
            self._stopped(batch, loaded, [ids[place] for place, _ in failed], stopped_s)
            return
        for place, text in failed:
            self.refuse(connection, [ids[place]], variant.application, "failed", f"{variant.name}: {text}", False)

    def _stopped(self, batch: DispatchedBatch, loaded: Loaded, ids: Sequence[int], limit_s: float) -> None:
        variant = loaded.variant
        if ids:
            text = f"{variant.name}: the run did not end within {limit_s:g} s and was stopped"
            self.refuse(batch.connection, ids, variant.application, "stopped", text, len(batch.ids) > 1)
        _log.error("run_stopped", variant=variant.name, limit_s=limit_s)
        detail = f"a run of {variant.name} did not end within {limit_s:g} s and was stopped"
        self._peers.report(Relay(FaultReport(device=self._device, variant=variant.id, cause="stopped", detail=detail)))

    def refuse_all(self, infos: Iterable[RefusalInfo], code: str, text: str) -> None:
        """Refuse queries taken out of their batches; retryable while they have time left."""
        now = time.monotonic()
        for info in infos:
            if code == "late" and self._had_time(info):
                self._accounts.refused(info.application, info.rows)
            self.refuse(info.connection, [info.id], info.application, code, text, info.deadline > now)

    def refuse(
        self, connection: FrameConnection, ids: Sequence[int], application: str, code: str, text: str, retryable: bool
    ) -> None:
        """Refuse queries of one application; none of them waits any more."""
        # Gateways may send any name; only those of applications on this device become labels.
        label = application if application in self._residents.applications else ""
        self._accounts.meters.answered(label, "", code, len(ids))
        self._peers.send_all(connection, [(Refusal(id, code, text, retryable), ()) for id in ids])

    def _had_time(self, info: RefusalInfo) -> bool:
        application = self._residents.applications.get(info.application)
        return application is None or info.budget_s >= OVERLOAD_BUDGET_SHARE * application.spec.slo_s


def split_large(
    answers: Sequence[GroupAnswer], most: int, all_places: Sequence[int]
) -> tuple[list[GroupAnswer], list[tuple[int, str]]]:
    """Answers that the core accepts; (place, error text) of queries of larger ones."""
    accepted: list[GroupAnswer] = []
    large: list[tuple[int, str]] = []
    for answer in answers:
        nbytes = sum(header.nbytes for header in answer.headers)
        if nbytes <= most:
            accepted.append(answer)
            continue
        text = (
            f"the outputs of its run have {nbytes} bytes; at most {most} are sent to another box (they follow from "
            "NEREUS_MAX_REQUEST_MB of this one)"
        )
        large += [(place, text) for place in (all_places if answer.queries is None else answer.queries)]
    return accepted, large


def _rows(batch: DispatchedBatch, places: Sequence[int] | None) -> tuple[int, ...]:
    shapes = batch.shapes
    return tuple([shapes[place].rows for place in (range(len(shapes)) if places is None else places)])
