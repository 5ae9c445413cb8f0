"""gRPC calls over HTTP/2 streams: admission, messages, responses and memory."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Protocol

from workers.net.compression import INLINE_BYTES, CompressionError, decompress
from workers.net.http2 import HeaderList, Http2Connection, Http2Stream
from workers.net.http2 import frames as h2

from .messages import PREFIX, Buffer, MessageParser, prefix
from .status import Code, StatusError, invalid, overloaded

logger = logging.getLogger(__name__)

OVERLOADED_READING = "too many messages are being read at once; try again"
OVERLOADED_UNSENT = "too many answers wait for clients to read them; try again"

_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
#: headers of each response; :status 200 is entry 8 of the static table (RFC 7541, appendix A)
_HEADERS = (
    b"\x88" + h2.literal(b"content-type", b"application/grpc") + h2.literal(b"grpc-accept-encoding", b"gzip,deflate")
)
_OK = h2.literal(b"grpc-status", b"0")


class GrpcMethod:
    """One method, to be extended.

    Attributes:
        streams: its calls take any number of messages instead of one.
        takes_compressed: also messages that are too large to decompress in the event loop: they have more than
            :data:`~workers.net.compression.INLINE_BYTES` then. Other methods refuse these.
    """

    streams = takes_compressed = False

    def opened(self, call: Call) -> None:
        """A call of a streaming method begins."""

    def message(self, call: Call, data: Buffer, encoding: bytes = b"identity") -> None:
        """A message arrived; of a unary call, the only one. May raise StatusError.

        Args:
            encoding: how it is compressed (see :attr:`takes_compressed`).
        """

    def ended(self, call: Call) -> None:
        """The client has sent all messages of a streaming call."""

    def gone(self, call: Call) -> None:
        """The client cancelled the call or went away."""

    def drained(self, call: Call) -> None:
        """All responses were handed to the socket, after some had to wait."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The meaning of request headers.

    It is remembered with them while :meth:`GrpcService.current` says so.

    Attributes:
        config: the application's own, to recognise outdated decisions.
        endpoint: answers the call; None: ``error`` does.
        timeout_s: the call's time, if it has a limit.
        encoding: how compressed messages are compressed.
        client: identifies the client; empty: the call is public, and gets small limits.
        message_bytes: of each message, compressed and decompressed; None: the server's limit.
    """

    config: object
    endpoint: GrpcMethod | None
    error: StatusError | None = None
    timeout_s: float | None = None
    encoding: bytes = b"identity"
    client: str = ""
    message_bytes: int | None = None


class GrpcService(Protocol):
    def admit(self, headers: HeaderList) -> Admitted:
        """Decide by its headers who answers a call."""

    def current(self, admitted: Admitted) -> bool:
        """Whether an earlier decision still holds."""

    def rejected(self, error: StatusError) -> None:
        """A call ends in an error that its endpoint did not choose."""

    def stop(self) -> None:
        """The server shuts down: end streaming calls once their messages are answered."""


class Call(Http2Stream):
    """One call at a :class:`~.server.GrpcServer`.

    Attributes:
        client: see :class:`Admitted`.
        opened_at: ``time.monotonic()`` of its headers.
        waiter: the endpoint's own.
    """

    __slots__ = (
        "_admitted",
        "_compressed",
        "_counted",
        "_kept",
        "_kept_responses",
        "_message_bytes",
        "_parser",
        "_public",
        "_server",
        "_unsent",
        "_whole",
        "client",
        "opened_at",
        "waiter",
    )

    def __init__(self, server: Any, connection: Http2Connection, number: int, headers: HeaderList):
        super().__init__(connection, number, headers)
        self._server = server
        self._admitted: Admitted | None = None
        self.client = ""
        #: the most that a message may have
        self._message_bytes = 0
        self._parser: MessageParser | None = None
        #: it is in progress and public
        self._public = False
        #: the message of a unary call, until the client has ended its stream
        self._whole: Buffer | None = None
        self._compressed = False
        #: bytes counted as being read, and those of them that the endpoint keeps
        self._counted = self._kept = 0
        #: bytes of responses that wait for the client, and of those that the endpoint keeps
        self._unsent = self._kept_responses = 0
        self.opened_at = connection.touched
        self.waiter: Any = None

    def left_s(self, now: float) -> float | None:
        """Seconds until the deadline; None: the call has none."""
        timeout_s = self._admitted.timeout_s
        return None if timeout_s is None else max(0.0, timeout_s - (now - self.opened_at))

    # --- the request ---

    def opened(self) -> None:
        server = self._server
        admitted: Admitted | None = self.headers.state
        if admitted is None or not server.service.current(admitted):
            admitted = self.headers.state = server.service.admit(self.headers)
            if admitted.client:
                self.connection.remember(self.headers)
        self._admitted, self.client = admitted, admitted.client
        self.connection.holder = admitted.client or self.connection.holder
        limits = server.limits
        self._message_bytes = limits.message_bytes if admitted.message_bytes is None else admitted.message_bytes
        if admitted.error is not None:
            # Before the message is read: clients cannot make the server read what it would reject anyway.
            self.reject(admitted.error)
            self.connection.refused()
        elif not admitted.client:
            self._public, self._message_bytes = True, limits.public_message_bytes
            server.open_public(self)
        elif not server.claim(self):
            # Not processed: clients may send it again, elsewhere (RFC 9113, section 8.7).
            self.reset(h2.REFUSED_STREAM)
            self.connection.refused()
        elif admitted.endpoint.streams:
            admitted.endpoint.opened(self)

    def readmit(self) -> None:
        """End a streaming call whose client may no longer call."""
        if self._admitted is None or not self._admitted.client or not self._admitted.endpoint.streams:
            return
        admitted = self._server.service.admit(self.headers)
        if admitted.error is not None:
            self.reject(admitted.error)

    def received(self, data: Buffer, end: bool) -> None:
        if self.trailers is not None:
            # An error has ended the call, and is still on its way.
            return
        if self._parser is None:
            most = self._message_bytes
            size = len(data) - PREFIX
            if (
                end
                and size >= 0
                and not self._admitted.endpoint.streams
                and not data[0]
                and int.from_bytes(data[1:PREFIX]) == size <= most
            ):
                # The whole call in one frame
                self._deliver(bytes(data[PREFIX:]), False)
                return
            self._parser = MessageParser(most, self._server.limits.message_rate)
        try:
            self._feed(data, end)
        except StatusError as error:
            self.reject(error)

    def _feed(self, data: Buffer, end: bool) -> None:
        server, streams = self._server, self._admitted.endpoint.streams
        for compressed, message in self._parser.feed(data):
            if streams:
                self._deliver(message, compressed)
                if self.done or self.trailers is not None:
                    return
            elif self._whole is None:
                self._whole, self._compressed = message, compressed
            else:
                raise invalid("message: one is taken, two came")
        if not self._public:
            held = self._parser.partial + self._kept
            if self._whole is not None:
                held += len(self._whole)
            self._count(held)
            if server.reading > server.limits.buffered_bytes and held and not server.relieve(self, "reading_bytes"):
                raise overloaded(OVERLOADED_READING)
        if not end:
            return
        if self._parser.partial:
            raise invalid("message: cut off")
        if streams:
            self._admitted.endpoint.ended(self)
        elif self._whole is None:
            raise invalid("message: missing; one is needed")
        else:
            message, self._whole = self._whole, None
            self._uncount()
            self._deliver(message, self._compressed)

    def _deliver(self, message: Buffer, compressed: bool) -> None:
        endpoint = self._admitted.endpoint
        try:
            if compressed:
                plain = self._decompress(message)
                if plain is None:
                    endpoint.message(self, message, self._admitted.encoding)
                    return
                message = plain
            endpoint.message(self, message)
        except StatusError as error:
            self.reject(error)
        except Exception:
            logger.exception("grpc_handler_failed")
            self.reject(StatusError(Code.INTERNAL, "internal error"))

    def _decompress(self, message: Buffer) -> Buffer | None:
        """Return a message decompressed; None: that is too much for the event loop.

        Raises:
            StatusError: it must not be compressed, cannot be decompressed, or is too large.
        """
        if self._public:
            text = "message: must not be compressed; a method without a key takes none that is"
            raise StatusError(Code.UNIMPLEMENTED, text)
        encoding, most = self._admitted.encoding, self._message_bytes
        inline_bytes = min(most, INLINE_BYTES)
        if encoding == b"identity":
            raise invalid("message: is compressed, and grpc-encoding is missing")
        try:
            return decompress(encoding, message, inline_bytes)
        except CompressionError as error:
            if not error.too_large:
                raise invalid(f"message: {error}") from None
            if most > inline_bytes and self._admitted.endpoint.takes_compressed:
                return None
            most = most if self._admitted.endpoint.takes_compressed else inline_bytes
            text = f"message: is larger than max ({most} bytes) once decompressed"
            raise StatusError(Code.RESOURCE_EXHAUSTED, text) from None

    def gone(self) -> None:
        if self.trailers is not None or self._admitted is None or self._admitted.endpoint is None:
            # The call had ended for its endpoint.
            return
        try:
            self._admitted.endpoint.gone(self)
        except Exception:
            # Other calls of the connection may have to end, too.
            logger.exception("grpc_handler_failed")

    def drained(self) -> None:
        self._count_unsent(0, self._kept_responses)
        self._admitted.endpoint.drained(self)

    def over(self) -> None:
        if self._counted:
            self._uncount()
        if self._unsent or self._kept_responses:
            self._count_unsent(0, 0)
        if self._public:
            self._public = False
            self._server.close_public(self)

    # --- accounting ---

    @property
    def reading_bytes(self) -> int:
        return self._counted

    @property
    def unsent_bytes(self) -> int:
        return self._unsent + self._kept_responses

    def _count(self, held: int) -> None:
        more = held - self._counted
        self._counted = held
        self._server.reading += more
        self.connection.reading_bytes += more

    def _uncount(self) -> None:
        self._count(0)
        self._kept = 0

    def _count_unsent(self, unsent: int, responses: int) -> None:
        more = unsent - self._unsent + responses - self._kept_responses
        self._unsent, self._kept_responses = unsent, responses
        self._server.unsent += more
        self.connection.unsent_bytes += more

    def keep(self, messages: int, responses: int) -> bool:
        """Count the bytes that the endpoint keeps.

        Args:
            messages: bytes of messages that wait.
            responses: bytes of responses whose turn has not come.

        Returns:
            False: it is too much, and the call has ended.
        """
        if self.done:
            return False
        self._count(self._counted + messages - self._kept)
        self._kept = messages
        self._count_unsent(self._unsent, responses)
        return self._check_unsent()

    def _check_unsent(self) -> bool:
        server = self._server
        if server.unsent <= server.limits.buffered_bytes or server.relieve(self, "unsent_bytes"):
            return True
        # Its own connection holds most: the latest response is given up.
        self.reset(h2.ENHANCE_YOUR_CALM)
        return False

    # --- the response ---

    def settle(self, outcome: Buffer | StatusError) -> None:
        self.waiter = None
        if isinstance(outcome, StatusError):
            self.fail(outcome)
        else:
            self.send(outcome, last=True)

    def send(self, message: Buffer, last: bool = False) -> bool:
        """Send a response, of a unary call the ``last``. False: the call has ended."""
        size = len(message)
        sent = self.write(_HEADERS, (prefix(size), message), PREFIX + size, _OK if last else None)
        if not sent or self.outbox is None:
            return sent
        self._count_unsent(self._unsent + size, self._kept_responses)
        return self._check_unsent()

    def complete(self) -> bool:
        """End the call behind its responses. False: it has ended."""
        return self.end(_OK if self.begun else _HEADERS + _OK)

    def fail(self, error: StatusError) -> bool:
        """End the call with an error. False: it has ended."""
        block = error.block(self._server.limits.status_chars)
        return self.end(block if self.begun else _HEADERS + block)

    def reject(self, error: StatusError) -> None:
        """End the call with an error that its endpoint did not choose."""
        if self.done or self.trailers is not None:
            return
        self._server.service.rejected(error)
        if self.waiter is not None:
            self.gone()
        self.fail(error)
        if not self.done:
            # A response is on its way before the error; everything else is released.
            self._parser = self._whole = None
            self._uncount()
            self._count_unsent(self._unsent, 0)

    def evict(self, error: StatusError) -> None:
        """Free its memory: end it with the error, or reset it if nobody reads."""
        if self.outbox is None:
            self.reject(error)
        else:
            self.reset(h2.ENHANCE_YOUR_CALM)
            self.gone()

    # --- time limits ---

    def sweep(self, now: float) -> None:
        limits, silent_s = self._server.limits, now - self.moved
        # Only one that takes several responses stays open between its request and the last of them.
        arriving_or_ended = self.reading or self.trailers is not None
        if self._public and arriving_or_ended and now - self.opened_at > limits.public_call_s:
            self.evict(invalid(f"message: must have come within {limits.public_call_s:g} s"))
        elif self.outbox is not None:
            if silent_s > limits.write_s:
                self.reset(h2.CANCEL)
                self.gone()
        elif self.reading:
            self._sweep_reading(now, silent_s)

    def _sweep_reading(self, now: float, silent_s: float) -> None:
        limits, parser, streams = self._server.limits, self._parser, self._admitted.endpoint.streams
        if self.held or (streams and (parser is None or not parser.partial)):
            if parser is not None:
                parser.pause()
        elif silent_s > limits.read_s:
            self.reject(invalid(f"message: nothing arrived for {limits.read_s:g} s"))
        elif not streams and now - self.opened_at > limits.message_s:
            self.reject(invalid(f"message: must have come within {limits.message_s:g} s"))
        elif parser is not None and parser.slow(now):
            self.reject(invalid(f"message: {limits.message_rate}"))


def parse_timeout(value: bytes) -> float:
    """A ``grpc-timeout`` header in seconds. Raises StatusError."""
    number, unit = value[:-1], _UNITS.get(value[-1:])
    if unit is None or not number.isdigit() or len(number) > 8:
        raise invalid("grpc-timeout: must be up to 8 digits and one of H, M, S, m, u and n")
    return int(number) * unit
