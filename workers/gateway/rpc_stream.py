"""``ModelStreamInfer`` calls: queries one after the other on one stream, over the same handler as single ones."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from workers import log
from workers.net.grpc import Call, Endpoint
from workers.protocol.frames import Buffer
from workers.v2 import grpc
from workers.v2.query import MAX_ID, V2Error

from .errors import GatewayError, ModelFailed, Unavailable
from .in_flight import InFlightQuery

logger = log.get("gateway.grpc")

#: queries of one stream that may be under way; beyond, the stream is read no further. After so many that were answered
#: at once others have their turn
QUERIES = 64
#: bytes of them, counted by query and answer whichever is larger: beyond, the stream is read no further either. One
#: query is always let in, whatever its size
BYTES = 16 * 1024 * 1024
#: what a query that waits for room is counted with beside its bytes: it takes memory however few these are
EACH = 64

#: a serialised answer, or why there is none
Rendered = Buffer | GatewayError


class Waits(Protocol):
    """Who waits for a query's outcome."""

    def settle(self, outcome: Rendered) -> None:
        """Take it; called once."""


#: takes a serialised query, the time left (s) or None, when it was read, and who waits for its outcome. Raises
#: GatewayError.
Submit = Callable[[Buffer, float | None, float, Waits, str], InFlightQuery]


class _Asked:
    """A query of a stream. ``counted``: bytes."""

    __slots__ = ("_stream", "counted", "flight", "id", "outcome")

    def __init__(self, stream: _Stream, counted: int):
        self._stream: _Stream | None = stream
        self.counted = counted
        self.flight: InFlightQuery | None = None
        self.id = ""
        self.outcome: Rendered | None = None

    def settle(self, outcome: Rendered) -> None:
        """See :class:`Waits`."""
        # Nothing goes round in a circle any more.
        stream, self._stream, self.flight = self._stream, None, None
        self.outcome = outcome
        if stream is not None:
            stream.settled(self)


class Streaming(Endpoint):
    """The :class:`~workers.net.grpc.Endpoint` of such calls. Answers a stream's queries in the order in which they
    came. An error is one query's, not the stream's.

    Args:
        submit: hands a query on.
        refused: told of each error that ``submit`` raised.
        cancel: forgets a query whose client is gone.
    """

    streams = True

    def __init__(
        self, submit: Submit, refused: Callable[[GatewayError], None], cancel: Callable[[InFlightQuery], None]
    ):
        self.submit = submit
        self.refused = refused
        self.cancel = cancel
        self.open: set[_Stream] = set()

    def opened(self, call: Call) -> None:
        """A stream begins."""
        call.waiter = stream = _Stream(self, call)
        self.open.add(stream)

    def message(self, call: Call, data: Buffer) -> None:
        """A query came."""
        call.waiter.take(data)

    def ended(self, call: Call) -> None:
        """The client has no more queries."""
        call.waiter.end(None)

    def gone(self, call: Call) -> None:
        """The client is gone, and with it whoever would have read the rest."""
        call.waiter.forget()

    def drained(self, call: Call) -> None:
        """The client takes answers again."""
        call.waiter.tell()

    def stop(self) -> None:
        """Take nothing more; what is under way is answered, then the streams end."""
        for stream in list(self.open):
            stream.end(Unavailable(Unavailable.STOPPING))


