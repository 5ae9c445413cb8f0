"""``ModelStreamInfer``: streams of queries, each submitted like a single one."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Protocol

from workers import log
from workers.net.grpc import Call, GrpcMethod
from workers.protocol.frames import Buffer
from workers.v2 import grpc
from workers.v2.query import MAX_ID, V2Error

from .edge import Edge, Waiting
from .errors import GatewayError, ModelFailed, Unavailable
from .parsing import Parse

logger = log.get("gateway.rpc_stream")

#: queries of one stream in flight; beyond it the stream is not read. Also the number of immediate answers after which
#: other connections get the event loop
MAX_QUERIES = 64
#: bytes of these queries, each counted as the larger of query and response; beyond it the stream is not read. A single
#: query may exceed it
MAX_BYTES = 16 * 1024 * 1024
#: bytes charged for each waiting query on top of its own
WAITING_BYTES = 64

#: a serialised response, or the error that takes its place
Rendered = Buffer | GatewayError


class Reply(Protocol):
    """A call, or a query of a stream."""

    def settle(self, outcome: Rendered) -> None:
        """Take the outcome; called once."""


class _StreamQuery:
    __slots__ = ("_stream", "counted", "id", "outcome", "waiting")

    def __init__(self, stream: _Stream, counted: int):
        self._stream: _Stream | None = stream
        self.counted = counted
        self.waiting: Waiting | None = None
        self.id = ""
        self.outcome: Rendered | None = None

    def settle(self, outcome: Rendered) -> None:
        # Without reference cycles, the query is freed now.
        if isinstance(self.waiting, Parse):
            self.id = self.waiting.id
        stream, self._stream, self.waiting = self._stream, None, None
        self.outcome = outcome
        if stream is not None:
            stream.settled(self)


class Streaming(GrpcMethod):
    """Answers streams in order; an error ends a query, not the stream."""

    streams = takes_compressed = True

    def __init__(self, edge: Edge):
        self.edge = edge
        self.open: set[_Stream] = set()

    def opened(self, call: Call) -> None:
        call.waiter = stream = _Stream(self, call)
        self.open.add(stream)

    def message(self, call: Call, data: Buffer, encoding: bytes = b"identity") -> None:
        call.waiter.take(data, encoding)

    def ended(self, call: Call) -> None:
        call.waiter.end(None)

    def gone(self, call: Call) -> None:
        call.waiter.forget()

    def drained(self, call: Call) -> None:
        call.waiter.flush()

    def stop(self) -> None:
        """Take no more queries; streams end once those in flight are answered."""
        for stream in list(self.open):
            stream.end(Unavailable(Unavailable.STOPPING))


class _Stream:
    """One call, read only within its limits: unread responses fill no memory."""

    def __init__(self, streaming: Streaming, call: Call):
        self._streaming = streaming
        self._call: Call | None = call
        self._asked: deque[_StreamQuery] = deque()
        self._bytes = 0
        #: bytes of the largest response so far, which is what each query may become
        self._largest = 0
        #: bytes of responses that wait for earlier ones
        self._answers = 0
        #: queries that were read beyond the limits, and their bytes
        self._waiting: deque[tuple[Buffer, bytes]] = deque()
        self._waiting_bytes = 0
        #: immediate answers in this turn of the event loop, and whether the next turn goes on
        self._quick, self._later = 0, False
        self._ended = False
        self._error: GatewayError | None = None
        self._flushing = False

    def take(self, data: Buffer, encoding: bytes) -> None:
        if self._ended:
            return
        self._waiting.append((data, encoding))
        self._waiting_bytes += WAITING_BYTES + len(data)
        self._begin(self._call.connection.touched)

    def end(self, error: GatewayError | None) -> None:
        """Take no more queries; end the stream, with any error, once all are answered."""
        if self._call is None:
            return
        if error is not None:
            self._error = error
            self._drop()
        self._ended = True
        self.flush()

    def forget(self) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        self._streaming.open.discard(self)
        call.waiter = None
        self._drop()
        asked, self._asked = self._asked, deque()
        for query in asked:
            waiting, query.waiting = query.waiting, None
            if waiting is not None:
                self._streaming.edge.withdraw(waiting)

    def _drop(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0

    def _begin(self, read_at: float) -> None:
        """Submit waiting queries within the limits. ``read_at``: start of their time."""
        call = self._call
        asked = self._asked
        while self._waiting and not (asked and (len(asked) >= MAX_QUERIES or self._bytes + self._largest > MAX_BYTES)):
            if self._quick >= MAX_QUERIES:
                if not self._later:
                    self._later = True
                    asyncio.get_running_loop().call_soon(self._go_on)
                break
            data, encoding = self._waiting.popleft()
            self._waiting_bytes -= WAITING_BYTES + len(data)
            self._ask(data, encoding, call, read_at)
        if self._keep(call) and call.held != bool(self._waiting):
            if call.held:
                call.proceed()
            else:
                call.held = True

    def _go_on(self) -> None:
        self._quick, self._later = 0, False
        if self._call is not None:
            self._begin(time.monotonic())

    def _keep(self, call: Call) -> bool:
        if call.keep(self._waiting_bytes, self._answers):
            return True
        self.forget()
        return False

    def settled(self, query: _StreamQuery) -> None:
        if self._call is None:
            return
        if not isinstance(query.outcome, GatewayError):
            self._answers += len(query.outcome)
        self.flush()

    def _ask(self, data: Buffer, encoding: bytes, call: Call, read_at: float) -> None:
        counted = max(len(data), self._largest)
        query = _StreamQuery(self, counted)
        self._asked.append(query)
        self._bytes += counted
        # An immediate answer is sent once its id is known.
        flushing, self._flushing = self._flushing, True
        try:
            waiting = self._streaming.edge.infer(query, data, encoding, call.client, read_at, call.left_s(read_at))
            if not isinstance(waiting, Parse):
                query.id = waiting.query.id
            if query.outcome is None:
                query.waiting = waiting
        except GatewayError as error:
            query.id = _id(data) if encoding == b"identity" else ""
            self._streaming.edge.refuse(query, error)
        except Exception:
            logger.exception("grpc_handler_failed")
            self._streaming.edge.refuse(query, ModelFailed("internal error"))
        finally:
            self._flushing = flushing
        if query.outcome is not None:
            self._quick += 1
            self.flush()

    def flush(self) -> None:
        if self._flushing:
            # A response made room for a query that was answered at once: the outer call goes on with it.
            return
        self._flushing = True
        try:
            self._flush()
        finally:
            self._flushing = False
        if self._call is not None:
            self._keep(self._call)

    def _flush(self) -> None:
        call, asked = self._call, self._asked
        while call is not None and call.outbox is None and asked and asked[0].outcome is not None:
            query = asked.popleft()
            self._bytes -= query.counted
            outcome = query.outcome
            if isinstance(outcome, GatewayError):
                message = grpc.streamed_error(query.id, outcome.message)
            else:
                self._largest = max(self._largest, len(outcome))
                self._answers -= len(outcome)
                message = grpc.streamed(outcome)
            if not call.send(message):
                self.forget()
                return
            if self._waiting:
                # The time of these queries starts now, whenever they were read.
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
    try:
        return grpc.split(data).id[:MAX_ID]
    except V2Error:
        return ""
