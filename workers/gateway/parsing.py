"""Large requests on their way through the parser process, in fair turns."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

from workers import log
from workers.environ import PREFIX

from .catalog import Catalog
from .errors import BodyTooLarge, GatewayError, Invalid, ModelFailed, Overloaded, Unavailable
from .in_flight import InFlightQuery
from .parser_process import Parsed, ParseOrder, confine, parse

logger = log.get("gateway.parsing")

#: bytes of JSON, text and typed contents, decompressed, that are parsed in the event loop: at worst some milliseconds
IN_LOOP_BYTES = 64 * 1024
#: the same until the parser process has started: no query is late because it is the first of its kind
STARTING_BYTES = 1024 * 1024
#: bytes of requests that may wait, at least
MIN_BYTES = 64 * 1024 * 1024
#: seconds after which a request is not parsed any further
PARSE_S = 30.0


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
        done, self.done = self.done, None
        # The edge keeps this until the answer, and the query has its own copy.
        self.order.body = b""
        if isinstance(outcome, Parsed):
            self.id = outcome.id
            if outcome.error:
                outcome = (BodyTooLarge if outcome.too_large else Invalid)(outcome.error)
        if done is not None:
            done(self, outcome)

    def cancel(self) -> None:
        self.done = None
        self.order.body = b""


class Parsing:
    def __init__(self, catalog: Callable[[], Catalog], max_request_bytes: int):
        self._catalog = catalog
        self._max_request_bytes = max_request_bytes
        self._max_bytes = max(MIN_BYTES, 2 * max_request_bytes)
        self._waiting: list[Parse] = []
        #: the latest turn of each client
        self._turns: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._pool: ProcessPoolExecutor | None = None
        self._started = False
        self._worker: asyncio.Task | None = None

    def takes(self, size: int) -> bool:
        """Return whether a request of this size is parsed apart.

        If the process is not running, it is started for the next request, and only a large one waits for it.
        """
        if self._started or size > STARTING_BYTES:
            return True
        if self._worker is None:
            empty = ParseOrder(b"", b"identity", 0, 0, None, None)
            self.submit(Parse("", empty, lambda parse, outcome: None))
        return False

    def submit(self, parse: Parse) -> None:
        """Queue a request. Raises: Overloaded: no other client has more bytes waiting."""
        while sum([waiting.size for waiting in self._waiting]) + parse.size > self._max_bytes:
            sizes: Counter[str] = Counter()
            for waiting in self._waiting:
                sizes[waiting.client] += waiting.size
            largest = max(sizes, key=sizes.__getitem__, default=parse.client)
            error = Overloaded("too many large requests wait to be parsed; try again")
            if sizes[largest] <= sizes[parse.client] + parse.size:
                raise error
            evicted = next(waiting for waiting in reversed(self._waiting) if waiting.client == largest)
            self._waiting.remove(evicted)
            evicted.finish(error)
        self._waiting.append(parse)
        if self._worker is None:
            self._worker = asyncio.create_task(self._work(), name="parsing")

    async def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
        while (parse := self._next()) is not None:
            parse.finish(Unavailable(Unavailable.STOPPING))
        self._end_process()

    def _next(self) -> Parse | None:
        """The first request of the client that had no turn for the longest time."""
        self._waiting = [waiting for waiting in self._waiting if waiting.done is not None]
        if not self._waiting:
            self._turns.clear()
            return None
        parse = min(self._waiting, key=lambda waiting: self._turns.get(waiting.client, 0))
        self._waiting.remove(parse)
        self._turns[parse.client] = next(self._numbers)
        return parse

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
        loop = asyncio.get_running_loop()
        # The process may have been ended for another reason than the request: once more.
        for _ in range(2):
            catalog = self._catalog()
            order.signatures = catalog.signatures
            try:
                async with asyncio.timeout(PARSE_S):
                    # The process starts with the pool's first order.
                    with _without_settings() if self._pool is None else contextlib.nullcontext():
                        self._pool = self._pool or self._new_pool()
                        parsing = loop.run_in_executor(self._pool, parse, order)
                    parsed = await parsing
                self._started = True
                return self._checked(parsed, catalog)
            except TimeoutError:
                self._end_process()
                return Invalid(f"body: takes longer than {PARSE_S:g} s to parse")
            except Exception as error:
                # Whatever it was: requests behind this one must not wait for ever.
                logger.error("parser_process_ended", reason=str(error) or type(error).__name__)
                self._end_process()
        return ModelFailed("internal error: the request could not be parsed")

    def _checked(self, parsed: Parsed, catalog: Catalog) -> Parsed | GatewayError:
        parsed_as = catalog.applications.get(parsed.application)
        present = self._catalog().applications.get(parsed.application)
        if not parsed.error and present is not None and (parsed_as is None or parsed_as.signature != present.signature):
            return Unavailable("the application's inputs have just changed; try again")
        return parsed

    # --- the process ---

    def _new_pool(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(1, context, confine, (self._max_request_bytes, os.getpid()))

    def _end_process(self) -> None:
        self._started = False
        pool, self._pool = self._pool, None
        if pool is not None:
            for process in multiprocessing.active_children():
                process.kill()
            pool.shutdown(wait=False, cancel_futures=True)


@contextlib.contextmanager
def _without_settings() -> Iterator[None]:
    """Start a process without this one's settings.

    ``/proc`` shows for a process's whole life what it was started with.
    """
    settings = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(PREFIX)}
    try:
        yield
    finally:
        os.environ.update(settings)
