"""Queries in flight when an executor crashed or a run was stopped. Pure.

One of them may be the cause, and would crash device after device if it were simply sent again. So each is a suspect: it
is tried once more, alone, one suspect of an application at a time, until one crashes again, which clears the others of
the incident. Meanwhile inputs are recognised by their digest, so that the same query does no further harm, and a key
whose queries crash devices repeatedly is throttled for that application.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from dataclasses import dataclass, field

from .errors import GatewayError, ModelFailed, Throttled, Unavailable
from .in_flight import InFlightQuery

#: seconds for which inputs in flight at a crash are remembered
REMEMBERED_S = 300.0
#: remembered digests; beyond it, the oldest is forgotten
MOST_INPUTS = 4096
#: bytes at both ends of an input, which differ in most inputs
_ENDS = 32
#: incidents within KEY_WINDOW_S from which a key is throttled
KEY_CRASHES = 3
#: seconds in which these count
KEY_WINDOW_S = 600.0
#: seconds between two queries of a throttled key
KEY_INTERVAL_S = 1.0


@dataclass(slots=True)
class _Input:
    """Inputs in flight at a crash.

    Attributes:
        incident: the latest crash.
        ends: a quick hash of the inputs.
        confirmed: they crashed a device alone.
    """

    ends: int
    incident: int
    until: float
    confirmed: bool = False


@dataclass(slots=True)
class _Key:
    """Crashes by queries of one key to one application.

    Attributes:
        crashes: times of the incidents.
        incident: the latest, whose query may crash a second device.
        next_at: when the key's next query is admitted.
    """

    crashes: deque[float] = field(default_factory=lambda: deque(maxlen=KEY_CRASHES))
    incident: int = 0
    next_at: float = 0.0

    def throttled(self, now: float) -> bool:
        return len(self.crashes) == KEY_CRASHES and now - self.crashes[0] < KEY_WINDOW_S


class Suspects:
    """Suspects by application, at most one of them on trial, and remembered inputs.

    Attributes:
        active: there are suspects or remembered inputs or keys, so that arriving queries must be judged.
    """

    def __init__(self) -> None:
        self.active = False
        self._waiting: dict[str, deque[InFlightQuery]] = {}
        self._on_trial: dict[str, InFlightQuery] = {}
        self._inputs: dict[bytes, _Input] = {}
        #: how many remembered inputs have these ends
        self._ends: dict[int, int] = {}
        #: by hash and application
        self._keys: dict[tuple[str, str], _Key] = {}
        self._incidents = itertools.count(1)

    def throttled(self, flight: InFlightQuery, now: float) -> bool:
        """Return True if the query's key is throttled for its application."""
        key = self._keys.get((flight.client, flight.spec.name))
        return key is not None and key.throttled(now)

    @property
    def inputs(self) -> int:
        """Number of remembered inputs."""
        return len(self._inputs)

    # --- queries that arrive ------------------------------------------------------------------------------------------

    def judge(self, flight: InFlightQuery, now: float) -> GatewayError | None:
        """Return the error that ends an arriving query at once, or None.

        A query with inputs under suspicion becomes a suspect itself.
        """
        key = self._keys.get((flight.client, flight.spec.name))
        if key is not None and key.throttled(now):
            if now < key.next_at:
                return Throttled(
                    f"model {flight.spec.name!r}: queries of this API key crashed devices, or did not end,"
                    f" {KEY_CRASHES} times within {KEY_WINDOW_S / 60:.0f} minutes; it is limited to one query in"
                    f" {KEY_INTERVAL_S:g} s here",
                    key.next_at - now,
                )
            key.next_at = now + KEY_INTERVAL_S
        known = self._known(flight, now)
        if known is None:
            return None
        if known.confirmed:
            return _refusal(flight, known, now)
        flight.incident = known.incident
        flight.error = Unavailable(
            f"model {flight.spec.name!r}: this input was in flight when a device crashed", known.until - now
        )
        return None

    def confirmed(self, flight: InFlightQuery, now: float) -> GatewayError | None:
        """Return the error for inputs that have crashed a device alone, or None."""
        known = self._known(flight, now)
        return _refusal(flight, known, now) if known is not None and known.confirmed else None

    def _known(self, flight: InFlightQuery, now: float) -> _Input | None:
        # Only inputs with equal ends are hashed whole.
        if not self._ends.get(_ends(flight)):
            return None
        known = self._inputs.get(_digest(flight))
        return known if known is not None and known.until > now else None

    # --- trials -------------------------------------------------------------------------------------------------------

    def incident(self) -> int:
        """A number for a crash or a stopped run."""
        return next(self._incidents)

    def add(self, flight: InFlightQuery, incident: int, now: float) -> None:
        """Remember the inputs of a query that was in flight at a crash."""
        flight.incident = incident
        self._remember(flight, now, confirmed=False)

    def wait(self, flight: InFlightQuery) -> None:
        """Queue a suspect for its trial."""
        self._waiting.setdefault(flight.spec.name, deque()).append(flight)

    def put_back(self, flight: InFlightQuery) -> None:
        """Queue a suspect again, before all others of its application."""
        self._waiting.setdefault(flight.spec.name, deque()).appendleft(flight)

    def applications(self) -> list[str]:
        """Applications whose suspects wait for their trial."""
        return list(self._waiting)

    def next(self, application: str) -> InFlightQuery | None:
        """Take the application's next suspect; None: one is on trial, or none waits."""
        waiting = self._waiting.get(application)
        if application in self._on_trial or not waiting:
            return None
        flight = waiting.popleft()
        if not waiting:
            del self._waiting[application]
        return flight

    def begin(self, flight: InFlightQuery) -> None:
        """The suspect's trial begins."""
        self._on_trial[flight.spec.name] = flight

    def end(self, flight: InFlightQuery) -> None:
        """End the trial, also of a suspect that still waits for one."""
        if self._on_trial.get(flight.spec.name) is flight:
            del self._on_trial[flight.spec.name]
        self.withdraw(flight)

    def withdraw(self, flight: InFlightQuery) -> None:
        """Forget a suspect that waits for its trial."""
        name = flight.spec.name
        waiting = self._waiting.get(name)
        if waiting is not None and flight in waiting:
            waiting.remove(flight)
            if not waiting:
                del self._waiting[name]

    def clear(self, flight: InFlightQuery) -> None:
        """The suspect ran without a crash: forget its inputs."""
        self._forget(_digest(flight))

    def confirm(self, flight: InFlightQuery, now: float) -> list[InFlightQuery]:
        """The suspect crashed a device alone, or its run did not end.

        Returns:
            Queries of the incident that waited for their trial and are suspects no more: not those with the same
            inputs, and none if the key is throttled by now.
        """
        incident = flight.incident
        self._remember(flight, now, confirmed=True)
        self.blame(flight, now)
        if not incident or self.throttled(flight, now):
            return []
        for digest in [d for d, known in self._inputs.items() if known.incident == incident and not known.confirmed]:
            self._forget(digest)
        others = [other for other in self.waiting() if other.incident == incident]
        cleared = [other for other in others if self.confirmed(other, now) is None]
        for other in cleared:
            self.end(other)
            other.incident = 0
        return cleared

    def blame(self, flight: InFlightQuery, now: float) -> None:
        """Count an incident against the key that the query came with, once."""
        if not flight.client:
            return
        key = self._keys.setdefault((flight.client, flight.spec.name), _Key())
        if not flight.incident or flight.incident != key.incident:
            key.crashes.append(now)
            key.incident = flight.incident
            self.active = True

    def waiting(self) -> list[InFlightQuery]:
        """All that wait for their trial."""
        return [flight for flights in self._waiting.values() for flight in flights]

    def sweep(self, now: float) -> None:
        """Forget old inputs and keys."""
        if not self.active:
            return
        for digest in [digest for digest, known in self._inputs.items() if known.until <= now]:
            self._forget(digest)
        for old in [old for old, key in self._keys.items() if now - key.crashes[-1] >= KEY_WINDOW_S]:
            del self._keys[old]
        self.active = bool(self._inputs or self._keys or self._waiting or self._on_trial)

    # --- inputs -------------------------------------------------------------------------------------------------------

    def _remember(self, flight: InFlightQuery, now: float, confirmed: bool) -> None:
        digest = _digest(flight)
        known = self._inputs.get(digest)
        if known is None:
            if len(self._inputs) >= MOST_INPUTS:
                self._forget(next(iter(self._inputs)))
            known = self._inputs[digest] = _Input(_ends(flight), 0, 0.0)
            self._ends[known.ends] = self._ends.get(known.ends, 0) + 1
        known.incident = flight.incident
        known.confirmed = known.confirmed or confirmed
        known.until = now + REMEMBERED_S
        self.active = True

    def _forget(self, digest: bytes) -> None:
        known = self._inputs.pop(digest, None)
        if known is not None:
            self._ends[known.ends] -= 1
            if not self._ends[known.ends]:
                del self._ends[known.ends]


def _refusal(flight: InFlightQuery, known: _Input, now: float) -> ModelFailed:
    return ModelFailed(
        f"model {flight.spec.name!r}: this input crashed a device or never ended;"
        f" it is refused for another {known.until - now:.0f} s"
    )


def _ends(flight: InFlightQuery) -> int:
    """A quick hash of the application and both ends of each input."""
    ends = [(bytes(part[:_ENDS]), bytes(part[-_ENDS:])) for part in flight.query.parts]
    return hash((flight.spec.name, flight.query.terms.shape.inputs, *ends))


def _digest(flight: InFlightQuery) -> bytes:
    """A digest of application and inputs, whatever the query's encoding."""
    found = hashlib.blake2b(repr((flight.spec.name, flight.query.terms.shape.inputs)).encode(), digest_size=16)
    for part in flight.query.parts:
        found.update(part)
    return found.digest()
