"""The V2 HTTP edge: queries (:mod:`.edge` tells their story), metadata and pages.

A request is admitted by its head (path, method, key, encoding), so that no client can make the gateway read a body
that it would reject anyway.
"""

from __future__ import annotations

import math
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from workers import log
from workers.net import compression
from workers.net.http1 import Exchange, RequestHead, Response
from workers.protocol.frames import Buffer
from workers.v2 import http
from workers.v2.http_memory import HttpReader
from workers.v2.http_template import HttpTemplate
from workers.v2.query import V2Query
from workers.v2.sizes import BodyLimits

from .body_sizes import BodySizes
from .catalog import Catalog
from .edge import Edge, Target
from .errors import (
    BodyTooLarge,
    GatewayError,
    Invalid,
    MethodNotAllowed,
    ModelFailed,
    NotFound,
    UnsupportedEncoding,
    UnsupportedMethod,
)
from .front import Front
from .in_flight import Answer, InFlightQuery
from .metadata import Metadata
from .metrics import GatewayMetrics
from .open_pages import OpenPages
from .parser_process import ParseOrder
from .parsing import IN_LOOP_BYTES, Parsing

logger = log.get("gateway.rest")

_JSON = (b"content-type", b"application/json")
_BINARY = (b"content-type", b"application/octet-stream")
_encode = msgspec.json.Encoder().encode

#: bytes of any body that are parsed in the event loop
QUICK_BYTES = 16 * 1024
#: lists and objects in JSON, each of which takes a hundred times as long as a byte of a number
QUICK_LISTS = 2048
#: Triton's extensions that are not served, by a part of their paths below ``/v2``
_UNSUPPORTED = {
    "systemsharedmemory": "shared memory is not supported",
    "cudasharedmemory": "shared memory is not supported",
    "repository": "loading and unloading are not supported here (REST takes variants, plans load them)",
    "trace": "trace settings are not supported",
    "logging": "log settings are not supported",
    "generate": "generating text is not supported",
    "generate_stream": "generating text is not supported",
}
#: bytes of a body that is not used: some clients send '{}'
UNUSED_BODY_BYTES = 64


@dataclass(slots=True)
class _Admitted:
    """An admitted head.

    Attributes:
        call: answers its requests; None: they are queries.
        model, version: from the path.
        header_length: bytes of the body's JSON part; None: all.
        encoding, accepts: how the body is compressed, and how the response may be.
        client: hash of the API key.
        infer: what queries with this head ask, once there was one.
    """

    call: Callable[[Exchange, _Admitted], None] | None
    model: str = ""
    version: str | None = None
    header_length: int | None = None
    encoding: bytes = b"identity"
    accepts: bytes = b""
    client: str = ""
    infer: _Infer | None = None


#: answers an admitted request. Raises GatewayError
Call = Callable[[Exchange, _Admitted], None]


@dataclass(slots=True)
class _Infer:
    """Target and reader of queries, valid for one catalog.

    Attributes:
        text: inputs have elements that must be looked at one by one.
    """

    catalog: Catalog
    target: Target
    reader: HttpReader
    limits: BodyLimits
    text: bool


