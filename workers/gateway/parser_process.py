"""The process that parses large requests for a gateway, one after the other.

A client can send JSON of which each byte takes a hundred times as long as one of an image. Parsing holds the
interpreter's lock, so that a thread would hold up the event loop just the same: it happens in this process, which
has limits of memory and time, a lower priority, and nothing to lose.
"""

from __future__ import annotations

import functools
import os
import resource
import signal
from typing import Any

import msgspec

from workers.confinement.libc import prctl
from workers.confinement.limits import PR_SET_PDEATHSIG, lower_limit
from workers.net.compression import CompressionError, decompress
from workers.protocol.specs import Signature
from workers.v2 import grpc, http
from workers.v2.query import MAX_ID, V2Error, V2Query

#: bytes of memory beside those for the request
BASE_BYTES = 1 << 30
#: bytes of memory for each byte of a request: empty lists take 22
BYTES_PER_BYTE = 32
#: priority below the gateway's
NICE = 5


class ParseOrder(msgspec.Struct, array_like=True):
    """A request to parse.

    Attributes:
        body: perhaps compressed.
        encoding: see :data:`~workers.net.compression.ENCODINGS`.
        max_bytes: of the body, decompressed.
        application, version: that the query names; None: it is a gRPC message with both.
        header_length: see :func:`workers.v2.http.parse`.
        signatures: by application, as msgpack.
    """

    body: bytes
    encoding: bytes
    max_bytes: int
    max_rows: int
    application: str | None
    header_length: int | None
    signatures: bytes = b"\x80"
    version: str | None = None


class Parsed(msgspec.Struct):
    """A parsed request, or what is wrong with it.

    Attributes:
        error: for the client; empty: none.
        too_large: the error is its size.
        id, application, version: that the query names; also known for most of those that are wrong.
        query: None: it is wrong, or there is no such application.
    """

    error: str = ""
    too_large: bool = False
    id: str = ""
    application: str = ""
    version: str | None = None
    query: V2Query | None = None


def parse(order: ParseOrder) -> Parsed:
    parsed, signatures = Parsed(), _signatures(order.signatures)
    try:
        body = decompress(order.encoding, order.body, order.max_bytes)
        if order.application is None:
            query = _parse_message(body, order, signatures, parsed)
        else:
            parsed.application, parsed.version = order.application, order.version
            signature = signatures.get(order.application)
            query = None if signature is None else http.parse(body, order.header_length, signature, order.max_rows)
    except CompressionError as error:
        parsed.error, parsed.too_large = f"body: {error}", error.too_large
        if order.application is None:
            parsed.error = f"message: {error}"
            if error.too_large:
                parsed.error = f"message: is larger than max ({order.max_bytes} bytes) once decompressed"
    except V2Error as error:
        parsed.error = str(error)
    except MemoryError:
        parsed.error = "body: takes too much memory to parse"
    else:
        if query is not None:
            # Views cannot be sent.
            query.parts = [bytes(part) for part in query.parts]
            parsed.id, parsed.query = query.id, query
    return parsed


@functools.lru_cache(1)
def _signatures(packed: bytes) -> dict[str, Signature]:
    return msgspec.msgpack.decode(packed, type=dict[str, Signature])


def _parse_message(body: Any, order: ParseOrder, signatures: dict[str, Signature], parsed: Parsed) -> V2Query | None:
    """A gRPC message's query; None: for an application that does not exist."""
    fields = grpc.split(body)
    parsed.id = fields.id[:MAX_ID]
    message = fields.parse()
    parsed.application, parsed.version = message.model_name, message.model_version or None
    signature = signatures.get(parsed.application)
    if signature is None:
        return None
    return grpc.query(message, fields.contents, signature, order.max_rows)


def confine(max_request_bytes: int, gateway: int) -> None:
    """Limit this process, which dies with the gateway of that process id.

    It gives way to everything else on the machine, and takes no more memory than a request can need.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != gateway:
        # It died before.
        os._exit(0)
    os.nice(NICE)
    most = BASE_BYTES + BYTES_PER_BYTE * max_request_bytes
    lower_limit(resource.RLIMIT_AS, most)
