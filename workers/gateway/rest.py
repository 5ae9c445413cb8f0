"""The V2 HTTP edge: paths, headers and bodies to calls of the handlers behind, and back. No decisions here.

A request is admitted when its headers are there (path, method, key, encoding), so that nobody can make the gateway
read a body that it would refuse anyway.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from workers.net import compression
from workers.net.http1 import Exchange, RequestHead, Response
from workers.protocol.frames import Buffer, TensorHeader
from workers.protocol.specs import ApplicationSpec
from workers.v2 import http
from workers.v2.http_memory import Reader
from workers.v2.http_template import Template, fits
from workers.v2.query import Query, Terms, V2Error

from .catalog import Catalog, parse_version
from .errors import (
    GatewayError,
    Invalid,
    MethodNotAllowed,
    ModelFailed,
    NotFound,
    TooLarge,
    UnsupportedEncoding,
    http_plain,
    http_response,
)
from .front import Front
from .in_flight import Answer, InFlightQuery, Outcome
from .metadata import Metadata
from .metrics import GatewayMetrics

_JSON = (b"content-type", b"application/json")
_BINARY = (b"content-type", b"application/octet-stream")
_TEXT = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
_encode = msgspec.json.Encoder().encode

#: kinds of answers that are remembered
TEMPLATES = 1024
#: bytes of a body where none is of use: some clients send '{}'
UNUSED_BODY_BYTES = 64

_Rendered = tuple[Terms, tuple[TensorHeader, ...], Template | None]


@dataclass(slots=True)
class _Admitted:
    """A head that is fine. ``call``: answers its requests; ``model`` and ``version`` from its path; ``infer``: what
    these are, once somebody asked; ``client``: hash of its API key."""

    call: Callable[[Exchange, _Admitted], None]
    model: str = ""
    version: str | None = None
    header_length: int | None = None
    encoding: bytes = b"identity"
    accepts: bytes = b""
    client: str = ""
    infer: _Infer | None = None


@dataclass(slots=True)
class _Infer:
    """What queries to a model are for, as long as the catalog is this one."""

    catalog: Catalog
    spec: ApplicationSpec
    variant: str | None
    reader: Reader


class Rest:
    """Answers :class:`~workers.net.http1.Exchange` objects."""

    def __init__(self, front: Front, metadata: Metadata, metrics: GatewayMetrics, max_body_bytes: int):
        self._front = front
        self._metadata = metadata
        self._metrics = metrics
        self._max_body_bytes = max_body_bytes
        self._answer = self._answered
        #: by application, of the catalog that came last
        self._readers: dict[str, Reader] = {}
        self._readers_of: Catalog | None = None
        self._templates: dict[tuple, _Rendered] = {}
        get, post = ("GET", "HEAD"), ("POST",)
        #: path below the root -> (methods, handler); those of a model follow below
        self._fixed: dict[tuple[str, ...], tuple[tuple[str, ...], Callable]] = {
            ("v2",): (get, self._server),
            ("v2", "models", "stats"): (get, self._statistics),
            ("v2", "repository", "index"): (post, self._index),
        }
        self._open: dict[tuple[str, ...], Callable] = {
            ("v2", "health", "live"): self._live,
            ("v2", "health", "ready"): self._ready,
            ("health",): self._health,
            ("metrics",): self._metrics_text,
        }
        self._of_model: dict[str, tuple[tuple[str, ...], Callable]] = {
            "": (get, self._model),
            "ready": (get, self._model_ready),
            "config": (get, self._config),
            "stats": (get, self._statistics),
            "infer": (post, self._infer),
        }

    # --- what the HTTP server calls ---

    def preflight(self, head: RequestHead) -> Response | None:
        """Admit a request by its head, or refuse it."""
        try:
            head.state = self._admit(head)
        except GatewayError as error:
            return self._error(error)
        return None

    def handle(self, exchange: Exchange) -> None:
        """Answer an admitted request."""
        admitted: _Admitted = exchange.head.state
        try:
            admitted.call(exchange, admitted)
        except GatewayError as error:
            exchange.respond(*self._error(error))

    def disconnected(self, exchange: Exchange) -> None:
        """The client went away before the answer."""
        if exchange.waiter is not None:
            self._front.cancel(exchange.waiter)

    def render_error(self, status: int, message: str) -> Response:
        """An error that the HTTP server found by itself."""
        self._metrics.invalid(status)
        return http_plain(status, message)

    def _error(self, error: GatewayError) -> Response:
        if error.outcome is None:
            self._metrics.invalid(error.status)
        return http_response(error)

    # --- admission ---

    def _admit(self, head: RequestHead) -> _Admitted:
        path = _split(head.target)
        method = head.method.decode("latin-1")
        headers = head.headers
        if path in self._open:
            _allow(method, ("GET", "HEAD"))
            _no_body(head)
            return _Admitted(self._open[path])
        known = path in self._fixed or self._model_path(path) is not None
        if not known and path[:1] != ("v2",):
            raise NotFound(f"path {_shown(head.target)}: not found")
        client = self._front.catalog.authenticate(headers.get(b"authorization"))
        if path in self._fixed:
            methods, call = self._fixed[path]
            model, version = "", None
        else:
            found = self._model_path(path)
            if found is None:
                raise NotFound(f"path {_shown(head.target)}: not found")
            model, version, verb = found
            methods, call = self._of_model[verb]
        _allow(method, methods)
        if method != "POST":
            _no_body(head)
            return _Admitted(call, model, version, client=client)
        encoding = headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding not in compression.ENCODINGS:
            known = "gzip, deflate and identity"
            raise UnsupportedEncoding(f"Content-Encoding: {_shown(encoding[:80])} is not supported; {known} are")
        accepts = headers.get(b"accept-encoding", b"")
        return _Admitted(call, model, version, _header_length(headers), encoding, accepts, client)

    def _model_path(self, path: tuple[str, ...]) -> tuple[str, str | None, str] | None:
        """(model, version, verb) of ``/v2/models/M[/versions/V][/VERB]``."""
        if len(path) < 3 or path[:2] != ("v2", "models"):
            return None
        model, rest, version = path[2], path[3:], None
        if len(rest) >= 2 and rest[0] == "versions":
            version, rest = rest[1], rest[2:]
        verb = rest[0] if rest else ""
        if len(rest) > 1 or verb not in self._of_model or (rest and verb == ""):
            return None
        return model, version, verb

    # --- infer ---

    def _infer(self, exchange: Exchange, admitted: _Admitted) -> None:
        front = self._front
        infer = admitted.infer
        if infer is None or infer.catalog is not front.catalog:
            infer = admitted.infer = self._what_for(admitted)
        body = exchange.body
        if admitted.encoding != b"identity":
            body = self._decompress(admitted, body)
        try:
            query = infer.reader.parse(body, admitted.header_length)
        except V2Error as error:
            raise Invalid(str(error)) from None
        flight = front.submit(
            infer.spec, query, infer.variant, exchange.read_at, self._answer, exchange, admitted.client
        )
        if not exchange.done:
            # Undone with the answer: what goes round in a circle stays until the collector comes by, body and all.
            exchange.waiter = flight

    def _decompress(self, admitted: _Admitted, body: Buffer) -> Buffer:
        """Raises GatewayError."""
        try:
            return compression.decompress(admitted.encoding, body, self._max_body_bytes)
        except compression.CompressionError as error:
            raise (TooLarge if error.too_large else Invalid)(f"body: {error}") from None

    def _what_for(self, admitted: _Admitted) -> _Infer:
        front = self._front
        catalog = front.catalog
        spec = catalog.application(admitted.model)
        variant = parse_version(catalog, spec, admitted.version)
        if self._readers_of is not catalog:
            self._readers_of = catalog
            self._readers.clear()
        reader = self._readers.get(spec.name)
        if reader is None:
            reader = self._readers[spec.name] = Reader(spec.signature, front.accounts.limits.query_rows)
        return _Infer(catalog, spec, variant, reader)

    def _answered(self, flight: InFlightQuery, outcome: Outcome) -> None:
        """Answer a query's request; raises where the answer could not be rendered and the client was told so."""
        exchange: Exchange = flight.context
        if isinstance(outcome, GatewayError):
            exchange.respond(*self._error(outcome))
            return
        query = flight.query
        try:
            accepts = exchange.head.state.accepts
            if not accepts:
                rendered = outcome.run.rendered
                if rendered is None or rendered[0] is not query.terms or rendered[1] is not outcome.headers:
                    rendered = outcome.run.rendered = self._rendered(flight, outcome)
                template = rendered[2]
                if template is not None:
                    exchange.succeed(template.fill(query.id, outcome.queue_s * 1e3, outcome.parts))
                    return
            response = _render(accepts, query, flight.spec.name, outcome)
        except V2Error as error:
            failed = ModelFailed(str(error))
            exchange.respond(*self._error(failed))
            raise failed from None
        except Exception:
            exchange.respond(*self._error(ModelFailed("internal error: the answer could not be rendered")))
            raise
        exchange.respond(*response)

    def _rendered(self, flight: InFlightQuery, answer: Answer) -> _Rendered:
        """What the answer has in common with others of the same terms and headers; no template where there is no such
        thing."""
        run, terms, headers = answer.run, flight.query.terms, answer.headers
        # Terms by identity, which is enough where it matters; they are kept, so no other object can take their place.
        key = (id(terms), headers, run.variant, run.accuracy, run.device, run.rows)
        known = self._templates.get(key)
        if known is None:
            if len(self._templates) >= TEMPLATES:
                self._templates.clear()
            template = None
            if fits(terms, headers):
                parameters = answer.parameters()
                template = Template(terms, flight.spec.name, run.variant, parameters, "queue_ms", headers)
            known = self._templates[key] = terms, headers, template
        return known

    # --- the rest ---

    def _live(self, exchange: Exchange, _: _Admitted) -> None:
        exchange.respond(200, [_JSON], [_encode({"live": True})])

    def _ready(self, exchange: Exchange, _: _Admitted) -> None:
        why = self._metadata.not_ready()
        if why:
            # The protocol asks for a 4xx status where Kubernetes' habit would be 503.
            exchange.respond(400, [_JSON], [_encode({"ready": False, "error": why})])
        else:
            exchange.respond(200, [_JSON], [_encode({"ready": True})])

    def _health(self, exchange: Exchange, _: _Admitted) -> None:
        exchange.respond(200, [_JSON], [_encode(self._metadata.health())])

    def _metrics_text(self, exchange: Exchange, _: _Admitted) -> None:
        self._metadata.refresh_metrics()
        exchange.respond(200, [_TEXT], [self._metrics.text()])

    def _server(self, exchange: Exchange, _: _Admitted) -> None:
        exchange.respond(200, [_JSON], [_encode(self._metadata.server())])

    def _model(self, exchange: Exchange, admitted: _Admitted) -> None:
        exchange.respond(200, [_JSON], [_encode(self._metadata.model(admitted.model, admitted.version))])

    def _model_ready(self, exchange: Exchange, admitted: _Admitted) -> None:
        why = self._metadata.model_not_ready(admitted.model, admitted.version)
        if why:
            exchange.respond(400, [_JSON], [_encode({"error": why})])
        else:
            exchange.respond(200, [_JSON], [_encode({"name": admitted.model, "ready": True})])

    def _config(self, exchange: Exchange, admitted: _Admitted) -> None:
        exchange.respond(200, [_JSON], [_encode(self._metadata.config(admitted.model, admitted.version))])

    def _statistics(self, exchange: Exchange, admitted: _Admitted) -> None:
        model = admitted.model or None
        exchange.respond(200, [_JSON], [_encode(self._metadata.statistics(model, admitted.version))])

    def _index(self, exchange: Exchange, admitted: _Admitted) -> None:
        body = bytes(self._decompress(admitted, exchange.body))
        try:
            wanted = msgspec.json.decode(body, type=http.IndexRequest) if body.strip() else http.IndexRequest()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Invalid(f"body: {error}") from None
        exchange.respond(200, [_JSON], [_encode(self._metadata.index(wanted.ready))])