class Rest(Edge):
    """Answers :class:`~workers.net.http1.Exchange` objects."""

    template = HttpTemplate

    def __init__(
        self,
        front: Front,
        metadata: Metadata,
        metrics: GatewayMetrics,
        sizes: BodySizes,
        parsing: Parsing,
        pages: OpenPages,
    ) -> None:
        super().__init__(front, metadata, metrics, sizes, parsing)
        get, post = ("GET", "HEAD"), ("POST",)
        #: path -> handler, without a key
        self._open: dict[tuple[str, ...], Call] = {
            ("v2", "health", "live"): pages.live,
            ("v2", "health", "ready"): pages.ready,
            ("health",): pages.health,
            ("metrics",): pages.metrics,
        }
        #: path -> (methods, handler)
        self._fixed: dict[tuple[str, ...], tuple[tuple[str, ...], Call]] = {
            ("v2",): (get, self._described(lambda _: metadata.server())),
            ("v2", "models", "stats"): (
                get,
                self._described(lambda head: metadata.statistics(None, None, head.client)),
            ),
            ("v2", "repository", "index"): (post, self._keyed(self._index)),
        }
        #: the same by the end of a model's path
        self._of_model: dict[str, tuple[tuple[str, ...], Call | None]] = {
            "": (get, self._described(lambda head: metadata.model(head.model, head.version))),
            "ready": (get, self._keyed(self._model_ready)),
            "config": (get, self._described(lambda head: metadata.config(head.model, head.version))),
            "stats": (
                get,
                self._described(lambda head: metadata.statistics(head.model or None, head.version, head.client)),
            ),
            "infer": (post, None),
        }

    # --- called by the HTTP server ---

    def preflight(self, head: RequestHead) -> Response | None:
        try:
            head.state = self._admit(head)
        except GatewayError as error:
            return self._refusal(error)
        return None

    def handle(self, exchange: Exchange) -> None:
        admitted: _Admitted = exchange.head.state
        try:
            if admitted.call is not None:
                admitted.call(exchange, admitted)
                return
            waiting = self.infer(exchange, exchange.body, admitted.encoding, admitted.client, exchange.read_at)
            if not exchange.done:
                # Reset with the answer: a reference cycle would keep the body until the garbage collector runs.
                exchange.waiter = waiting
        except GatewayError as error:
            self.refuse(exchange, error)

    def disconnected(self, exchange: Exchange) -> None:
        self.withdraw(exchange.waiter)

    def render_error(self, status: int, message: str) -> Response:
        self._metrics.invalid(status)
        headers = [_JSON] if status != 503 else [_JSON, (b"retry-after", b"1")]
        return status, headers, [_encode({"error": message})]

    def _refusal(self, error: GatewayError) -> Response:
        self._metrics.invalid(error.status)
        return _error(error)

    # --- admission ---

    def _admit(self, head: RequestHead) -> _Admitted:
        path = _split(head.target)
        method = head.method.decode("latin-1")
        headers = head.headers
        if path in self._open:
            _allow(method, ("GET", "HEAD"))
            _no_body(head)
            # Strangers are not to displace the heads of clients.
            head.remembered = False
            return _Admitted(self._open[path])
        if path[:1] != ("v2",):
            raise NotFound(f"path {_shown(head.target)}: not found; the Open Inference Protocol (V2) is below /v2")
        client = head.client = self._front.catalog.authenticate(headers.get(b"authorization"))
        model, version, route = "", None, self._fixed.get(path)
        if route is None and path[1] == "models" and len(path) > 2:
            # /v2/models/M[/versions/V][/VERB]
            model, rest = path[2], path[3:]
            if rest[:1] == ("versions",) and len(rest) > 1:
                version, rest = rest[1], rest[2:]
            route = self._of_model.get("/".join(rest))
            if route is not None:
                self._front.catalog.permit(client, model)
        if route is None:
            raise self._no_such(path, head)
        methods, call = route
        _allow(method, methods)
        if method != "POST":
            _no_body(head)
            return _Admitted(call, model, version, client=client)
        encoding = compression.named(headers.get(b"content-encoding", b"identity"))
        if encoding not in compression.ENCODINGS:
            known = "gzip, deflate and identity"
            raise UnsupportedEncoding(f"Content-Encoding: {_shown(encoding[:80])} is not supported; {known} are")
        accepts = headers.get(b"accept-encoding", b"")
        header_length = _header_length(headers)
        if call is None:
            self._sizes.check(self._front.catalog, model, head, header_length)
        else:
            head.body_bytes = IN_LOOP_BYTES
        return _Admitted(call, model, version, header_length, encoding, accepts, client)

    def _no_such(self, path: tuple[str, ...], head: RequestHead) -> GatewayError:
        verb = 1 if path[1] != "models" else 5 if path[3:4] == ("versions",) else 3
        what = _UNSUPPORTED.get("".join(path[verb : verb + 1]))
        if what is None:
            return NotFound(f"path {_shown(head.target)}: not found")
        served = ["/" + "/".join(parts) for parts in (*self._open, *self._fixed)]
        served += ["/v2/models/M[/versions/V]" + ("/" + verb if verb else "") for verb in self._of_model]
        return UnsupportedMethod(f"path {_shown(head.target)}: {what}; supported are {', '.join(served)}")

    # --- queries ---

    def parse(self, reply: Exchange, data: Buffer, encoding: bytes, client: str) -> tuple[V2Query, Target] | ParseOrder:
        front, admitted = self._front, reply.head.state
        infer = admitted.infer
        if infer is None or infer.catalog is not front.catalog:
            infer = admitted.infer = self._resolve(admitted)
        body, header_length = data, admitted.header_length
        if encoding != b"identity":
            body = _decompressed(encoding, data, self._most(infer, header_length))
        if body is None or (
            len(body) > QUICK_BYTES and _slow(body, header_length, infer.text) and self._parsing.takes(len(body))
        ):
            most, rows = self._most(infer, header_length), front.accounts.limits.query_rows
            return ParseOrder(
                bytes(data), encoding, most, rows, admitted.model, header_length, version=admitted.version
            )
        return infer.reader.parse(body, header_length), infer.target

    def _most(self, infer: _Infer, header_length: int | None) -> int:
        limits = infer.limits
        binary_bytes = 0 if header_length is None else limits.binary_bytes
        return min(limits.json_bytes + binary_bytes, self._sizes.max_bytes)

    def _resolve(self, admitted: _Admitted) -> _Infer:
        front = self._front
        catalog = front.catalog
        target = spec, _ = front.resolve(admitted.model, admitted.version, admitted.client)
        reader = catalog.readers.get(spec.name)
        if reader is None:
            reader = catalog.readers[spec.name] = HttpReader(spec.signature, front.accounts.limits.query_rows)
        text = any(tensor.datatype == "BYTES" for tensor in spec.signature.inputs)
        return _Infer(catalog, target, reader, self._sizes.of(spec), text)

    def render(self, flight: InFlightQuery, answer: Answer) -> Response:
        model, version, null = flight.spec.name, answer.run.variant, flight.spec.non_finite == "null"
        body, header_length = http.render(
            flight.query, model, version, answer.parameters(), answer.headers, answer.parts, null
        )
        if header_length is None:
            return 200, [_JSON], body
        return 200, [_BINARY, (b"inference-header-content-length", b"%d" % header_length)], body

    def respond(self, reply: Exchange, response: bytes | Response) -> GatewayError | None:
        accepts = reply.head.state.accepts
        if accepts:
            try:
                response = _compressed(accepts, response)
            except Exception:
                logger.exception("response_not_compressed")
                error = ModelFailed("internal error: the response could not be compressed")
                self.fail(reply, error)
                return error
        if type(response) is bytes:
            reply.succeed(response)
        else:
            reply.respond(*response)
        return None

    def refuse(self, reply: Exchange, error: GatewayError) -> None:
        reply.respond(*self._refusal(error))

    def fail(self, reply: Exchange, error: GatewayError) -> None:
        reply.respond(*_error(error))

    # --- the rest ---

    def _keyed(self, call: Call) -> Call:
        """Check the key at each request: heads are remembered, and keys expire."""

        def checked(exchange: Exchange, admitted: _Admitted) -> None:
            self._front.catalog.check_client(admitted.client)
            call(exchange, admitted)

        return checked

    def _described(self, describe: Callable[[_Admitted], Any]) -> Call:
        return self._keyed(lambda exchange, admitted: exchange.respond(200, [_JSON], [_encode(describe(admitted))]))

    def _model_ready(self, exchange: Exchange, admitted: _Admitted) -> None:
        why = self._metadata.model_not_ready(admitted.model, admitted.version)
        body = {"error": why} if why else {"name": admitted.model, "ready": True}
        exchange.respond(400 if why else 200, [_JSON], [_encode(body)])

    def _index(self, exchange: Exchange, admitted: _Admitted) -> None:
        body = exchange.body
        if admitted.encoding != b"identity":
            body = _decompressed(admitted.encoding, body, IN_LOOP_BYTES)
        body = bytes(body)
        try:
            wanted = msgspec.json.decode(body, type=http.IndexRequest) if body.strip() else http.IndexRequest()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Invalid(f"body: {error}") from None
        exchange.respond(200, [_JSON], [_encode(self._metadata.index(wanted.ready, admitted.client))])