class _Stream:
    """One call. Without room its client is read no further, so that one that does not take its answers fills no
    memory."""

    def __init__(self, streaming: Streaming, call: Call):
        self._streaming = streaming
        self._call: Call | None = call
        self._asked: deque[_Asked] = deque()
        self._bytes = 0
        #: largest answer of this stream so far: what a query must be expected to become
        self._largest = 0
        #: bytes of answers whose turn has not come
        self._answers = 0
        #: read, but without room so far, and what they count for
        self._waiting: deque[Buffer] = deque()
        self._waiting_bytes = 0
        #: how many were answered at once since others had their turn, and whether they are about to have it
        self._quick, self._later = 0, False
        self._ended = False
        self._error: GatewayError | None = None
        self._telling = False

    def take(self, data: Buffer) -> None:
        """A query came."""
        if self._ended:
            return
        self._waiting.append(data)
        self._waiting_bytes += EACH + len(data)
        self._begin(self._call.connection.touched)

    def end(self, error: GatewayError | None) -> None:
        """No more queries are taken; the stream ends once all are answered, in the error if there is one."""
        if self._call is None:
            return
        if error is not None:
            self._error = error
            self._drop()
        self._ended = True
        self.tell()

    def forget(self) -> None:
        """Nobody waits for the rest any more."""
        call, self._call = self._call, None
        if call is None:
            return
        self._streaming.open.discard(self)
        call.waiter = None
        self._drop()
        asked, self._asked = self._asked, deque()
        for one in asked:
            flight, one.flight = one.flight, None
            if flight is not None:
                self._streaming.cancel(flight)

    def _drop(self) -> None:
        """What waits is not wanted any more."""
        self._waiting.clear()
        self._waiting_bytes = 0

    def _begin(self, read_at: float) -> None:
        """Hand on what there is room for. ``read_at``: from when on its time counts."""
        call = self._call
        asked = self._asked
        while self._waiting and not (asked and (len(asked) >= QUERIES or self._bytes + self._largest > BYTES)):
            if self._quick >= QUERIES:
                if not self._later:
                    self._later = True
                    asyncio.get_running_loop().call_soon(self._go_on)
                break
            data = self._waiting.popleft()
            self._waiting_bytes -= EACH + len(data)
            self._ask(data, call, read_at)
        if self._keep(call) and call.held != bool(self._waiting):
            if call.held:
                call.proceed()
            else:
                call.held = True

    def _go_on(self) -> None:
        """Others had their turn."""
        self._quick, self._later = 0, False
        if self._call is not None:
            self._begin(time.monotonic())

    def _keep(self, call: Call) -> bool:
        """Have what is kept here counted; False: it was too much, and the stream has ended."""
        if call.keep(self._waiting_bytes, self._answers):
            return True
        self.forget()
        return False

    def settled(self, one: _Asked) -> None:
        """A query has its outcome."""
        if self._call is None:
            return
        if not isinstance(one.outcome, GatewayError):
            self._answers += len(one.outcome)
        self.tell()

    def _ask(self, data: Buffer, call: Call, read_at: float) -> None:
        counted = max(len(data), self._largest)
        one = _Asked(self, counted)
        self._asked.append(one)
        self._bytes += counted
        # What is answered at once is told once its id is known.
        telling, self._telling = self._telling, True
        try:
            flight = self._streaming.submit(data, call.left_s(read_at), read_at, one, call.client)
            one.id = flight.query.id
            if one.outcome is None:
                one.flight = flight
        except GatewayError as error:
            self._streaming.refused(error)
            one.id = _id(data)
            # Where it was raised knows of this query: no circle is to be left for the collector.
            one.settle(error.with_traceback(None))
        except Exception:
            logger.exception("grpc_handler_failed")
            one.settle(ModelFailed("internal error"))
        finally:
            self._telling = telling
        if one.outcome is not None:
            self._quick += 1
            self.tell()

    def tell(self) -> None:
        """Send the answers that are there and whose turn it is, as far as the client takes them."""
        if self._telling:
            # An answer made room for the next query, and that is answered already: whoever is at it below goes on.
            return
        self._telling = True
        try:
            self._tell()
        finally:
            self._telling = False
        if self._call is not None:
            self._keep(self._call)

    def _tell(self) -> None:
        call, asked = self._call, self._asked
        while call is not None and call.outbox is None and asked and asked[0].outcome is not None:
            one = asked.popleft()
            self._bytes -= one.counted
            outcome = one.outcome
            if isinstance(outcome, GatewayError):
                message = grpc.streamed_error(one.id, outcome.message)
            else:
                self._largest = max(self._largest, len(outcome))
                self._answers -= len(outcome)
                message = grpc.streamed(outcome)
            if not call.send(message):
                self.forget()
                return
            if self._waiting:
                # Its turn has come just now, whenever its client last said anything.
                self._begin(time.monotonic())
            call = self._call
        if call is not None and self._ended and not asked and not self._waiting and call.outbox is None:
            self._call = None
            self._streaming.open.discard(self)
            call.waiter = None
            if self._error is not None:
                call.fail(self._error)
            else:
                call.complete()


def _id(data: Buffer) -> str:
    """The id of a query that was refused, as far as it can be read."""
    try:
        return grpc.split(data).id[:MAX_ID]
    except V2Error:
        return ""
