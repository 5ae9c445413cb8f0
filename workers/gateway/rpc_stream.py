"""One ``ModelStreamInfer`` call: queries one after the other on one stream, over the same handler as single ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable

import grpc
import grpc.aio

from workers import log
from workers.protocol import v2, v2_grpc

from .errors import GatewayError, ModelFailed, Unavailable
from .flights import Flight

logger = log.get("gateway.grpc")

#: queries of one stream that may be under way; beyond, the stream is read no further
QUERIES = 64
#: bytes of them, counted by query and answer whichever is larger: beyond, the stream is read no further either. One
#: query is always let in, whatever its size
BYTES = 16 * 1024 * 1024

Context = grpc.aio.ServicerContext
#: a serialised answer, or why there is none
Rendered = bytes | GatewayError
#: takes a serialised query, the time left (s) or None, and what gets its outcome. Raises GatewayError.
Submit = Callable[[bytes, float | None, asyncio.Future[Rendered]], Flight]


def settle(answered: asyncio.Future[Rendered], outcome: Rendered) -> None:
    """Give an outcome to whoever awaits it, if anybody still does: an answer may come between the cancellation of a
    call and its coming through."""
    if not answered.done():
        answered.set_result(outcome)


class Stream:
    """Answers a stream's queries in the order in which they came. An error is one query's, not the stream's.

    Args:
        submit: hands a query on.
        refused: told of each error that ``submit`` raised.
        cancel: forgets a query whose client is gone.
    """

    def __init__(self, submit: Submit, refused: Callable[[GatewayError], None], cancel: Callable[[Flight], None]):
        self._submit = submit
        self._refused = refused
        self._cancel = cancel
        self._count = 0
        self._bytes = 0
        #: largest answer of this stream so far: what a query must be expected to become
        self._largest = 0
        self._room = asyncio.Event()
        #: (request id, bytes counted, outcome) in the order of arrival; None: no more will come
        self._begun: asyncio.Queue[tuple[str, int, asyncio.Future[Rendered]] | None] = asyncio.Queue()
        self._under_way: dict[asyncio.Future[Rendered], Flight] = {}
        self._reading: asyncio.Task | None = None
        self._stopping = False

    async def run(self, messages: AsyncIterable[bytes], context: Context) -> None:
        """Serve the stream until its client ends it."""
        self._reading = asyncio.create_task(self._read(messages, context), name="grpc-stream")
        try:
            while (item := await self._begun.get()) is not None:
                id, counted, answered = item
                outcome = await answered
                self._under_way.pop(answered, None)
                if isinstance(outcome, GatewayError):
                    await context.write(v2_grpc.streamed_error(id, outcome.message))
                else:
                    self._largest = max(self._largest, len(outcome))
                    await context.write(v2_grpc.streamed(outcome))
                del outcome, answered, item
                self._count -= 1
                self._bytes -= counted
                self._room.set()
            if self._stopping:
                await context.abort(grpc.StatusCode.UNAVAILABLE, Unavailable.STOPPING)
        except grpc.aio.InternalError:
            # The client is gone, and with it whoever would have read the rest.
            pass
        finally:
            self._reading.cancel()
            for flight in self._under_way.values():
                self._cancel(flight)

    def stop(self) -> None:
        """Take nothing more; what is under way is answered, then the stream ends."""
        if not self._stopping:
            self._stopping = True
            self._reading.cancel()
            self._begun.put_nowait(None)

    async def _read(self, messages: AsyncIterable[bytes], context: Context) -> None:
        try:
            async for data in messages:
                self._begin(data, context.time_remaining())
                del data
                # Without room nothing more is read, so that a client that does not take its answers fills no memory.
                while self._count and (self._count >= QUERIES or self._bytes + self._largest > BYTES):
                    self._room.clear()
                    await self._room.wait()
        except grpc.aio.InternalError:
            # The client is gone.
            pass
        except Exception:
            logger.exception("grpc_stream_failed")
        self._begun.put_nowait(None)

    def _begin(self, data: bytes, left_s: float | None) -> None:
        answered = asyncio.get_running_loop().create_future()
        id = ""
        counted = max(len(data), self._largest)
        self._count += 1
        self._bytes += counted
        try:
            flight = self._submit(data, left_s, answered)
            id = flight.query.id
            if not answered.done():
                self._under_way[answered] = flight
        except GatewayError as error:
            self._refused(error)
            id = _id(data)
            settle(answered, error)
        except Exception:
            logger.exception("grpc_handler_failed")
            settle(answered, ModelFailed("internal error"))
        self._begun.put_nowait((id, counted, answered))


def _id(data: bytes) -> str:
    """The id of a query that was refused, as far as it can be read."""
    try:
        message, _ = v2_grpc.read(data)
    except v2.V2Error:
        return ""
    return message.id[: v2.MAX_ID]