def _error(error: GatewayError) -> Response:
    headers = [_JSON, *error.headers]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s))))
    return error.status, headers, [_encode({"error": error.message})]


def _compressed(accepts: bytes, response: bytes | Response) -> bytes | Response:
    """A response, compressed where its client and its size suggest it.

    Args:
        response: a filled template is its header lines, an empty line, and its body.
    """
    if type(response) is bytes:
        # No partition(): it copies a large answer only to find that it is not compressed.
        end = response.index(b"\r\n\r\n")
        body = memoryview(response)[end + 4 :]
        encoding = compression.choose(accepts, len(body))
        if encoding is None:
            return response
        lines = response[:end]
        headers = [tuple(line.split(b": ")) for line in lines.split(b"\r\n") if not line.startswith(b"content-length")]
        parts: Sequence[Buffer] = [body]
    else:
        _, headers, parts = response
        encoding = compression.choose(accepts, sum(len(part) for part in parts))
    if encoding is None:
        return response
    headers = [*headers, (b"content-encoding", encoding), (b"vary", b"accept-encoding")]
    return 200, headers, compression.compress(encoding, parts)


def _slow(body: Buffer, header_length: int | None, text: bool) -> bool:
    size = len(body) if header_length is None else header_length
    if size > IN_LOOP_BYTES or (text and len(body) > IN_LOOP_BYTES):
        return True
    if size <= QUICK_BYTES:
        return False
    json = bytes(body[:size])
    return json.count(b"[") + json.count(b"{") > QUICK_LISTS


