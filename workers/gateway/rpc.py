"""The V2 gRPC edge: calls of ``inference.GRPCInferenceService`` to calls of the handlers behind, and back. No decisions
here.

A call is admitted by its head (method, key, deadline, compression) before its message is read, so that nobody can make
the gateway read what it would refuse anyway. What a message holds is for :mod:`workers.v2`.
"""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import DecodeError, Message
from tritonclient.grpc import service_pb2 as pb

from workers import log
from workers.net.compression import ENCODINGS
from workers.net.grpc import Admitted, Call, Endpoint, StatusError, parse_timeout
from workers.net.http2 import HeaderList
from workers.protocol.frames import Buffer, TensorHeader
from workers.protocol.specs import ApplicationSpec
from workers.v2 import grpc
from workers.v2.grpc_memory import Memory
from workers.v2.grpc_template import Template, fits
from workers.v2.query import Query, Terms, V2Error

from .catalog import Catalog, parse_version
from .errors import GatewayError, Invalid, ModelFailed, NotFound, UnsupportedEncoding, UnsupportedMethod
from .front import Front
from .in_flight import Answer, InFlightQuery, Outcome
from .metadata import Metadata
from .metrics import GatewayMetrics
from .rpc_stream import Streaming, Submit, Waits

logger = log.get("gateway.grpc")

SERVICE = b"/inference.GRPCInferenceService/"
#: what the answer's way to the client takes off a call's deadline, which is the client's to have it by: seconds, and
#: the part by which clients round up what they tell of it (gRPC's own to three digits), but at most this share of what
#: is left
WAY_S, ROUNDED, WAY_SHARE = 0.002, 0.01, 0.05
#: kinds of answers that are remembered
TEMPLATES = 1024

_Rendered = tuple[Terms, tuple[TensorHeader, ...], Template | None]


