"""A front's link to the core in another process."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from workers import log
from workers.protocol.control import GatewayConfig
from workers.protocol.frame_connection import FrameConnection
from workers.protocol.frames import Frame, Hello, RequestShape
from workers.protocol.framing import FrameError
from workers.protocol.gateways import (
    Answered,
    Configure,
    CoreStatus,
    Failed,
    FromCore,
    FrontStats,
    FrontTotals,
    Ping,
    Status,
    SubmitQueries,
    WithdrawQueries,
)
from workers.trust.endpoints import Endpoint, TlsClient, connect

from . import errors
from .errors import Unavailable
from .front import Front
from .in_flight import InFlightQuery, Run, pieces

logger = log.get("gateway.core_link")

#: seconds between two attempts to reach the core, and one on another box
RETRY_S, RETRY_FAR_S = 0.05, 0.5
#: seconds for a connection to a core: a system would repeat its first packet ever more rarely, up to a minute apart
CONNECT_S = 3.0
#: attempts to reach the core of which the first is logged
LOG_EVERY = 200
#: seconds between two signs of life of a core on another box, and without one until it is considered lost
PING_EVERY_S, LOST_S = 0.4, 1.5
#: losses of the core that a query survives
MAX_LOSSES = 1
#: seconds of statistics that are kept while the core is away
REPORTS = 60


class CoreLink:
    """Sends a front's queries to the core and receives their answers.

    While the core is away, queries wait for it as long as they have time. Those that were sent are sent once more.

    Args:
        endpoint: where the core listens for fronts.
        hello: what this front says of itself.
        configure: called with each configuration that the core sends; None: this front has it from elsewhere.
        client: for a core on another box.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        hello: Hello,
        front: Front,
        configure: Callable[[GatewayConfig], None] | None = None,
        client: TlsClient | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._hello = hello
        self._front = front
        self._configure = configure
        self._client = client
        #: called when the core begins or ceases to lead, as far as this front knows
        self.on_changed: Callable[[], object] = lambda: None
        self._received_at = self._pinged_at = 0.0
        self._status = CoreStatus(leads=False)
        self._unanswered: dict[int, InFlightQuery] = {}
        self._queued: list[InFlightQuery] = []
        self._unreported: deque[FrontStats] = deque(maxlen=REPORTS)
        #: of the box's other fronts, as received last
        self.elsewhere = FrontTotals()
        self._connection: FrameConnection | None = None
        self._closed = asyncio.Event()
        #: the core has taken this front, and why the connection ended
        self._joined, self._reason = False, ""
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task | None = None

    def start(self) -> None:
        self._task = self._loop.create_task(self._run(), name="core-link")

    @property
    def name(self) -> str:
        member = self._endpoint.member
        return self._endpoint.address if member is None else member.name

    def status(self) -> CoreStatus:
        return self._status

    @property
    def leads(self) -> bool:
        return self._connection is not None and self._status.leads

    @property
    def core(self) -> CoreLink:
        return self

    def hand_over(self, _front: Front) -> list[InFlightQuery]:
        """Remove and return what another core may answer: all, if this one is lost."""
        if self._connection is not None:
            return []
        flights, self._unanswered, self._queued = self.flights, {}, []
        return flights

    def report(self, stats: FrontStats) -> None:
        self._unreported.append(stats)
        self._send_reports()

    def share(self, own: FrontTotals) -> None:
        if self._connection is not None:
            self._connection.send(own)

    def _send_reports(self) -> None:
        while self._unreported and self._connection is not None and self._connection.send(self._unreported[0]):
            self._unreported.popleft()

    def submit(self, flight: InFlightQuery) -> None:
        self._unanswered[flight.id] = flight
        if self._connection is None:
            # Sent once the core is back. A queue would keep inputs of queries that ended meanwhile.
            return
        if not self._queued:
            self._loop.call_soon(self._flush)
        self._queued.append(flight)

    def withdraw(self, flight: InFlightQuery, now: float) -> None:
        if self._unanswered.pop(flight.id, None) is not None and self._connection is not None:
            self._connection.send(WithdrawQueries((flight.id,)))

    @property
    def flights(self) -> list[InFlightQuery]:
        return list(self._unanswered.values())

    def tick(self, now: float) -> None:
        """Give up expired queries; while the core is away, those past their deadline."""
        away = self._connection is None
        if not away and not self._endpoint.local:
            self._look_alive(now)
        for flight in self.flights:
            if now >= (flight.due if away and flight.spec.late != "serve" else flight.expires + 1.0):
                del self._unanswered[flight.id]
                self._front.finish(flight, Unavailable("the gateway's core cannot be reached now; try again"))

    def _look_alive(self, now: float) -> None:
        # A box that is gone closes no connection.
        if now - self._received_at >= LOST_S:
            self._connection.fail(TimeoutError(f"silent for {LOST_S:g} s"))
        elif now - self._pinged_at >= PING_EVERY_S:
            self._pinged_at = now
            self._connection.send(Ping())

    async def close(self) -> None:
        """Disconnect for good; :meth:`hand_over` has what another core may answer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()
            self._forget_connection()

    # --- to the core --------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        connection = self._connection
        if connection is None:
            return
        now = time.monotonic()
        queued, self._queued = self._queued, []
        by_application: dict[str, list[InFlightQuery]] = {}
        for flight in queued:
            if flight.answer is not None:
                by_application.setdefault(flight.spec.name, []).append(flight)
        connection.send_all(
            [
                _submit_queries(name, some, now)
                for name, flights in by_application.items()
                for some in ([flights] if len(flights) == 1 else pieces(flights))
            ]
        )

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                async with asyncio.timeout(CONNECT_S):
                    await connect(self._endpoint, self._make, self._client)
                await self._closed.wait()
                if not self._joined:
                    # A core that does not list this gateway yet, or any more, closes the connection.
                    self._connection = None
                    raise ConnectionError(self._reason or "it closed the connection")
                failures = 0
                logger.warning("core_lost", core=self.name, reason=self._reason, queries=len(self._unanswered))
                self._forget_connection()
                self.on_changed()
            except Exception as error:
                # Whatever it is: without this task the core would not be tried again.
                failures += 1
                if failures % LOG_EVERY == 1:
                    reason = str(error) or repr(error)
                    logger.warning("core_unreachable", core=self.name, reason=reason, tries=failures)
            await asyncio.sleep(RETRY_S if self._endpoint.local or not failures else RETRY_FAR_S)

    def _make(self, kind: type[FrameConnection] = FrameConnection, **named) -> FrameConnection:
        self._closed = asyncio.Event()
        self._joined, self._reason = False, ""
        return kind(FromCore, self._on_message, self._on_closed, self._on_connected, **named)

    def _on_closed(self, _connection: FrameConnection, error: Exception | None) -> None:
        self._reason = "" if error is None else str(error) or repr(error)
        self._closed.set()

    def _on_connected(self, connection: FrameConnection) -> None:
        connection.send(self._hello)
        self._received_at = time.monotonic()
        self._connection = connection
        self._queued = self.flights
        self._flush()
        self._send_reports()

    def _forget_connection(self) -> None:
        """Count its end as a loss of the queries that were sent; the second is the last."""
        self._connection = None
        self._status = CoreStatus(newest=self._status.newest, leads=False)
        queued = {flight.id for flight in self._queued}
        self._queued = []
        for flight in self.flights:
            if flight.id not in queued:
                flight.losses += 1
                if flight.losses > MAX_LOSSES:
                    del self._unanswered[flight.id]
                    self._front.finish(flight, Unavailable("the gateway's core was lost with the query; try again"))

    # --- from the core ------------------------------------------------------------------------------------------------

    def _on_message(self, connection: FrameConnection, message: Frame, body: memoryview) -> None:
        self._received_at = time.monotonic()
        if type(message) is Answered:
            self._answered(message, body)
        elif isinstance(message, Failed):
            flight = self._unanswered.pop(message.number, None)
            if flight is not None:
                self._failed(flight, message)
        elif isinstance(message, Status):
            self._joined = True
            led, self._status = self.leads, message.status
            if self.leads != led:
                self.on_changed()
        elif isinstance(message, FrontTotals):
            self.elsewhere = message
        elif isinstance(message, Configure) and self._configure is not None:
            self._configure(message.config)

    def _failed(self, flight: InFlightQuery, message: Failed) -> None:
        error, core = errors.of_name(message.error, message.message, message.retry_after_s), self._front.core
        if message.handed_back and core is self:
            # Sent once it is back, or to the next core.
            self._unanswered[flight.id] = flight
            self._queued.append(flight)
        elif core is not self and isinstance(error, Unavailable) and flight.losses < MAX_LOSSES:
            # This core gave its devices to the one that the front uses by now.
            flight.losses += not message.handed_back
            flight.core = core
            core.submit(flight)
        else:
            self._front.finish(flight, error)

    def _answered(self, message: Answered, body: memoryview) -> None:
        packed, at = [], 0
        for _, place, _ in message.queries:
            headers, parts = message.outputs[place], []
            for header in headers:
                parts.append(body[at : at + header.nbytes])
                at += header.nbytes
            packed.append((headers, parts))
        if at != len(body):
            raise FrameError(f"body has {len(body)} bytes, its tensors {at}")
        # Last: the queries of a malformed frame wait on, to be sent once more.
        flights, answers = [], []
        for (number, _, queue_s), answer in zip(message.queries, packed, strict=True):
            flight = self._unanswered.pop(number, None)
            if flight is not None:
                flight.sent_at = flight.arrived + queue_s
                flights.append(flight)
                answers.append(answer)
        if flights:
            run = Run(
                message.device,
                message.variant,
                message.accuracy,
                message.accuracy_normalized,
                message.run_s,
                message.batch_rows,
                message.occupied_s,
                # Includes the way between front and core.
                time.monotonic() - flights[0].sent_at - message.occupied_s,
            )
            self._front.deliver(flights, run, 0.0, answers)


def _submit_queries(application: str, flights: list[InFlightQuery], now: float) -> tuple[SubmitQueries, list]:
    # By identity, since queries of equal terms share their shape, and hashing it takes longer.
    places: dict[int, int] = {}
    shapes: list[RequestShape] = []
    queries, body = [], []
    for flight in flights:
        query = flight.query
        shape = query.terms.shape
        place = places.get(id(shape))
        if place is None:
            place = places[id(shape)] = len(shapes)
            shapes.append(shape)
        queries.append(
            (
                flight.id,
                place,
                now - flight.arrived,
                query.latency_s,
                flight.variant,
                query.terms.min_accuracy,
                flight.client,
            )
        )
        body += query.parts
    return SubmitQueries(application, tuple(shapes), tuple(queries)), body
