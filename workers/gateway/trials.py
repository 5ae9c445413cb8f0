"""Suspects tried alone: which device can be spared, and what becomes of the query and of others by the outcome.

A trial takes a device out of late binding for as long as it lasts, so that a crash costs nobody else an answer. It
never takes an application's last device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from workers import log
from workers.protocol.frames import Refusal

from .errors import GatewayError, ModelFailed, Unavailable
from .executors import Executors
from .flights import Flight, UnderWay
from .holding import Holding
from .insisting import Insisting
from .sent import Sent
from .suspects import Suspects

logger = log.get("gateway.trials")


class Trials:
    """Carries out what :class:`~.suspects.Suspects` keeps account of.

    Args:
        finish: ends a flight in an error.
        resume: holds or sends a flight that is no suspect any more.

    Attributes:
        reserved: devices with a trial under way; they get nothing else.
    """

    def __init__(
        self,
        executors: Executors,
        sent: Sent,
        holding: Holding,
        insisting: Insisting,
        finish: Callable[[Flight, GatewayError], None],
        resume: Callable[[Flight], None],
    ):
        self.suspects = Suspects()
        self.reserved: set[str] = set()
        self._executors = executors
        self._sent = sent
        self._holding = holding
        self._insisting = insisting
        self._finish = finish
        self._resume = resume

    def submit(self, flight: Flight, now: float) -> None:
        """Try a suspect as soon as the application has none on trial."""
        self.suspects.wait(flight)
        self._next(flight.spec.name, now)

    def withdraw(self, flight: Flight) -> None:
        """Forget a suspect that waits for its trial."""
        self.suspects.end(flight)

    def sweep(self, now: float) -> None:
        """End suspects whose time is over before their trial, and forget what was remembered long enough."""
        suspects = self.suspects
        if not suspects.active:
            return
        for flight in suspects.waiting():
            if _over(flight, now) or flight.expires <= now:
                suspects.end(flight)
                self._give_up(flight, "its time was over before it could be tried alone")
        suspects.sweep(now)

    # --- what becomes of queries --------------------------------------------------------------------------------------

    def crashed(
        self, device: str, reason: str, flights: Sequence[Flight], withdrawn: Sequence[Flight], now: float
    ) -> list[Flight]:
        """The device's executor crashed.

        Args:
            flights: the queries that were under way there.
            withdrawn: those that may have been, but nobody waits for.

        Returns:
            Those of ``flights`` that are known to be innocent, as one on trial there is the cause.
        """
        guilty = [flight for flight in (*flights, *withdrawn) if flight.incident]
        if guilty:
            for flight in guilty:
                self._convict(flight, f"device {device}: crashed with this query alone ({reason})", now)
                self._next(flight.spec.name, now)
            return [flight for flight in flights if not flight.incident]
        accused, incident = [*flights, *withdrawn], self.suspects.incident()
        for flight in accused:
            self.suspects.accuse(flight, incident, now)
        if len(accused) == 1:
            self.suspects.blame(accused[0], now)
        for flight in flights:
            flight.error = Unavailable(f"device {device}: crashed with the query under way ({reason})")
            self.suspects.wait(flight)
        logger.warning("device_crashed", device=device, reason=reason, suspects=len(accused))
        for name in dict.fromkeys(flight.spec.name for flight in flights):
            self._next(name, now)
        return []

    def stopped(self, device: str, flight: Flight, under_way: UnderWay | None, refusal: Refusal, now: float) -> None:
        """The run of the query was stopped by the watchdog; if it had other queries, too, each of them is a suspect.
        ``under_way``: its batch, where that was one of the dispatcher's."""
        text = f"device {device}: {refusal.message}"
        if flight.incident or not refusal.retryable:
            on_trial = bool(flight.incident)
            self._convict(flight, text, now)
            if on_trial:
                self._release(device, flight, now)
            return
        incident = under_way.incident if under_way is not None else 0
        if not incident:
            incident = self.suspects.incident()
            if under_way is not None:
                under_way.incident = incident
        self.suspects.accuse(flight, incident, now)
        if flight.answer is not None:
            flight.error = Unavailable(f"{text}; it was one of several queries")
            self.submit(flight, now)

    def answered(self, device: str, flight: Flight, now: float) -> None:
        """A suspect ran to its end: it did no harm."""
        self.suspects.acquit(flight)
        self._release(device, flight, now)

    def undecided(self, device: str, flight: Flight, now: float) -> None:
        """A trial ended before the suspect ran."""
        self._release(device, flight, now)

    def _convict(self, flight: Flight, text: str, now: float) -> None:
        self.suspects.end(flight)
        cleared = self.suspects.convict(flight, now)
        logger.error("query_convicted", application=flight.spec.name, reason=text, key=flight.client[:8])
        if flight.answer is not None:
            self._finish(flight, ModelFailed(f"{text}; it is not tried again"))
        for other in cleared:
            self._resume(other)

    def _release(self, device: str, flight: Flight, now: float) -> None:
        self.suspects.end(flight)
        self.reserved.discard(device)
        self._holding.refresh(device, now)
        self._next(flight.spec.name, now)

    def _give_up(self, flight: Flight, why: str) -> None:
        error = flight.error
        assert error is not None
        self._finish(flight, Unavailable(f"{error.message}; {why}; try again", error.retry_after_s or 1.0))

    # --- trials -------------------------------------------------------------------------------------------------------

    def _next(self, application: str, now: float) -> None:
        while (flight := self.suspects.next(application)) is not None:
            if _over(flight, now):
                self._give_up(flight, "no time is left to try it alone")
                continue
            chosen = self._spare(flight, now)
            if chosen is None:
                self._give_up(flight, "no other device can be spared to try it alone")
                continue
            device, variant, max_rows = chosen
            if not self._sent.alone(device, flight, variant, max_rows, time.monotonic()):
                self._give_up(flight, f"device {device} could not be reached to try it alone")
                continue
            self.suspects.begin(flight)
            self.reserved.add(device)
            self._holding.refresh(device, now)
            return

    def _spare(self, flight: Flight, now: float) -> tuple[str, int, int] | None:
        """Where a suspect may be tried: device, variant's id and rows that one run takes; None where that might cost
        the application its last device."""
        spec, executors = flight.spec, self._executors
        warm = executors.warm(spec.name)
        if len({device for device, _ in warm}) < 2:
            return None
        able = [
            one
            for one in self._insisting.able(spec.name, flight.rows)
            if (flight.allowed is None or one.device in flight.allowed)
            and flight.variant in (None, one.variant)
            and (flight.query.min_accuracy is None or one.accuracy >= flight.query.min_accuracy)
            and one.device not in self.reserved
        ]
        if not able:
            return None
        # Preferably not where it was, nor where others wait, nor another application's last device.
        others = executors.only_devices()
        device = min(
            {one.device for one in able},
            key=lambda name: (name in flight.tried, name in others, self._sent.outstanding.get(name, 0), name),
        )
        left = flight.due - now
        here = [one for one in able if one.device == device]
        in_time = [one for one in here if one.seconds is not None and one.seconds < left]
        if in_time:
            chosen = max(in_time, key=lambda one: one.accuracy)
        else:
            chosen = min(here, key=lambda one: (one.seconds is None, one.seconds or 0.0, one.variant))
        id = next(known.id for at, known in warm if at == device and known.name == chosen.variant)
        return device, id, self._insisting.max_rows(spec.name, device, id)


def _over(flight: Flight, now: float) -> bool:
    return flight.due <= now and flight.spec.late != "serve"