class Rpc:
    """Admits calls and answers them."""

    def __init__(self, front: Front, metadata: Metadata, metrics: GatewayMetrics):
        self._front = front
        self._metadata = metadata
        self._metrics = metrics
        self._answer = self._answered
        #: of queries to the applications of the catalog that came last
        self._memory = Memory()
        self._remembers: Catalog | None = None
        self._templates: dict[tuple, _Rendered] = {}
        self._open: dict[bytes, Endpoint] = {
            b"ServerLive": _Plain(pb.ServerLiveRequest, self._live),
            b"ServerReady": _Plain(pb.ServerReadyRequest, self._ready),
        }
        self._streaming = Streaming(self._submit, self.rejected, front.cancel)
        self._keyed: dict[bytes, Endpoint] = {
            b"ServerMetadata": _Plain(pb.ServerMetadataRequest, self._server),
            b"ModelReady": _Plain(pb.ModelReadyRequest, self._model_ready),
            b"ModelMetadata": _Plain(pb.ModelMetadataRequest, self._model),
            b"ModelConfig": _Plain(pb.ModelConfigRequest, self._config),
            b"ModelStatistics": _Plain(pb.ModelStatisticsRequest, self._statistics),
            b"RepositoryIndex": _Plain(pb.RepositoryIndexRequest, self._index),
            b"ModelInfer": _Infer(self._submit, front.cancel),
            b"ModelStreamInfer": self._streaming,
        }

    # --- admission ---

    def admit(self, headers: HeaderList) -> Admitted:
        """What a call's head means: who answers it, or the error that does."""
        catalog = self._front.catalog
        fields = headers.fields
        try:
            endpoint, client = self._endpoint(fields)
            timeout = fields.get(b"grpc-timeout")
            encoding = fields.get(b"grpc-encoding", b"identity")
            if encoding not in ENCODINGS:
                known = "gzip, deflate and identity"
                raise UnsupportedEncoding(f"grpc-encoding: {_shown(encoding)!r} is not supported; {known} are")
            seconds = None if timeout is None else parse_timeout(timeout)
            return Admitted(catalog, endpoint, None, seconds, encoding, client)
        except StatusError as error:
            # It is kept, and what it was raised in is not to be.
            return Admitted(catalog, None, error.with_traceback(None))

    def current(self, admitted: Admitted) -> bool:
        """Whether a head means that still: a key that is taken back is so at once."""
        return admitted.config is self._front.catalog

    def _endpoint(self, fields: dict[bytes, bytes]) -> tuple[Endpoint, str]:
        """The endpoint, and the hash of the key that it needs; empty where it needs none. Raises GatewayError."""
        path = fields[b":path"]
        if fields[b":method"] != b"POST" or not fields.get(b"content-type", b"").startswith(b"application/grpc"):
            raise Invalid("request: must be a POST of application/grpc")
        if not path.startswith(SERVICE):
            raise UnsupportedMethod(f"method {_shown(path)}: no such service; {_shown(SERVICE)} is served")
        name = path[len(SERVICE) :]
        endpoint = self._open.get(name)
        if endpoint is not None:
            return endpoint, ""
        client = self._front.catalog.authenticate(fields.get(b"authorization"))
        endpoint = self._keyed.get(name)
        if endpoint is None:
            known = b", ".join([*self._open, *self._keyed]).decode()
            raise UnsupportedMethod(f"method {_shown(name)}: not supported; supported are {known}")
        return endpoint, client

    def rejected(self, error: StatusError) -> None:
        """Count a call that ends in an error without having been a query."""
        self._metrics.invalid(error.code.name)

    # --- infer ---

    def _submit(self, data: Buffer, left_s: float | None, read_at: float, waits: Waits, client: str) -> InFlightQuery:
        """Hand a serialised query on; ``waits`` gets its serialised answer or error, perhaps before this returns.

        Raises GatewayError where it is none that the data plane could take.
        """
        front = self._front
        if self._remembers is not front.catalog:
            self._remembers = front.catalog
            self._memory = Memory()
        found = self._memory.find(data)
        if found is None:
            found = self._read(data)
        query, (spec, variant) = found
        if left_s is not None:
            left_s -= min(WAY_S + ROUNDED * left_s, WAY_SHARE * left_s)
            if query.latency_s is None or left_s < query.latency_s:
                query.latency_s = left_s
        return front.submit(spec, query, variant, read_at, self._answer, waits, client)

    def _read(self, data: Buffer) -> tuple[Query, tuple[ApplicationSpec, str | None]]:
        """The query, and which application and variant it is for. Raises GatewayError."""
        front = self._front
        try:
            message, contents = grpc.read(data)
            spec = front.catalog.application(message.model_name)
            variant = parse_version(front.catalog, spec, message.model_version or None)
            query = grpc.query(message, contents, spec.signature, front.accounts.limits.query_rows)
        except V2Error as error:
            raise Invalid(str(error)) from None
        self._memory.remember(data, query, (spec, variant))
        return query, (spec, variant)

    def _answered(self, flight: InFlightQuery, outcome: Outcome) -> None:
        """Give an outcome to whoever waits; raises where it could not be rendered, and that was told."""
        waits: Waits = flight.context
        if isinstance(outcome, GatewayError):
            waits.settle(outcome)
            return
        query = flight.query
        try:
            rendered = outcome.run.rendered
            if rendered is None or rendered[0] is not query.terms or rendered[1] is not outcome.headers:
                rendered = outcome.run.rendered = self._rendered(flight, outcome)
            template = rendered[2]
            if template is not None:
                response = template.fill(query.id, round(outcome.queue_s * 1e3, 3), outcome.parts)
            else:
                version, parameters = outcome.run.variant, outcome.parameters()
                response = grpc.render(query, flight.spec.name, version, parameters, outcome.headers, outcome.parts)
        except V2Error as error:
            failed = ModelFailed(str(error))
            waits.settle(failed)
            raise failed from None
        except Exception:
            waits.settle(ModelFailed("internal error: the answer could not be rendered"))
            raise
        waits.settle(response)

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
                template = Template(terms, flight.spec.name, run.variant, answer.parameters(), "queue_ms", headers)
            known = self._templates[key] = terms, headers, template
        return known

    def stop(self) -> None:
        """The gateway stops: streams take no more queries."""
        self._streaming.stop()

    # --- the rest ---

    def _live(self, _: pb.ServerLiveRequest) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=True)

    def _ready(self, _: pb.ServerReadyRequest) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=not self._metadata.not_ready())

    def _model_ready(self, request: pb.ModelReadyRequest) -> pb.ModelReadyResponse:
        try:
            why = self._metadata.model_not_ready(request.name, request.version or None)
        except NotFound:
            # As Triton answers: what does not exist is not ready.
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=not why)

    def _server(self, _: pb.ServerMetadataRequest) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(**self._metadata.server())

    def _model(self, request: pb.ModelMetadataRequest) -> pb.ModelMetadataResponse:
        return pb.ModelMetadataResponse(**self._metadata.model(request.name, request.version or None))

    def _config(self, request: pb.ModelConfigRequest) -> pb.ModelConfigResponse:
        return pb.ModelConfigResponse(config=self._metadata.config(request.name, request.version or None))

    def _statistics(self, request: pb.ModelStatisticsRequest) -> pb.ModelStatisticsResponse:
        found = self._metadata.statistics(request.name or None, request.version or None)
        return pb.ModelStatisticsResponse(**found)

    def _index(self, request: pb.RepositoryIndexRequest) -> pb.RepositoryIndexResponse:
        return pb.RepositoryIndexResponse(models=self._metadata.index(request.ready))


class _Quiet:
    """An endpoint that takes one message and minds nothing else."""

    streams = False

    def opened(self, call: Call) -> None:
        """See :class:`Endpoint`."""

    def ended(self, call: Call) -> None:
        """See :class:`Endpoint`."""

    def gone(self, call: Call) -> None:
        """See :class:`Endpoint`."""

    def drained(self, call: Call) -> None:
        """See :class:`Endpoint`."""


class _Plain(_Quiet):
    """Answers a message at once."""

    def __init__(self, kind: type[Message], answer: Callable[[Message], Message]):
        self._kind = kind
        self._answer = answer

    def message(self, call: Call, data: Buffer) -> None:
        """See :class:`Endpoint`."""
        try:
            request = self._kind.FromString(data)
        except DecodeError:
            raise Invalid(f"message: is not a valid {self._kind.DESCRIPTOR.full_name}") from None
        call.answer(self._answer(request).SerializeToString())


class _Infer(_Quiet):
    """Answers a query."""

    def __init__(self, submit: Submit, cancel: Callable[[InFlightQuery], None]):
        self._submit = submit
        self._cancel = cancel

    def message(self, call: Call, data: Buffer) -> None:
        """See :class:`Endpoint`."""
        read_at = call.connection.touched
        flight = self._submit(data, call.left_s(read_at), read_at, call, call.client)
        if not call.done:
            # Undone with the answer: what goes round in a circle stays until the collector comes by, body and all.
            call.waiter = flight

    def gone(self, call: Call) -> None:
        """See :class:`Endpoint`."""
        flight, call.waiter = call.waiter, None
        if flight is not None:
            self._cancel(flight)


def _shown(text: bytes) -> str:
    return text[:80].decode("latin-1")
