"""What is at devices: queries and batches sent, who has which, and how long the way there and back takes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from workers.dispatch.devices import Batch
from workers.protocol.frames import Grant, GrantedQuery, Submit

from .executors import Executors
from .flights import Flight
from .margin import ReturnMargin
from .metrics import GatewayMetrics
from .router import QueryRouter

#: the longest time past that an executor is told of
_LONG_PAST_S = -3600.0
#: bytes of inputs in one grant, unless a single query has more; a batch of more goes in several
GRANT_BYTES = 64 * 1024 * 1024


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

    def idle(self, application: str) -> set[str]:
        """Devices with something warm for the application and no query of this gateway's."""
        if all(self._by_device.get(device) for device in self._executors.states()):
            return set()
        return {device for device, _ in self._executors.warm(application) if not self._by_device.get(device)}

    # --- there --------------------------------------------------------------------------------------------------------

    def submit(self, device: str, flight: Flight, now: float) -> bool:
        """Send one query; False where that is impossible just now."""
        self._tried(flight, device)
        name, query = flight.spec.name, flight.query
        budget = max(_LONG_PAST_S, flight.due - now - self.margin(device).seconds)
        outputs = tuple(output for output, _ in query.outputs)
        message = Submit(
            flight.id, name, budget, query.rows, query.tensors, outputs, flight.variant, query.min_accuracy
        )
        if not self._executors.send(device, message, query.parts):
            return False
        self._leave(flight, device, now)
        self._router.sent(device, name, query.rows, now)
        return True

    def grant(self, batch: Batch, now: float) -> bool:
        """Send a batch to its device; False where that is impossible just now."""
        device, name, option = batch.device.name, batch.application.owner, batch.option
        latest = now + self.margin(device).seconds
        for flights in _pieces(batch.queries):
            queries = tuple(
                GrantedQuery(
                    flight.id,
                    max(_LONG_PAST_S, flight.due - latest),
                    flight.rows,
                    flight.query.tensors,
                    tuple(output for output, _ in flight.query.outputs),
                )
                for flight in flights
            )
            message = Grant(next(self._grants), name, option.variant, option.max_rows, queries)
            if not self._executors.send(device, message, [part for flight in flights for part in flight.query.parts]):
                return False
        for flight in batch.queries:
            self._tried(flight, device)
            self._leave(flight, device, now)
        self._router.sent(device, name, batch.rows, now)
        return True

    def _tried(self, flight: Flight, device: str) -> None:
        if flight.tries:
            self._metrics.rerouted.inc()
        flight.tries += 1
        flight.tried.add(device)

    def _leave(self, flight: Flight, device: str, now: float) -> None:
        flight.device, flight.sent_at = device, now
        self._by_device.setdefault(device, {})[flight.id] = flight

    # --- and back -----------------------------------------------------------------------------------------------------

    def landed(self, device: str, id: int) -> Flight | None:
        """The flight that a device answered, or that is given up; None if it is not there (any more). The router is the
        caller's to tell."""
        flight = self._by_device.get(device, {}).pop(id, None)
        if flight is not None:
            flight.device = None
        return flight

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


def _pieces(flights: Sequence[Flight]) -> Iterator[Sequence[Flight]]:
    """As they are, or cut where a frame would become too large."""
    some: list[Flight] = []
    size = 0
    for flight in flights:
        if some and size + flight.bytes > GRANT_BYTES:
            yield some
            some, size = [], 0
        some.append(flight)
        size += flight.bytes
    yield some
