"""The V2 HTTP edge: paths, headers and bodies to calls of the handlers behind, and back. No decisions here.

A request is admitted when its headers are there (path, method, key, encoding), so that nobody can make the gateway
read a body that it would refuse anyway.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from workers.protocol import v2

from . import encodings
from .dataplane import Answer, DataPlane, Outcome, parse_version
from .errors import GatewayError, Invalid, MethodNotAllowed, ModelFailed, NotFound, http_plain, http_response
from .http1 import Exchange, Headers
from .metadata import Metadata
from .metrics import GatewayMetrics

_JSON = (b"content-type", b"application/json")
_BINARY = (b"content-type", b"application/octet-stream")
_TEXT = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
_encode = msgspec.json.Encoder().encode

Response = tuple[int, Headers, Sequence[bytes]]


@dataclass(frozen=True)
class _Admitted:
    """A request whose headers are fine. ``call``: answers it; ``model`` and ``version`` from its path."""

    call: Callable[[Exchange, _Admitted], None]
    model: str = ""
    version: str | None = None
    header_length: int | None = None
    encoding: bytes = b"identity"


class Rest:
    """Answers :class:`~.http1.Exchange` objects."""

    def __init__(self, dataplane: DataPlane, metadata: Metadata, metrics: GatewayMetrics, max_body_bytes: int):
        self._dataplane = dataplane
        self._metadata = metadata
        self._metrics = metrics
        self._max_body_bytes = max_body_bytes
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

    def preflight(self, exchange: Exchange) -> Response | None:
        """Admit a request by its headers, or refuse it."""
        try:
            exchange.state = self._admit(exchange)
        except GatewayError as error:
            return self._error(error)
        return None

    def handle(self, exchange: Exchange) -> None:
        """Answer an admitted request."""
        admitted = exchange.state
        assert isinstance(admitted, _Admitted)
        try:
            admitted.call(exchange, admitted)
        except GatewayError as error:
            exchange.respond(*self._error(error))

    def render_error(self, status: int, message: str) -> Response:
        """An error that the HTTP server found by itself."""
        self._metrics.invalid(status)
        return http_plain(status, message)

    def _error(self, error: GatewayError) -> Response:
        if error.outcome is None:
            self._metrics.invalid(error.status)
        return http_response(error)

    # --- admission ---

    def _admit(self, exchange: Exchange) -> _Admitted:
        path = _split(exchange.target)
        method = exchange.method.decode("latin-1")
        headers = exchange.headers
        if path in self._open:
            _allow(method, ("GET", "HEAD"))
            return _Admitted(self._open[path])
        known = path in self._fixed or self._model_path(path) is not None
        if not known and path[:1] != ("v2",):
            raise NotFound(f"path {_shown(exchange.target)}: not found")
        self._dataplane.catalog.authenticate(headers.get(b"authorization"))
        if path in self._fixed:
            methods, call = self._fixed[path]
            model, version = "", None
        else:
            found = self._model_path(path)
            if found is None:
                raise NotFound(f"path {_shown(exchange.target)}: not found")
            model, version, verb = found
            methods, call = self._of_model[verb]
        _allow(method, methods)
        if method != "POST":
            return _Admitted(call, model, version)
        encoding = headers.get(b"content-encoding", b"identity").strip().lower()
        encodings.check(encoding)
        return _Admitted(call, model, version, _header_length(headers), encoding)

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
        dataplane = self._dataplane
        spec = dataplane.catalog.application(admitted.model)
        variant = parse_version(dataplane.catalog, spec, admitted.version)
        body = encodings.decompress(admitted.encoding, exchange.body, self._max_body_bytes)
        try:
            query = v2.parse(body, admitted.header_length, spec.signature, dataplane.limits.query_rows)
        except v2.V2Error as error:
            raise Invalid(str(error)) from None

        def answer(outcome: Outcome) -> None:
            if isinstance(outcome, GatewayError):
                exchange.respond(*self._error(outcome))
                return
            try:
                response = _render(exchange, query, spec.name, outcome)
            except v2.V2Error as error:
                failed = ModelFailed(str(error))
                exchange.respond(*self._error(failed))
                raise failed from None
            except Exception:
                exchange.respond(*self._error(ModelFailed("internal error: the answer could not be rendered")))
                raise
            exchange.respond(*response)

        flight = dataplane.submit(spec, query, variant, exchange.read_at, answer)
        if not exchange.done:
            exchange.on_disconnect = lambda: dataplane.cancel(flight)

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
        body = encodings.decompress(admitted.encoding, exchange.body, self._max_body_bytes)
        try:
            wanted = msgspec.json.decode(bytes(body), type=_IndexRequest) if body.strip() else _IndexRequest()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Invalid(f"body: {error}") from None
        exchange.respond(200, [_JSON], [_encode(self._metadata.index(wanted.ready))])


class _IndexRequest(msgspec.Struct):
    ready: bool = False


def _render(exchange: Exchange, query: v2.Query, model: str, answer: Answer) -> Response:
    result = answer.result
    body, header_length = v2.render(query, model, result.variant, answer.parameters(), result.outputs, answer.parts)
    headers = [_JSON]
    if header_length is not None:
        headers = [_BINARY, (b"inference-header-content-length", b"%d" % header_length)]
    accept = exchange.headers.get(b"accept-encoding", b"")
    encoding = encodings.choose(accept, sum(len(part) for part in body)) if accept else None
    if encoding is not None:
        body = encodings.compress(encoding, body)
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


def _header_length(headers: dict[bytes, bytes]) -> int | None:
    value = headers.get(b"inference-header-content-length")
    if value is None:
        return None
    if not value.isdigit() or len(value) > 15:
        raise Invalid(f"{v2.HEADER_LENGTH}: must be a whole number of bytes")
    return int(value)
