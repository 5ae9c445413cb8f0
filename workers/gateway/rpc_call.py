"""gRPC calls over HTTP/2 streams: heads, messages, deadlines and statuses
(https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md). What a call is for is its :class:`Endpoint`'s."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from workers import log
from workers.protocol.tensors import Buffer

from . import encodings
from .errors import GatewayError, Invalid, ModelFailed, Overloaded, TooLarge
from .grpc_messages import PREFIX, MessageError, Messages, prefixed
from .http2 import Connection, Head, Stream
from .http2 import frames as h2

logger = log.get("gateway.grpc")

#: seconds without progress after which a message that is being read, or an answer that is not taken, is given up
READ_TIMEOUT_S, WRITE_TIMEOUT_S = 30.0, 120.0
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
    that they may take, if told; how their messages are compressed, if they are."""

    catalog: object
    endpoint: Endpoint | None
    error: GatewayError | None = None
    timeout_s: float | None = None
    encoding: bytes = b"identity"


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


class Call(Stream):
    """One call. ``waiter``: its endpoint's own."""

    __slots__ = (
        "_admitted",
        "_answers",
        "_calls",
        "_counted",
        "_kept",
        "_messages",
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
        #: the message of a call that takes one, before its client has said that it was the only one
        self._whole: Buffer | None = None
        #: bytes: that are counted as being read, and of these those that the endpoint keeps; of written answers that
        #: wait, and of answers that the endpoint keeps
        self._counted = self._kept = self._unsent = self._answers = 0
        #: ``time.monotonic()`` when it began
        self.opened_at = connection.touched
        self.waiter: Any = None

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
        elif admitted.endpoint.streams:
            admitted.endpoint.opened(self)

    def received(self, data: Buffer, end: bool) -> None:
        if self.trailers is not None:
            # It has ended in an error that is still on its way.
            return
        if self._messages is None:
            endpoint = self._admitted.endpoint
            size = len(data) - PREFIX
            if (
                end
                and size >= 0
                and not endpoint.streams
                and not data[0]
                and int.from_bytes(data[1:PREFIX]) == size <= self._calls.message_bytes
            ):
                # The whole call in one frame.
                self._take(bytes(data[PREFIX:]), False)
                return
            self._messages = Messages(self._calls.message_bytes)
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
        held = self._messages.partial + self._kept
        if self._whole is not None:
            held += len(self._whole)
        calls.reading += held - self._counted
        self._counted = held
        if calls.reading > calls.most_bytes and held:
            raise Overloaded("too many messages are being read at once; try again")
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
        encoding, most = self._admitted.encoding, self._calls.message_bytes
        if encoding == b"identity":
            raise Invalid("message: is compressed, and grpc-encoding does not say how")
        try:
            return encodings.decompress(encoding, message, most)
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
        self._calls.unsent -= self._unsent
        self._unsent = 0
        self._admitted.endpoint.drained(self)

    def over(self) -> None:
        self._uncount()
        self._calls.unsent -= self._unsent + self._answers
        self._unsent = self._answers = 0

    def _uncount(self) -> None:
        self._calls.reading -= self._counted
        self._counted = self._kept = 0

    def keep(self, messages: int, answers: int) -> bool:
        """The endpoint keeps so many bytes of messages that it has not begun with, and of answers whose turn has not
        come. False: these are too much for the gateway, and the call has ended."""
        if self.done:
            return False
        calls = self._calls
        calls.reading += messages - self._kept
        self._counted += messages - self._kept
        self._kept = messages
        calls.unsent += answers - self._answers
        self._answers = answers
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
            self._unsent += size
            self._calls.unsent += size
            return self._affordable()
        return True

    def _affordable(self) -> bool:
        if self._calls.unsent <= self._calls.most_bytes:
            return True
        # Nobody is owed the gateway's memory: of all that is not taken, the latest is given up.
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
            self._calls.unsent -= self._answers
            self._answers = 0

    def sweep(self, now: float) -> None:
        """Give the call up where its client makes no progress; called every few seconds."""
        silent_s = now - self.moved
        if self.outbox is not None:
            if silent_s > WRITE_TIMEOUT_S:
                self.reset(h2.CANCEL)
                self.gone()
        elif self.reading and not self.held and silent_s > READ_TIMEOUT_S:
            waits = self._messages is not None and self._messages.partial
            if waits or not self._admitted.endpoint.streams:
                self.refuse(Invalid(f"message: nothing arrived for {READ_TIMEOUT_S:g} s"))


def timeout_s(value: bytes) -> float:
    """A grpc-timeout header in seconds. Raises Invalid."""
    number, unit = value[:-1], _UNITS.get(value[-1:])
    if unit is None or not number.isdigit() or len(number) > 8:
        raise Invalid("grpc-timeout: must be up to 8 digits and one of H, M, S, m, u and n")
    return int(number) * unit


def _quoted(text: str) -> bytes:
    """A status's text as its header has it: printable ASCII, all else in percent-encoded UTF-8."""
    return urllib.parse.quote(text[:MOST_TEXT], safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}", errors="replace").encode()
