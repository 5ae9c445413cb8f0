"""In-flight queries by device: sending and completing batches."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence

from workers.dispatch.binding import Dispatch
from workers.protocol.frames import Buffer, RequestShape, RunBatch
from workers.protocol.run_limits import GRACE_S, limit_s

from .executors import Executors
from .in_flight import InFlightQuery, pieces
from .metrics import GatewayMetrics
from .network import Network

#: the lowest budget that is sent, in seconds
_LONG_PAST_S = -3600.0
#: withdrawn queries that are remembered for each device
_WITHDRAWN = 16
#: bytes of inputs beyond which a withdrawn query is not remembered
_WITHDRAWN_BYTES = 1024 * 1024
#: seconds beyond the watchdog's limit and its grace that a stopped run's answer may take
_ANSWER_MARGIN_S = 1.0


class InFlightTable:
    def __init__(self, executors: Executors, metrics: GatewayMetrics, network: Network):
        self._executors = executors
        self._metrics = metrics
        self._network = network
        self._by_device: defaultdict[str, dict[int, InFlightQuery]] = defaultdict(dict)
        #: by device and query id: withdrawn queries, and until when they may still run there
        self._withdrawn: dict[str, dict[int, tuple[InFlightQuery, float]]] = {}
        self._numbers = itertools.count(1)

    @property
    def outstanding(self) -> dict[str, int]:
        return {device: len(flights) for device, flights in self._by_device.items()}

    def flights(self) -> list[InFlightQuery]:
        return [flight for flights in self._by_device.values() for flight in flights.values()]

    # --- there --------------------------------------------------------------------------------------------------------

    def dispatch(self, batch: Dispatch, now: float) -> bool:
        device: str = batch.device_name  # type: ignore[assignment]
        name, option = batch.application_name, batch.option
        network = self._network
        latest = now + network.rtts[device].seconds
        if device in network.transfers:
            nbytes = sum([flight.query.terms.nbytes for flight in batch.queries])
            latest += nbytes * network.transfers[device].byte_s
        flights: list[InFlightQuery] = batch.queries  # type: ignore[assignment]
        variant: int = option.variant  # type: ignore[assignment]
        messages = []
        for some in [flights] if len(flights) == 1 else pieces(flights):
            messages.append(_run_batch(next(self._numbers), name, variant, option.max_rows, some, latest))
        if not self._executors.send_batches(device, messages):
            return False
        known = self._by_device[device]
        for flight in flights:
            if flight.tries:
                self._metrics.rerouted.inc()
            flight.tries += 1
            flight.device, flight.sent_at = device, now
            known[flight.id] = flight
        return True

    # --- and back -----------------------------------------------------------------------------------------------------

    def completed(self, device: str, id: int) -> InFlightQuery | None:
        """Remove and return an ended query; None if it is not there."""
        return self.complete_all(device, (id,))[0]

    def complete_all(self, device: str, ids: Sequence[int]) -> list[InFlightQuery | None]:
        known = self._by_device[device]
        flights = [known.pop(id, None) for id in ids]
        for flight in flights:
            if flight is not None:
                flight.device = None
        return flights

    def give_up_at(self, flight: InFlightQuery) -> float:
        """Return when to give up a query.

        One alone on its device may run until the watchdog stops it; others end when they expire, since their device may
        never reach them.
        """
        in_flight = flight.batch
        if flight.device is None or next(iter(self._by_device[flight.device].values()), None) is not flight:
            return flight.expires
        expected_s = 0.0
        if in_flight is not None:
            if len(in_flight.batch.queries) > 1:
                return flight.expires
            expected_s = in_flight.batch.end - in_flight.batch.dispatched_at
        return flight.sent_at + limit_s(expected_s, flight.spec.slo_s) + GRACE_S + _ANSWER_MARGIN_S

    def withdraw(self, device: str, id: int, now: float) -> InFlightQuery | None:
        """Remove and remember a query that may still run; as :meth:`completed`."""
        flight = self.completed(device, id)
        if flight is not None and flight.query.terms.nbytes <= _WITHDRAWN_BYTES:
            withdrawn = self._withdrawn.setdefault(device, {})
            for other in [other for other, (_, until) in withdrawn.items() if until <= now]:
                del withdrawn[other]
            if len(withdrawn) >= _WITHDRAWN:
                del withdrawn[next(iter(withdrawn))]
            withdrawn[id] = flight, flight.sent_at + limit_s(0.0, flight.spec.slo_s) + GRACE_S + _ANSWER_MARGIN_S
        return flight

    def withdrawn(self, device: str, id: int) -> InFlightQuery | None:
        """Remove and return a withdrawn query that the device answered all the same."""
        known = self._withdrawn.get(device, {}).pop(id, None)
        return None if known is None else known[0]

    def all_withdrawn(self, device: str, now: float) -> list[InFlightQuery]:
        """Remove and return withdrawn queries that may have run when the device was lost."""
        return [flight for flight, until in self._withdrawn.pop(device, {}).values() if until > now]

    def lost(self, device: str) -> list[InFlightQuery]:
        flights = list(self._by_device.pop(device, {}).values())
        self._network.lost(device)
        for flight in flights:
            flight.device = None
        return flights


def _run_batch(
    number: int, application: str, variant: int, max_rows: int, flights: Sequence[InFlightQuery], latest: float
) -> tuple[RunBatch, list[Buffer]]:
    """The message and its body. ``latest``: now, plus the round trip."""
    shapes: list[RequestShape] = []
    places: dict[int, int] = {}
    queries = []
    for flight in flights:
        shape = flight.query.terms.shape
        # Queries that are spelled alike share the object; those that are not may still have equal ones, at no harm.
        place = places.get(id(shape))
        if place is None:
            place = places[id(shape)] = len(shapes)
            shapes.append(shape)
        left = flight.due - latest
        queries.append((flight.id, place, left if left > _LONG_PAST_S else _LONG_PAST_S))
    if len(shapes[0].inputs) == 1:
        body = [flight.query.parts[0] for flight in flights]
    else:
        body = [flight.query.parts[i] for i in range(len(shapes[0].inputs)) for flight in flights]
    return RunBatch(number, application, variant, max_rows, tuple(shapes), tuple(queries)), body
