"""The core's side of fronts in other processes."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from workers import log
from workers.protocol.control import GatewayConfig
from workers.protocol.frame_connection import FrameConnection
from workers.protocol.frame_limits import PeerLimits
from workers.protocol.frames import Frame, Hello
from workers.protocol.framing import FrameError
from workers.protocol.gateways import (
    Answered,
    Configure,
    CoreStatus,
    Failed,
    FrontStats,
    FrontTotals,
    Ping,
    Pong,
    Status,
    SubmitQueries,
    ToCore,
    WithdrawQueries,
)
from workers.protocol.results import Answer as PackedAnswer
from workers.protocol.specs import ApplicationStats
from workers.trust.endpoints import MemberListener
from workers.trust.member import PeerIdentity
from workers.v2.query import MOST, Terms, V2Query

from .core import Core
from .errors import GatewayError, HandedBack, NotFound
from .in_flight import InFlightQuery, Run
from .totals import added

logger = log.get("gateway.remote_front")

#: totals of ended fronts that are kept apart, so that one that connects again is counted once
MOST_ENDED = 16
#: a front in the core's own process counts from 1
_ids = itertools.count(2**48)


class RemoteFront:
    def __init__(self, connection: FrameConnection, core: Core) -> None:
        self._connection = connection
        self._core = core
        self._flights: dict[int, InFlightQuery] = {}
        self._terms: dict[tuple, Terms] = {}
        #: of a front on this box, as received last
        self.totals = FrontTotals()

    # --- from the front -----------------------------------------------------------------------------------------------

    def submit(self, message: SubmitQueries, body: memoryview) -> None:
        now = time.monotonic()
        spec = self._core.catalog.applications.get(message.application)
        # By place, since a shape's hash is as long as the shape.
        known: dict[tuple[int, float | None], Terms] = {}
        at = 0
        for number, place, age_s, latency_s, variant, min_accuracy, client in message.queries:
            terms = known.get((place, min_accuracy)) or known.setdefault(
                (place, min_accuracy), self._terms_of(message, place, min_accuracy)
            )
            parts = []
            for header in terms.shape.inputs:
                parts.append(body[at : at + header.nbytes])
                at += header.nbytes
            if spec is None:
                self._fail(number, NotFound(f"model {message.application[:80]!r}: no such application"))
                continue
            if number in self._flights:
                raise FrameError(f"number: {number} waits for its answer already")
            query = V2Query("", terms, parts, latency_s)
            flight = InFlightQuery(next(_ids), spec, query, variant, now - age_s, _waits, number)
            flight.front, flight.client = self, client
            self._flights[number] = flight
            self._core.submit(flight)
        if at != len(body):
            raise FrameError(f"body has {len(body)} bytes, its tensors {at}")

    def _terms_of(self, message: SubmitQueries, place: int, min_accuracy: float | None) -> Terms:
        if not 0 <= place < len(message.shapes):
            raise FrameError(f"shape: must be from 0 to {len(message.shapes) - 1}, not {place}")
        shape = message.shapes[place]
        if shape.rows < 1 or any(header.nbytes < 0 for header in shape.inputs):
            raise FrameError("shape: must have a row or more, and inputs of no negative size")
        key = (message.application, shape, min_accuracy)
        terms = self._terms.get(key)
        if terms is None:
            if len(self._terms) >= MOST:
                # Clients may ask for another least accuracy, or send another shape, each time.
                self._terms.clear()
            nbytes = sum(header.nbytes for header in shape.inputs)
            terms = self._terms[key] = Terms(shape, shape.rows, (), nbytes, None, min_accuracy)
        return terms

    def withdraw(self, message: WithdrawQueries) -> None:
        now = time.monotonic()
        for number in message.numbers:
            flight = self._flights.pop(number, None)
            if flight is not None:
                self._core.withdraw(flight, now)
                flight.answer = flight.reservation = None

    def lost(self) -> None:
        self.withdraw(WithdrawQueries(tuple(self._flights)))

    def forget_terms(self) -> None:
        self._terms.clear()

    def send(self, message: Frame) -> None:
        self._connection.send(message)

    # --- as the core's front ------------------------------------------------------------------------------------------

    def deliver(
        self, flights: Sequence[InFlightQuery | None], run: Run, queue_s: float, answers: Sequence[PackedAnswer]
    ) -> None:
        # By identity, since answers of equal shapes share their headers, and hashing these takes longer.
        places: dict[int, int] = {}
        outputs, queries, body = [], [], []
        for flight, (headers, parts) in zip(flights, answers, strict=True):
            if flight is not None:
                flight.answer = flight.reservation = None
                del self._flights[flight.context]
                place = places.get(id(headers))
                if place is None:
                    place = places[id(headers)] = len(outputs)
                    outputs.append(headers)
                queries.append((flight.context, place, queue_s + flight.sent_at - flight.arrived))
                body += parts
        message = Answered(
            run.device,
            run.variant,
            run.accuracy,
            run.accuracy_normalized,
            run.run_s,
            run.rows,
            tuple(outputs),
            tuple(queries),
            run.occupied_s,
        )
        self._connection.send(message, body)

    def finish(self, flight: InFlightQuery, error: GatewayError) -> None:
        if flight.answer is not None:
            flight.answer = flight.reservation = None
            del self._flights[flight.context]
            self._fail(flight.context, error)

    def _fail(self, number: int, error: GatewayError) -> None:
        handed_back = isinstance(error, HandedBack)
        name = "Unavailable" if handed_back else type(error).__name__
        self._connection.send(Failed(number, name, error.message, error.retry_after_s, handed_back))


class Fronts:
    def __init__(self, core: Core, status: Callable[[], CoreStatus]) -> None:
        self._path: Path | None = None
        self._members: MemberListener | None = None
        self._core = core
        self._status = status
        self._config: GatewayConfig | None = None
        self._gateways: set[PeerIdentity] = set()
        self._reported = CoreStatus()
        self._fronts: dict[FrameConnection, RemoteFront] = {}
        self._stats: list[dict[str, ApplicationStats]] = []
        #: totals of fronts whose connections ended, by their process
        self._ended: dict[float, FrontTotals] = {}
        self._server: asyncio.Server | None = None

    async def listen(self, path: Path) -> None:
        """Listen to fronts of this box, in place of an earlier process that was killed. Raises OSError."""
        path.unlink(missing_ok=True)
        self._path = path
        self._server = await asyncio.get_running_loop().create_unix_server(self._connection, str(path))

    def listen_to_members(self, listener: socket.socket, limits: PeerLimits) -> None:
        """Listen to fronts of other boxes once this member has a certificate (:meth:`certified`)."""
        self._members = MemberListener(listener, self._connection, self._listed, limits)

    async def certified(self, pem: bytes) -> None:
        if self._members is not None:
            await self._members.use(pem)

    def _connection(self, kind: type[FrameConnection] = FrameConnection, **named) -> FrameConnection:
        return kind(ToCore, self._on_message, self._on_closed, **named)

    def _listed(self, identity: PeerIdentity) -> bool:
        return identity in self._gateways

    def configure(self, config: GatewayConfig) -> None:
        self._config = config
        self._gateways = {
            PeerIdentity(peer.role, peer.name, peer.key_hash) for peer in config.peers if peer.role == "gateway"
        }
        if self._members is not None:
            self._members.cut_unlisted()
        for connection, front in self._fronts.items():
            front.forget_terms()
            if not connection.remote:
                front.send(Configure(config))

    def report(self) -> None:
        if not self._fronts:
            return
        status = self._status()
        if status != self._reported:
            self._reported = status
            for front in self._fronts.values():
                front.send(Status(status))

    @property
    def local(self) -> list[RemoteFront]:
        return [front for connection, front in self._fronts.items() if not connection.remote]

    @property
    def elsewhere(self) -> FrontTotals:
        """Totals of this box's other fronts."""
        return added([*self._ended.values(), *(front.totals for front in self.local)])

    def share(self, own: FrontTotals) -> None:
        """Send each front of this box the totals of all others."""
        local = self.local
        for front in local:
            front.send(added([own, *self._ended.values(), *(other.totals for other in local if other is not front)]))

    def take_stats(self) -> list[dict[str, ApplicationStats]]:
        taken, self._stats = self._stats, []
        return taken

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
        if self._members is not None:
            self._members.close()
        for connection in list(self._fronts):
            connection.close()

    def _on_message(self, connection: FrameConnection, message: Frame, body: memoryview) -> None:
        front = self._fronts.get(connection)
        if type(message) is SubmitQueries and front is not None:
            front.submit(message, body)
        elif isinstance(message, WithdrawQueries) and front is not None:
            front.withdraw(message)
        elif isinstance(message, FrontStats) and front is not None:
            self._stats.append(message.applications)
        elif isinstance(message, FrontTotals) and front is not None and not connection.remote:
            front.totals = message
            self._ended.pop(message.began, None)
        elif isinstance(message, Hello) and front is None:
            connection.check_hello(message, "front")
            connection.peer = message
            front = self._fronts[connection] = RemoteFront(connection, self._core)
            if self._config is not None and not connection.remote:
                front.send(Configure(self._config))
            front.send(Status(self._status()))
            logger.info("front_joined", name=message.name)
        elif isinstance(message, Ping) and connection.peer is not None:
            connection.send(Pong())
        else:
            raise FrameError("the first frame must be Hello, and no other one")

    def _on_closed(self, connection: FrameConnection, error: Exception | None) -> None:
        front = self._fronts.pop(connection, None)
        if front is not None:
            front.lost()
            self._ended[front.totals.began] = front.totals
            if len(self._ended) > MOST_ENDED:
                # A front connects again within seconds, or never.
                oldest = [self._ended.pop(began) for began in list(self._ended)[:2]]
                self._ended = {0.0: added(oldest), **self._ended}
            logger.warning("front_lost", name=connection.peer.name, reason=str(error or ""))


def _waits(flight: InFlightQuery, outcome: object) -> None:
    """The front answers; a query without this has ended."""
