"""Status of a call (https://grpc.github.io/grpc/core/md_doc_statuscodes.html)."""

from __future__ import annotations

import urllib.parse
from enum import IntEnum

from workers.net.http2.frames import literal


class Code(IntEnum):
    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class StatusError(Exception):
    """A call's end in an error.

    Attributes:
        code: of gRPC.
        message: for the client.
        retry_after_s: when clients should try again; None: they should not.
    """

    def __init__(self, code: Code, message: str, retry_after_s: float | None = None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s

    def block(self, chars: int) -> bytes:
        """The header block of the status, with ``chars`` of the message at most."""
        # Printable ASCII, everything else in percent-encoded UTF-8
        text = urllib.parse.quote(self.message[:chars], safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}", errors="replace")
        block = literal(b"grpc-status", b"%d" % self.code) + literal(b"grpc-message", text.encode())
        if self.retry_after_s is not None:
            # https://github.com/grpc/proposal/blob/master/A6-client-retries.md#pushback
            block += literal(b"grpc-retry-pushback-ms", b"%d" % round(self.retry_after_s * 1e3))
        return block


def invalid(message: str) -> StatusError:
    """The client's bytes or headers are wrong."""
    return StatusError(Code.INVALID_ARGUMENT, message)


def overloaded(message: str) -> StatusError:
    """A limit of the server is reached; clients may try again in a second."""
    return StatusError(Code.RESOURCE_EXHAUSTED, message, 1.0)