def _decompressed(encoding: bytes, body: Buffer, most: int) -> Buffer | None:
    """Return a body decompressed; None: that is too much for the event loop. Raises GatewayError."""
    try:
        return compression.decompress(encoding, body, min(most, IN_LOOP_BYTES))
    except compression.CompressionError as error:
        if error.too_large and most > IN_LOOP_BYTES:
            return None
        raise (BodyTooLarge if error.too_large else Invalid)(f"body: {error}") from None


def _split(target: bytes) -> tuple[str, ...]:
    try:
        parts = target.decode("ascii").rstrip("/").split("/")[1:]
        return tuple(urllib.parse.unquote(part, errors="strict") if "%" in part else part for part in parts)
    except UnicodeDecodeError:
        raise Invalid(f"path {_shown(target)}: must be ASCII with percent-encoded UTF-8") from None


def _shown(target: bytes) -> str:
    return repr(target[:200].decode("latin-1"))


def _allow(method: str, methods: tuple[str, ...]) -> None:
    if method not in methods:
        raise MethodNotAllowed(method, methods)


def _no_body(head: RequestHead) -> None:
    for name in (b"transfer-encoding", b"content-encoding"):
        if name in head.headers:
            raise Invalid(f"{name.decode()}: not allowed; this method and path take no body")
    if head.length is None or head.length > UNUSED_BODY_BYTES:
        raise BodyTooLarge(f"body: at most {UNUSED_BODY_BYTES} bytes; this method and path take none")


def _header_length(headers: dict[bytes, bytes]) -> int | None:
    value = headers.get(b"inference-header-content-length")
    if value is None:
        return None
    if not value.isdigit() or len(value) > 15:
        raise Invalid(f"{http.HEADER_LENGTH}: must be a whole number of bytes")
    return int(value)
