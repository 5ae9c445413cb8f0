"""Trials of suspects: the choice of a device, and the outcomes.

A device is reserved for a trial, which begins once it is idle: a crash then costs no other query its answer and has
only one possible cause. It is never the application's last device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from workers import log
from workers.protocol.frames import Refusal
from workers.protocol.run_limits import GRACE_S, limit_s

from .binding_driver import BindingDriver
from .constraints import Constraints
from .errors import ModelFailed, Throttled, Unavailable
from .executors import Executors
from .in_flight import InFlightBatch, InFlightQuery
from .in_flight_table import InFlightTable
from .suspects import Suspects

logger = log.get("gateway.trials")

#: seconds after the watchdog's limit and grace at which a trial without an answer ends
ANSWER_MARGIN_S = 2.0


class Trials:
    """Carries out the trials of :class:`~.suspects.Suspects`.

    Args:
        resume: holds a flight that is no suspect any more.

    Attributes:
        reserved: suspects by the device where each is or will be tried alone, with the end of the reservation.
    """

    def __init__(
        self,
        executors: Executors,
        sent: InFlightTable,
        driver: BindingDriver,
        constraints: Constraints,
        resume: Callable[[InFlightQuery], None],
    ):
        self.suspects = Suspects()
        self.reserved: dict[str, tuple[InFlightQuery, float]] = {}
        self._executors = executors
        self._sent = sent
        self._driver = driver
        self._constraints = constraints
        self._resume = resume

    def submit(self, flight: InFlightQuery, now: float) -> None:
        """Try a suspect as soon as the application has none on trial."""
        self.suspects.wait(flight)
        self._next(flight.spec.name, now)

    def withdraw(self, flight: InFlightQuery) -> None:
        """Forget a suspect that waits for its trial; a trial in progress goes on."""
        self.suspects.withdraw(flight)
        self._unreserve(flight, time.monotonic())

    def progress(self, now: float) -> None:
        """Begin trials whose device may be idle now."""
        for name in self.suspects.applications():
            self._next(name, now)

    def sweep(self, now: float) -> None:
        """End suspects whose time is over before their trial, and forget old inputs."""
        suspects = self.suspects
        if not suspects.active:
            return
        for device, (flight, until) in list(self.reserved.items()):
            if now > until:
                self._release(device, flight, now)
        for flight in suspects.waiting():
            if _over(flight, now) or flight.expires <= now:
                suspects.withdraw(flight)
                self._unreserve(flight, now)
                self._give_up(flight, "its time was over before it could be tried alone")
        self.progress(now)
        suspects.sweep(now)

    # --- outcomes -----------------------------------------------------------------------------------------------------

    def lost(self, device: str) -> InFlightQuery | None:
        """The device is lost; the suspect that was tried there alone, if there was one."""
        flight, _ = self.reserved.pop(device, (None, 0.0))
        return flight if flight is not None and flight.device in (None, device) and flight.tried_alone else None

    def crashed(
        self,
        device: str,
        reason: str,
        flights: Sequence[InFlightQuery],
        withdrawn: Sequence[InFlightQuery],
        on_trial: InFlightQuery | None,
        now: float,
    ) -> None:
        """The device's executor crashed.

        Args:
            flights: the queries in flight there.
            withdrawn: cancelled queries that may have been in flight.
            on_trial: the suspect that was tried there.
        """
        suspected = [flight for flight in (*flights, *withdrawn) if flight is not on_trial]
        if on_trial is not None:
            self.suspects.end(on_trial)
            if not suspected:
                self._confirm(on_trial, f"device {device}: crashed with this query alone ({reason})", now)
                self.progress(now)
                return
            # Another query was sent there meanwhile, and either may be the cause.
            suspected.append(on_trial)
            on_trial.tried_alone = False
        incident = self.suspects.incident()
        for flight in suspected:
            self.suspects.add(flight, incident, now)
        if len(suspected) == 1:
            self.suspects.blame(suspected[0], now)
        for flight in flights:
            flight.error = Unavailable(f"device {device}: crashed with the query in flight ({reason})")
            self.suspects.wait(flight)
        logger.warning("device_crashed", device=device, reason=reason, suspects=len(suspected))
        self._judge_held({flight.spec.name for flight in suspected}, now)
        self.progress(now)

    def stopped(
        self, device: str, flight: InFlightQuery, in_flight: InFlightBatch | None, refusal: Refusal, now: float
    ) -> None:
        """Handle a stopped run; other queries of the run are suspects, too.

        Args:
            in_flight: the query's batch, if a binding dispatched it.
        """
        text = f"device {device}: {refusal.message}"
        on_trial = self._tried_at(device, flight)
        if on_trial or not refusal.retryable:
            if on_trial:
                self.suspects.end(flight)
            self._confirm(flight, text, now)
            if on_trial:
                self._release(device, flight, now)
            return
        incident = in_flight.incident if in_flight is not None else 0
        if not incident:
            incident = self.suspects.incident()
            if in_flight is not None:
                in_flight.incident = incident
        self.suspects.add(flight, incident, now)
        self._judge_held([flight.spec.name], now)
        if flight.answer is not None:
            flight.error = Unavailable(f"{text}; it was one of several queries")
            self.submit(flight, now)

    def answered(self, device: str, flight: InFlightQuery, now: float) -> None:
        """A suspect's run ended: it is cleared."""
        self.suspects.clear(flight)
        self.undecided(device, flight, now)

    def undecided(self, device: str, flight: InFlightQuery, now: float) -> None:
        """A trial ended before the suspect ran."""
        if self._tried_at(device, flight):
            self._release(device, flight, now)

    def _tried_at(self, device: str, flight: InFlightQuery) -> bool:
        known, _ = self.reserved.get(device, (None, 0.0))
        return known is flight

    def _confirm(self, flight: InFlightQuery, text: str, now: float) -> None:
        cleared = self.suspects.confirm(flight, now)
        logger.error("suspect_confirmed", application=flight.spec.name, reason=text, key=flight.client[:8])
        if flight.answer is not None:
            flight.front.finish(flight, ModelFailed(f"{text}; it is not tried again"))
        for other in cleared:
            self._unreserve(other, now)
            self._resume(other)
        self._judge_held([flight.spec.name], now)

    def _judge_held(self, applications: Iterable[str], now: float) -> None:
        """Queries with the same inputs may be held already."""
        names = set(applications)
        for flight in self._driver.held:
            if flight.spec.name in names and not flight.incident:
                error = self.suspects.judge(flight, now)
                if error is None and not flight.incident:
                    continue
                self._driver.withdraw(flight, now)
                if error is not None:
                    flight.front.finish(flight, error)
                else:
                    self.suspects.wait(flight)

    def _release(self, device: str, flight: InFlightQuery, now: float) -> None:
        self.suspects.end(flight)
        if self._tried_at(device, flight):
            del self.reserved[device]
        self._driver.refresh(device, now)
        self.progress(now)

    def _give_up(self, flight: InFlightQuery, why: str) -> None:
        error = flight.error
        assert error is not None
        flight.front.finish(flight, Unavailable(f"{error.message}; {why}; try again", error.retry_after_s or 1.0))

    # --- trials -------------------------------------------------------------------------------------------------------

    def _next(self, application: str, now: float) -> None:
        while (flight := self.suspects.next(application)) is not None:
            error = self.suspects.confirmed(flight, now)
            if error is None and self.suspects.throttled(flight, now):
                error = Throttled(f"model {application!r}: queries of this API key crashed devices repeatedly", 1.0)
            if error is not None:
                self._unreserve(flight, now)
                flight.front.finish(flight, error)
                continue
            if _over(flight, now):
                self._unreserve(flight, now)
                self._give_up(flight, "no time is left to try it alone")
                continue
            device = self._spare(flight)
            if device is None:
                if self.reserved:
                    # Another trial may release a device in time.
                    self.suspects.put_back(flight)
                    return
                self._give_up(flight, "no other device is free to try it alone")
                continue
            self._reserve(device, flight, now)
            if not self._sent.alone_with(device, now):
                self.suspects.put_back(flight)
                return
            if self._begin(device, flight, now):
                return
            self._unreserve(flight, now)
            self._give_up(flight, f"device {device} could not be reached to try it alone")

    def _begin(self, device: str, flight: InFlightQuery, now: float) -> bool:
        variant, max_rows = self._choose(device, flight, now)
        if not self._sent.send_trial(device, flight, variant, max_rows, time.monotonic()):
            return False
        flight.tried_alone = True
        self._reserve(device, flight, now)
        self.suspects.begin(flight)
        return True

    def _reserve(self, device: str, flight: InFlightQuery, now: float) -> None:
        self.reserved[device] = flight, now + limit_s(0.0, flight.spec.slo_s) + GRACE_S + ANSWER_MARGIN_S
        self._driver.refresh(device, now)

    def _unreserve(self, flight: InFlightQuery, now: float) -> None:
        for device in [device for device, (known, _) in self.reserved.items() if known is flight]:
            del self.reserved[device]
            self._driver.refresh(device, now)

    def _spare(self, flight: InFlightQuery) -> str | None:
        """Return a device for a trial; None: the application's last, or all reserved."""
        for device, (known, _) in self.reserved.items():
            if known is flight:
                return device
        name = flight.spec.name
        free = {device for device, _ in self._executors.warm(name)}.difference(self.reserved)
        able = {one.device for one in self._able(flight)}.intersection(free)
        if len(free) < 2 or not able:
            return None
        # Preferably not one that it was sent to, nor another application's last device, nor a busy one.
        others, outstanding = self._executors.only_devices(self.reserved), self._sent.outstanding
        return min(able, key=lambda one: (one in flight.tried, one in others, outstanding.get(one, 0), one))

    def _able(self, flight: InFlightQuery) -> list:
        permitted = flight.query_class.permitted
        return [
            one
            for one in self._constraints.able(flight.spec.name, flight.rows)
            if permitted is None or one.id in permitted
        ]

    def _choose(self, device: str, flight: InFlightQuery, now: float) -> tuple[int, int]:
        """Choose the most accurate variant in time, or the fastest: id, largest batch."""
        left, name = flight.due - now, flight.spec.name
        here = [one for one in self._able(flight) if one.device == device]
        in_time = [one for one in here if one.seconds is not None and one.seconds < left]
        if in_time:
            chosen = max(in_time, key=lambda one: one.accuracy)
        else:
            chosen = min(here, key=lambda one: (one.seconds is None, one.seconds or 0.0, one.variant))
        return chosen.id, self._constraints.max_rows(name, device, chosen.id)


def _over(flight: InFlightQuery, now: float) -> bool:
    return flight.due <= now and flight.spec.late != "serve"
