"""Queries in flight when an executor crashed or a run was stopped.

One of them may be the cause, and would crash device after device if it were simply sent again. So each is a suspect: it
is tried once more, in a batch of its own behind which its device gets nothing, one suspect at a time. Inputs are
recognised by their digest, so that the same query does no further harm.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from workers import log

from .binding_driver import BindingDriver
from .errors import GatewayError, ModelFailed, Unavailable
from .in_flight import InFlightQuery

logger = log.get("gateway.suspects")

#: seconds for which inputs in flight at a crash are remembered
REMEMBERED_S = 300.0
#: remembered digests; beyond it, the oldest is forgotten
MOST_INPUTS = 4096
#: bytes at both ends of an input, which differ in most inputs
_ENDS = 32


@dataclass(slots=True)
class _Input:
    """Inputs in flight at a crash; ``confirmed``: they crashed a device alone."""

    until: float = 0.0
    confirmed: bool = False


class Suspects:
    """Suspects, at most one of them on trial, and remembered inputs.

    Attributes:
        active: there are suspects or remembered inputs, so that arriving queries must be judged.
        waiting: for their trial.
        on_trial: the suspect whose trial has begun last.
    """

    def __init__(self, driver: BindingDriver) -> None:
        self.active = False
        self.waiting: deque[InFlightQuery] = deque()
        self.on_trial: InFlightQuery | None = None
        self._driver = driver
        self._inputs: dict[bytes, _Input] = {}
        #: of all remembered inputs, and perhaps of forgotten ones
        self._ends: set[int] = set()

    @property
    def inputs(self) -> int:
        return len(self._inputs)

    # --- queries that arrive ------------------------------------------------------------------------------------------

    def judge(self, flight: InFlightQuery, now: float) -> GatewayError | None:
        """The error of an arriving query, if any; it may become a suspect instead."""
        known = self._known(flight, now)
        if known is None:
            return None
        if known.confirmed:
            return _refusal(flight, known, now)
        flight.suspected = True
        text = f"model {flight.spec.name!r}: this input was in flight when a device crashed"
        flight.error = Unavailable(text, known.until - now)
        return None

    def _judge_held(self, names: set[str], now: float) -> None:
        for flight in self._driver.held:
            if flight.spec.name in names and not flight.suspected:
                error = self.judge(flight, now)
                if error is not None or flight.suspected:
                    self._driver.withdraw(flight, now)
                if error is not None:
                    flight.front.finish(flight, error)
                elif flight.suspected:
                    self.waiting.append(flight)

    # --- trials -------------------------------------------------------------------------------------------------------

    def submit(self, flight: InFlightQuery, now: float) -> None:
        self.withdraw(flight)
        self.waiting.append(flight)
        self.try_next(now)

    def try_next(self, now: float) -> None:
        while self.waiting and (self.on_trial is None or self.on_trial.answer is None):
            flight = self.waiting.popleft()
            known = self._known(flight, now)
            if known is not None and known.confirmed:
                flight.front.finish(flight, _refusal(flight, known, now))
            else:
                self.on_trial = flight
                flight.tried_alone, flight.key = True, (flight.key, flight.id)
                self._hold(flight)

    def _hold(self, flight: InFlightQuery) -> None:
        flight.reservation = None
        self._driver.submit(flight)

    def withdraw(self, flight: InFlightQuery) -> None:
        """Forget a suspect; what runs already goes on."""
        if flight is self.on_trial:
            self.on_trial = None
        if flight in self.waiting:
            self.waiting.remove(flight)

    def sweep(self, now: float) -> None:
        """End suspects whose time is over, and forget old inputs."""
        if not self.active:
            return
        for flight in list(self.waiting):
            if flight.expires <= now or (flight.due <= now and flight.spec.late != "serve"):
                self.waiting.remove(flight)
                text = f"{flight.error.message}; its time was over before it could be tried alone; try again"
                flight.front.finish(flight, Unavailable(text, flight.error.retry_after_s))
        self._inputs = {digest: known for digest, known in self._inputs.items() if known.until > now}
        self.active = bool(self._inputs or self.waiting)
        if not self.active:
            self._ends.clear()
        self.try_next(now)

    # --- crashes ------------------------------------------------------------------------------------------------------

    def crashed(
        self, device: str, reason: str, flights: Sequence[InFlightQuery], withdrawn: Sequence[InFlightQuery], now: float
    ) -> None:
        # Those that were cancelled may have been in flight.
        suspected = [*flights, *withdrawn]
        if len(suspected) == 1 and suspected[0].tried_alone:
            self._confirm(suspected[0], f"device {device}: crashed with this query alone ({reason})", now)
            return
        logger.warning("device_crashed", device=device, reason=reason, suspects=len(suspected))
        for flight in suspected:
            self.suspect(flight, now)
        for flight in flights:
            flight.error = Unavailable(f"device {device}: crashed with the query in flight ({reason})")
            self.withdraw(flight)
            self.waiting.append(flight)
        self._judge_held({flight.spec.name for flight in suspected}, now)

    def stopped(self, flight: InFlightQuery, text: str, alone: bool, now: float) -> None:
        """A run was stopped; ``alone``: it had no other query."""
        if alone:
            self._confirm(flight, text, now)
            return
        self.suspect(flight, now)
        self._judge_held({flight.spec.name}, now)
        if flight.answer is not None:
            flight.error = Unavailable(f"{text}; it was one of several queries")
            self.submit(flight, now)

    def suspect(self, flight: InFlightQuery, now: float) -> None:
        # On trial behind another batch, it has not run.
        flight.suspected, flight.tried_alone = True, False
        self._remember(flight, now)

    def clear(self, flight: InFlightQuery) -> None:
        """The suspect ran without a crash: forget its inputs."""
        self._inputs.pop(_digest(flight), None)

    def _confirm(self, flight: InFlightQuery, text: str, now: float) -> None:
        """Refuse inputs that crashed a device alone; the other suspects are batched again."""
        logger.error("suspect_confirmed", application=flight.spec.name, reason=text, key=flight.client[:8])
        self._remember(flight, now).confirmed = True
        if flight.answer is not None:
            flight.front.finish(flight, ModelFailed(f"{text}; it is not tried again"))
        for other in [other for other in self.waiting if other.spec.name == flight.spec.name]:
            known = self._known(other, now)
            if known is None or not known.confirmed:
                self.waiting.remove(other)
                self._hold(other)
        self._judge_held({flight.spec.name}, now)

    # --- inputs -------------------------------------------------------------------------------------------------------

    def _remember(self, flight: InFlightQuery, now: float) -> _Input:
        if len(self._inputs) >= MOST_INPUTS:
            del self._inputs[next(iter(self._inputs))]
        known = self._inputs.setdefault(_digest(flight), _Input())
        known.until = now + REMEMBERED_S
        self._ends.add(_ends(flight))
        self.active = True
        return known

    def _known(self, flight: InFlightQuery, now: float) -> _Input | None:
        # Only inputs with equal ends are hashed whole.
        if _ends(flight) not in self._ends:
            return None
        known = self._inputs.get(_digest(flight))
        return known if known is not None and known.until > now else None


def _refusal(flight: InFlightQuery, known: _Input, now: float) -> ModelFailed:
    return ModelFailed(
        f"model {flight.spec.name!r}: this input crashed a device or never ended;"
        f" it is refused for another {known.until - now:.0f} s"
    )


def _ends(flight: InFlightQuery) -> int:
    ends = [(bytes(part[:_ENDS]), bytes(part[-_ENDS:])) for part in flight.query.parts]
    return hash((flight.spec.name, flight.query.terms.shape.inputs, *ends))


def _digest(flight: InFlightQuery) -> bytes:
    digest = hashlib.blake2b(repr((flight.spec.name, flight.query.terms.shape.inputs)).encode(), digest_size=16)
    for part in flight.query.parts:
        digest.update(part)
    return digest.digest()
