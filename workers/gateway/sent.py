"""What is at devices: queries and batches sent, who has which, and how long the way there and back takes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from workers.dispatch.menu import Option
from workers.dispatch.state import Batch
from workers.protocol.frames import Form, Grant, Submit
from workers.protocol.tensors import Buffer

from .executors import Executors
from .flights import Flight
from .margin import ReturnMargin
from .metrics import GatewayMetrics
from .router import QueryRouter

#: the longest time past that an executor is told of
_LONG_PAST_S: Final = -3600.0
#: bytes of inputs in one grant, unless a single query has more; a batch of more goes in several
GRANT_BYTES: Final = 64 * 1024 * 1024


class Sent:
    """Flights by the device that they were sent to. Keeps the router's count of them."""

    def __init__(self, router: QueryRouter, executors: Executors, metrics: GatewayMetrics):
        self._router = router
        self._executors = executors
        self._metrics = metrics
        self._by_device: dict[str, dict[int, Flight]] = {}
        self._margins: dict[str, ReturnMargin] = {}
        self._grants = itertools.count(1)

    @property
    def outstanding(self) -> dict[str, int]:
        """Queries sent and not yet answered, by device."""
        return {device: len(flights) for device, flights in self._by_device.items()}

    def flights(self) -> list[Flight]:
        """All of them."""
        return [flight for flights in self._by_device.values() for flight in flights.values()]

    def expired(self, now: float) -> list[Flight]:
        """Those that nobody answered in their time."""
        return [one for flights in self._by_device.values() for one in flights.values() if one.expires <= now]

    def idle(self, application: str) -> set[str]:
        """Devices with something warm for the application and no query of this gateway's."""
        if all(self._by_device.get(device) for device in self._executors.states()):
            return set()
        return {device for device, _ in self._executors.warm(application) if not self._by_device.get(device)}

    # --- there --------------------------------------------------------------------------------------------------------

    def submit(self, device: str, flight: Flight, now: float) -> bool:
        """Send one query; False where that is impossible just now."""
        self._tried(flight, device)
        name, query, form = flight.spec.name, flight.query, flight.query.terms.form
        budget = max(_LONG_PAST_S, flight.due - now - self.margin(device).seconds)
        message = Submit(
            flight.id, name, budget, form.rows, form.inputs, form.outputs, flight.variant, query.min_accuracy
        )
        if not self._executors.ask(device, [(message, query.parts)]):
            return False
        flight.device, flight.sent_at = device, now
        self._of(device)[flight.id] = flight
        self._router.sent(device, name, flight.rows, now)
        return True

    def grant(self, batch: Batch, now: float) -> bool:
        """Send a batch to its device; False where that is impossible just now."""
        device: str = batch.device.name  # type: ignore[assignment]
        name, option = batch.application.owner, batch.option
        latest = now + self.margin(device).seconds
        flights: list[Flight] = batch.queries  # type: ignore[assignment]
        grants = [_granted(next(self._grants), name, option, some, latest) for some in _pieces(flights)]
        if not self._executors.ask(device, grants):
            return False
        known = self._of(device)
        first = (device,)
        for flight in flights:
            if flight.tries:
                self._tried(flight, device)
            else:
                flight.tries, flight.tried = 1, first
            flight.device, flight.sent_at = device, now
            known[flight.id] = flight
        self._router.sent(device, name, batch.rows, now)
        return True

    def _tried(self, flight: Flight, device: str) -> None:
        if flight.tries:
            self._metrics.rerouted.inc()
            flight.tried = (*flight.tried, device)
        else:
            flight.tried = (device,)
        flight.tries += 1

    def _of(self, device: str) -> dict[int, Flight]:
        known = self._by_device.get(device)
        if known is None:
            known = self._by_device[device] = {}
        return known

    # --- and back -----------------------------------------------------------------------------------------------------

    def landed(self, device: str, id: int) -> Flight | None:
        """The flight that a device answered, or that is given up; None if it is not there (any more). The router is the
        caller's to tell."""
        flight = self._of(device).pop(id, None)
        if flight is not None:
            flight.device = None
        return flight

    def landed_all(self, device: str, ids: Sequence[int]) -> list[Flight | None]:
        """As :meth:`landed`, of several."""
        known = self._of(device)
        flights = [known.pop(id, None) for id in ids]
        for flight in flights:
            if flight is not None:
                flight.device = None
        return flights

    def lost(self, device: str, now: float) -> list[Flight]:
        """The device is gone, and with it all that was there."""
        flights = list(self._by_device.pop(device, {}).values())
        self._margins.pop(device, None)
        for flight in flights:
            flight.device = None
            self._router.done(device, flight.spec.name, flight.rows, now, False)
        return flights

    def margin(self, device: str) -> ReturnMargin:
        """What the way to the device and back takes."""
        margin = self._margins.get(device)
        if margin is None:
            margin = self._margins[device] = ReturnMargin()
        return margin


def _granted(
    number: int, application: str, option: Option, flights: Sequence[Flight], latest: float
) -> tuple[Grant, list[Buffer]]:
    """The message and its body. ``latest``: now, less what the way takes."""
    forms: list[Form] = []
    places: dict[int, int] = {}
    queries = []
    for flight in flights:
        form = flight.query.terms.form
        # Queries that are spelled alike share the object; those that are not may still have equal ones, at no harm.
        place = places.get(id(form))
        if place is None:
            place = places[id(form)] = len(forms)
            forms.append(form)
        left = flight.due - latest
        queries.append((flight.id, place, left if left > _LONG_PAST_S else _LONG_PAST_S))
    if len(forms[0].inputs) == 1:
        body = [flight.query.parts[0] for flight in flights]
    else:
        body = [flight.query.parts[i] for i in range(len(forms[0].inputs)) for flight in flights]
    variant: int = option.variant  # type: ignore[assignment]
    return Grant(number, application, variant, option.max_rows, tuple(forms), tuple(queries)), body


def _pieces(flights: Sequence[Flight]) -> Iterator[Sequence[Flight]]:
    """As they are, or cut where a frame would become too large."""
    if len(flights) == 1 or sum([flight.query.terms.nbytes for flight in flights]) <= GRANT_BYTES:
        yield flights
        return
    some: list[Flight] = []
    size = 0
    for flight in flights:
        nbytes = flight.query.terms.nbytes
        if some and size + nbytes > GRANT_BYTES:
            yield some
            some, size = [], 0
        some.append(flight)
        size += nbytes
    yield some
