"""gRPC calls over HTTP/2 streams: heads, messages, deadlines and statuses
(https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md). What a call is for is its :class:`Endpoint`'s."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from workers import log
from workers.gateway.errors import GatewayError, Invalid, ModelFailed, Overloaded, TooLarge, UnsupportedEncoding
from workers.net import compression
from workers.net.http2 import Connection, Head, Stream
from workers.net.http2 import frames as h2
from workers.protocol.tensors import Buffer

from .messages import BYTES_PER_S, PERIOD_S, PREFIX, MessageError, Messages, prefixed

logger = log.get("gateway.grpc")

#: seconds without progress after which a message that is being read, or an answer that is not taken, is given up
READ_TIMEOUT_S, WRITE_TIMEOUT_S = 30.0, 120.0
#: seconds in all in which the message of a call that takes one must have come
MESSAGE_TIMEOUT_S = 600.0
#: a call that needs no key: bytes of its message, and seconds in all that it may take
OPEN_MESSAGE_BYTES, OPEN_TIMEOUT_S = 64, 10.0
TOO_MANY_READ = "too many messages are being read at once; try again"
TOO_MANY_UNSENT = "too many answers wait for clients to read them; try again"
#: bytes of a status's text
MOST_TEXT = 4096

_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
#: the head of each response, of which :status 200 is the eighth entry of the static table (RFC 7541, appendix A)
_HEAD = (
    b"\x88" + h2.literal(b"content-type", b"application/grpc") + h2.literal(b"grpc-accept-encoding", b"gzip,deflate")
)
_OK = h2.literal(b"grpc-status", b"0")


class Endpoint(Protocol):
    """What a method does with a call. ``streams``: it takes any number of messages instead of one."""

    streams: bool

    def opened(self, call: Call) -> None:
        """The call begins."""

    def message(self, call: Call, data: Buffer) -> None:
        """A message; of a call that takes one, the only one. May raise GatewayError."""

    def ended(self, call: Call) -> None:
        """No more messages will come, of a call that takes any number."""

    def gone(self, call: Call) -> None:
        """Nobody waits for the rest any more."""

    def drained(self, call: Call) -> None:
        """All answers have gone to the socket after some had to wait."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """What a head means while ``catalog`` is the catalog: who answers its calls, or the error that does; the seconds
    that they may take, if told; how their messages are compressed, if they are; the hash of their API
    key, empty where they need none."""

    catalog: object
    endpoint: Endpoint | None
    error: GatewayError | None = None
    timeout_s: float | None = None
    encoding: bytes = b"identity"
    client: str = ""


class Calls(Protocol):
    """What calls share. ``reading``, ``unsent``: bytes of messages that are being read, and of those that clients do
    not take yet; each of them at most ``most_bytes``. One message has at most ``message_bytes``."""

    reading: int
    unsent: int
    most_bytes: int
    message_bytes: int

    def admit(self, head: Head) -> Admitted:
        """What a head means."""

    def current(self, admitted: Admitted) -> bool:
        """Whether it means that still."""

    def refused(self, error: GatewayError) -> None:
        """A call ends in an error that no query was counted for."""

    def claim(self, call: Call) -> bool:
        """Take a slot for a call with a key; False: all are taken, and no other connection has more of them."""

    def opened(self, call: Call) -> None:
        """A call without a key begins; it may take the place of an older one."""

    def closed_open(self, call: Call) -> None:
        """A call without a key has ended."""

    def relieve(self, call: Call, held: str) -> bool:
        """Evict calls of connections that hold more than this call's until all are within the limit; False: there is
        none. ``held``: ``reading_bytes`` or ``unsent_bytes``."""


class Call(Stream):
    """One call. ``waiter``: its endpoint's own."""

    __slots__ = (
        "_admitted",
        "_answers",
        "_calls",
        "_counted",
        "_kept",
        "_messages",
        "_open",
        "_unsent",
        "_whole",
        "opened_at",
        "waiter",
    )

    def __init__(self, calls: Calls, connection: Connection, number: int, head: Head):
        super().__init__(connection, number, head)
        self._calls = calls
        self._admitted: Admitted | None = None
        self._messages: Messages | None = None
        #: it is under way and needs no key
        self._open = False
        #: the message of a call that takes one, before its client has said that it was the only one
        self._whole: Buffer | None = None
        #: bytes: that are counted as being read, and of these those that the endpoint keeps; of written answers that
        #: wait, and of answers that the endpoint keeps
        self._counted = self._kept = self._unsent = self._answers = 0
        #: ``time.monotonic()`` when it began
        self.opened_at = connection.touched
        self.waiter: Any = None

    @property
    def client(self) -> str:
        """The hash of the API key that it came with."""
        return self._admitted.client

    def left_s(self, now: float) -> float | None:
        """Seconds until the call's deadline; None: it has none."""
        timeout_s = self._admitted.timeout_s
        return None if timeout_s is None else max(0.0, timeout_s - (now - self.opened_at))

    # --- what comes ---

    def opened(self) -> None:
        admitted: Admitted | None = self.head.state
        if admitted is None or not self._calls.current(admitted):
            admitted = self.head.state = self._calls.admit(self.head)
        self._admitted = admitted
        if admitted.error is not None:
            # Before its message is read, so that nobody can make the gateway read what it would refuse anyway.
            self.refuse(admitted.error)
        elif not admitted.client:
            self._open = True
            self._calls.opened(self)
        elif not self._calls.claim(self):
            # Not begun: clients may send it again, elsewhere (RFC 9113, section 8.7).
            self.reset(h2.REFUSED_STREAM)
        elif admitted.endpoint.streams:
            admitted.endpoint.opened(self)

    def received(self, data: Buffer, end: bool) -> None:
        if self.trailers is not None:
            # It has ended in an error that is still on its way.
            return
        if self._messages is None:
            endpoint = self._admitted.endpoint
            most = OPEN_MESSAGE_BYTES if self._open else self._calls.message_bytes
            size = len(data) - PREFIX
            if (
                end
                and size >= 0
                and not endpoint.streams
                and not data[0]
                and int.from_bytes(data[1:PREFIX]) == size <= most
            ):
                # The whole call in one frame.
                self._take(bytes(data[PREFIX:]), False)
                return
            self._messages = Messages(most)
        try:
            self._feed(data, end)
        except GatewayError as error:
            self.refuse(error)

    def _feed(self, data: Buffer, end: bool) -> None:
        calls = self._calls
        try:
            found = self._messages.feed(data)
        except MessageError as error:
            raise TooLarge(str(error)) if error.too_large else Invalid(str(error)) from None
        streams = self._admitted.endpoint.streams
        for compressed, message in found:
            if streams:
                self._take(message, compressed)
                if self.done or self.trailers is not None:
                    return
            elif self._whole is None:
                self._whole = self._plain(message, compressed)
            else:
                raise Invalid("message: one is taken, two came")
        if not self._open:
            held = self._messages.partial + self._kept
            if self._whole is not None:
                held += len(self._whole)
            self._count(held)
            if calls.reading > calls.most_bytes and held and not calls.relieve(self, "reading_bytes"):
                raise Overloaded(TOO_MANY_READ)
        if not end:
            return
        if self._messages.partial:
            raise Invalid("message: cut off")
        if streams:
            self._admitted.endpoint.ended(self)
        elif self._whole is None:
            raise Invalid("message: missing; one is needed")
        else:
            message, self._whole = self._whole, None
            self._uncount()
            self._take(message, False)

    def _take(self, message: Buffer, compressed: bool) -> None:
        try:
            self._admitted.endpoint.message(self, self._plain(message, compressed))
        except GatewayError as error:
            self.refuse(error)
        except Exception:
            logger.exception("grpc_handler_failed")
            self.refuse(ModelFailed("internal error"))

    def _plain(self, message: Buffer, compressed: bool) -> Buffer:
        """A message as it was before compression. Raises GatewayError."""
        if not compressed:
            return message
        if self._open:
            raise UnsupportedEncoding("message: must not be compressed; a method without a key takes none that is")
        encoding, most = self._admitted.encoding, self._calls.message_bytes
        if encoding == b"identity":
            raise Invalid("message: is compressed, and grpc-encoding does not say how")
        try:
            return compression.decompress(encoding, message, most)
        except TooLarge:
            raise TooLarge(f"message: is larger than max ({most} bytes) once decompressed") from None

    def gone(self) -> None:
        if self.trailers is not None or self._admitted is None or self._admitted.endpoint is None:
            # Its end was on its way, and its endpoint knows.
            return
        try:
            self._admitted.endpoint.gone(self)
        except Exception:
            # The connection has others, and they may be gone with it.
            logger.exception("grpc_handler_failed")

    def drained(self) -> None:
        self._count_unsent(0, self._answers)
        self._admitted.endpoint.drained(self)

    def over(self) -> None:
        if self._counted:
            self._uncount()
        if self._unsent or self._answers:
            self._count_unsent(0, 0)
        if self._open:
            self._open = False
            self._calls.closed_open(self)

    @property
    def reading_bytes(self) -> int:
        """Bytes of messages that are being read, and of those that the endpoint keeps."""
        return self._counted

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the client does not take, and of those that the endpoint keeps."""
        return self._unsent + self._answers

    def _count(self, held: int) -> None:
        more = held - self._counted
        self._counted = held
        self._calls.reading += more
        self.connection.reading_bytes += more

    def _uncount(self) -> None:
        self._count(0)
        self._kept = 0

    def _count_unsent(self, unsent: int, answers: int) -> None:
        more = unsent - self._unsent + answers - self._answers
        self._unsent, self._answers = unsent, answers
        self._calls.unsent += more
        self.connection.unsent_bytes += more

    def keep(self, messages: int, answers: int) -> bool:
        """The endpoint keeps so many bytes of messages that it has not begun with, and of answers whose turn has not
        come. False: these are too much for the gateway, and the call has ended."""
        if self.done:
            return False
        self._count(self._counted + messages - self._kept)
        self._kept = messages
        self._count_unsent(self._unsent, answers)
        return self._affordable()

    # --- what goes ---

    def settle(self, outcome: Buffer | GatewayError) -> None:
        """Answer a query's call with its outcome."""
        self.waiter = None
        if isinstance(outcome, GatewayError):
            self.fail(outcome)
        else:
            self.answer(outcome)

    def answer(self, message: Buffer) -> bool:
        """The call's only answer. False: nobody is there any more."""
        size = len(message)
        sent = self.write(_HEAD, (prefixed(size), message), PREFIX + size, _OK)
        return self._sent(size) if sent else False

    def tell(self, message: Buffer) -> bool:
        """One of the call's answers. False: nobody is there any more."""
        size = len(message)
        sent = self.write(_HEAD, (prefixed(size), message), PREFIX + size)
        return self._sent(size) if sent else False

    def _sent(self, size: int) -> bool:
        if self.outbox is not None:
            self._count_unsent(self._unsent + size, self._answers)
            return self._affordable()
        return True

    def _affordable(self) -> bool:
        calls = self._calls
        if calls.unsent <= calls.most_bytes or calls.relieve(self, "unsent_bytes"):
            return True
        # Its connection holds most: of its answers, the latest is given up.
        self.reset(h2.ENHANCE_YOUR_CALM)
        return False

    def complete(self) -> bool:
        """All answers were told."""
        return self.end(_OK if self.begun else _HEAD + _OK)

    def fail(self, error: GatewayError) -> bool:
        """End the call with an error."""
        code = grpc.StatusCode[error.grpc].value[0]
        block = h2.literal(b"grpc-status", b"%d" % code) + h2.literal(b"grpc-message", _quoted(error.message))
        if error.retry_after_s is not None:
            # https://github.com/grpc/proposal/blob/master/A6-client-retries.md#pushback
            block += h2.literal(b"grpc-retry-pushback-ms", b"%d" % round(error.retry_after_s * 1e3))
        return self.end(block if self.begun else _HEAD + block)

    def refuse(self, error: GatewayError) -> None:
        """End the call with an error that no query was counted for."""
        if self.done or self.trailers is not None:
            return
        self._calls.refused(error)
        if self.waiter is not None:
            self.gone()
        self.fail(error)
        if not self.done:
            # An answer is on its way before it. What was read, and what waited behind that answer, is let go.
            self._messages = self._whole = None
            self._uncount()
            self._count_unsent(self._unsent, 0)

    def evict(self, error: GatewayError) -> None:
        """End the call to free what it holds: with the error, or with a reset where an answer is not read."""
        if self.outbox is None:
            self.refuse(error)
        else:
            self.reset(h2.ENHANCE_YOUR_CALM)
            self.gone()

    def sweep(self, now: float) -> None:
        """Give the call up where its client makes no progress; called every few seconds."""
        silent_s = now - self.moved
        if self._open and now - self.opened_at > OPEN_TIMEOUT_S:
            self.evict(Invalid(f"message: must have come within {OPEN_TIMEOUT_S:g} s"))
        elif self.outbox is not None:
            if silent_s > WRITE_TIMEOUT_S:
                self.reset(h2.CANCEL)
                self.gone()
        elif self.reading:
            self._sweep_reading(now, silent_s)

    def _sweep_reading(self, now: float, silent_s: float) -> None:
        messages, streams = self._messages, self._admitted.endpoint.streams
        if self.held or (streams and (messages is None or not messages.partial)):
            if messages is not None:
                messages.pause()
        elif silent_s > READ_TIMEOUT_S:
            self.refuse(Invalid(f"message: nothing arrived for {READ_TIMEOUT_S:g} s"))
        elif not streams and now - self.opened_at > MESSAGE_TIMEOUT_S:
            self.refuse(Invalid(f"message: must have come within {MESSAGE_TIMEOUT_S:g} s"))
        elif messages is not None and messages.slow(now):
            self.refuse(Invalid(f"message: at least {BYTES_PER_S} bytes/s on average over {PERIOD_S:g} s"))


def timeout_s(value: bytes) -> float:
    """A grpc-timeout header in seconds. Raises Invalid."""
    number, unit = value[:-1], _UNITS.get(value[-1:])
    if unit is None or not number.isdigit() or len(number) > 8:
        raise Invalid("grpc-timeout: must be up to 8 digits and one of H, M, S, m, u and n")
    return int(number) * unit


def _quoted(text: str) -> bytes:
    """A status's text as its header has it: printable ASCII, all else in percent-encoded UTF-8."""
    return urllib.parse.quote(text[:MOST_TEXT], safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}", errors="replace").encode()