def _render(accepts: bytes, query: Query, model: str, answer: Answer) -> Response:
    parameters = answer.parameters()
    body, header_length = http.render(query, model, answer.run.variant, parameters, answer.headers, answer.parts)
    headers = [_JSON]
    if header_length is not None:
        headers = [_BINARY, (b"inference-header-content-length", b"%d" % header_length)]
    encoding = compression.choose(accepts, sum(len(part) for part in body)) if accepts else None
    if encoding is not None:
        body = compression.compress(encoding, body)
        headers += [(b"content-encoding", encoding), (b"vary", b"accept-encoding")]
    return 200, headers, body


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
    """Reject the body of a request that needs none, before any of it is read. Raises GatewayError."""
    for name in (b"transfer-encoding", b"content-encoding"):
        if name in head.headers:
            raise Invalid(f"{name.decode()}: not allowed; this method and path take no body")
    if head.length is None or head.length > UNUSED_BODY_BYTES:
        raise TooLarge(f"body: at most {UNUSED_BODY_BYTES} bytes; this method and path take none")


def _header_length(headers: dict[bytes, bytes]) -> int | None:
    value = headers.get(b"inference-header-content-length")
    if value is None:
        return None
    if not value.isdigit() or len(value) > 15:
        raise Invalid(f"{http.HEADER_LENGTH}: must be a whole number of bytes")
    return int(value)
