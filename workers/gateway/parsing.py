"""Large requests on their way through the parser process, in fair turns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

import workers
from workers import log
from workers.protocol.specs import Signature

from .catalog import Catalog
from .errors import BodyTooLarge, GatewayError, Invalid, ModelFailed, Overloaded, Unavailable
from .in_flight import InFlightQuery
from .parser_process import PREFIX, Parsed, ParseOrder

logger = log.get("gateway.parsing")

#: bytes of JSON, text and typed contents, decompressed, that are parsed in the event loop: at worst some milliseconds
IN_LOOP_BYTES = 64 * 1024
#: the same until the parser process has started: no query is late because it is the first of its kind
STARTING_BYTES = 1024 * 1024
#: bytes of requests that may wait, at least
MIN_BYTES = 64 * 1024 * 1024
#: seconds after which a request is not parsed any further
PARSE_S = 30.0

_ROOT = Path(workers.__file__).resolve().parents[1]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Parsed).decode


class Parse:
    """A request that is parsed apart.

    Args:
        client: hash of the API key, whose requests take turns with those of others.
        done: called once with the result, unless the request is cancelled.

    Attributes:
        id: of its query, once it is known.
        flight: its query, once it was submitted; the edge's own.
    """

    __slots__ = ("client", "done", "flight", "id", "order", "size")

    def __init__(self, client: str, order: ParseOrder, done: Callable[[Parse, Parsed | GatewayError], None]):
        self.client = client
        self.order = order
        self.done: Callable[[Parse, Parsed | GatewayError], None] | None = done
        self.size = len(order.body)
        self.id = ""
        self.flight: InFlightQuery | None = None

    def finish(self, outcome: Parsed | GatewayError) -> None:
        """Hand the result over, once."""
        done, self.done = self.done, None
        if isinstance(outcome, Parsed):
            self.id = outcome.id
            if outcome.error:
                outcome = (BodyTooLarge if outcome.too_large else Invalid)(outcome.error)
        if done is not None:
            done(self, outcome)

    def cancel(self) -> None:
        """The client left: the result is not wanted any more."""
        self.done = None
        self.order.body = b""


class Parsing:
    """The parser process and the requests that wait for it.

    Args:
        catalog: the present one.
        max_request_bytes: of one request, decompressed.
    """

    def __init__(self, catalog: Callable[[], Catalog], max_request_bytes: int):
        self._catalog = catalog
        self._max_request_bytes = max_request_bytes
        self._max_bytes = max(MIN_BYTES, 2 * max_request_bytes)
        #: by client, in the order of their turns
        self._waiting: dict[str, deque[Parse]] = {}
        self._waiting_bytes: dict[str, int] = {}
        self._process: subprocess.Popen | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        #: whose signatures the process has
        self._catalog_sent: Catalog | None = None
        self._started = False
        self._worker: asyncio.Task | None = None

    def takes(self, size: int) -> bool:
        """Return whether a request of this size is parsed apart.

        If the process is not running, it is started for the next request, and only a large one waits for it.
        """
        if self._started or size > STARTING_BYTES:
            return True
        if self._worker is None:
            empty = ParseOrder(b"", b"identity", 0, 0, None, None, None)
            self.submit(Parse("", empty, lambda parse, outcome: None))
        return False

    def submit(self, parse: Parse) -> None:
        """Queue a request.

        Raises:
            Overloaded: no other client has more bytes waiting.
        """
        client = parse.client
        sizes = self._waiting_bytes
        while sum(sizes.values()) + parse.size > self._max_bytes:
            largest = max(sizes, key=sizes.__getitem__, default=client)
            error = Overloaded("too many large requests wait to be parsed; try again")
            if sizes.get(largest, 0) <= sizes.get(client, 0) + parse.size:
                raise error
            evicted = self._waiting[largest].pop()
            self._uncount(evicted)
            evicted.finish(error)
        self._waiting.setdefault(client, deque()).append(parse)
        sizes[client] = sizes.get(client, 0) + parse.size
        if self._worker is None:
            self._worker = asyncio.create_task(self._work(), name="parsing")

    async def close(self) -> None:
        """End the process, and the requests that wait with an error."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
        while (parse := self._next()) is not None:
            parse.finish(Unavailable(Unavailable.STOPPING))
        self._end_process()

    # --- turns ---

    def _next(self) -> Parse | None:
        """The next request: clients take turns."""
        while self._waiting:
            client = next(iter(self._waiting))
            parses = self._waiting.pop(client)
            if not parses:
                continue
            parse = parses.popleft()
            self._uncount(parse)
            if parses:
                self._waiting[client] = parses
            if parse.done is not None:
                return parse
        return None

    def _uncount(self, parse: Parse) -> None:
        self._waiting_bytes[parse.client] -= parse.size
        if not self._waiting_bytes[parse.client]:
            del self._waiting_bytes[parse.client]

    async def _work(self) -> None:
        parse = None
        try:
            while (parse := self._next()) is not None:
                outcome = await self._outcome(parse.order)
                try:
                    parse.finish(outcome)
                except Exception:
                    logger.exception("parse_not_delivered")
            self._worker = None
        except asyncio.CancelledError:
            if parse is not None:
                parse.finish(Unavailable(Unavailable.STOPPING))
            raise

    async def _outcome(self, order: ParseOrder) -> Parsed | GatewayError:
        # The process may have been ended for another reason than the request: once more.
        for _ in range(2):
            try:
                async with asyncio.timeout(PARSE_S):
                    found = await self._exchange(order)
                return self._checked(found)
            except TimeoutError:
                self._end_process()
                return Invalid(f"body: takes longer than {PARSE_S:g} s to parse")
            except Exception as error:
                # Whatever it was: requests behind this one must not wait for ever.
                logger.error("parser_process_ended", reason=str(error) or type(error).__name__)
                self._end_process()
        return ModelFailed("internal error: the request could not be parsed")

    def _checked(self, found: Parsed) -> Parsed | GatewayError:
        """Return what was parsed, unless the application takes other inputs by now."""
        parsed_as, present = (one.applications.get(found.application) for one in (self._catalog_sent, self._catalog()))
        if not found.error and present is not None and (parsed_as is None or parsed_as.signature != present.signature):
            return Unavailable("the application's inputs have just changed; try again")
        return found

    # --- the process ---

    async def _exchange(self, order: ParseOrder) -> Parsed:
        if self._streams is None:
            await self._start()
        reader, writer = self._streams
        catalog = self._catalog()
        order.signatures = None
        if catalog is not self._catalog_sent:
            order.signatures = _signatures(catalog)
        data = _encode(order)
        writer.write(PREFIX.pack(len(data)))
        writer.write(data)
        self._catalog_sent = catalog
        (size,) = PREFIX.unpack(await reader.readexactly(PREFIX.size))
        found = _decode(await reader.readexactly(size))
        self._started = True
        return found

    async def _start(self) -> None:
        own, other = socket.socketpair()
        with other:
            command = [sys.executable, "-m", "workers.gateway.parser_process", str(other.fileno())]
            # It gets none of the gateway's settings, among which are secrets.
            environment = {name: value for name, value in os.environ.items() if not name.startswith("NEREUS_")}
            self._process = subprocess.Popen(
                [*command, str(self._max_request_bytes)],
                stdin=subprocess.DEVNULL,
                pass_fds=(other.fileno(),),
                env={**environment, "PYTHONPATH": str(_ROOT)},
            )
        self._streams = await asyncio.open_connection(sock=own)

    def _end_process(self) -> None:
        self._started, self._catalog_sent = False, None
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].transport.abort()
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()


def _signatures(catalog: Catalog) -> dict[str, Signature]:
    return {name: spec.signature for name, spec in catalog.applications.items()}
