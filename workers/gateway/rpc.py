"""The V2 gRPC edge: calls of ``inference.GRPCInferenceService``.

A call is admitted by its headers (method, key, deadline, compression), so that no client can make the gateway read a
message that it would reject anyway. :mod:`workers.v2.grpc` parses and renders messages.
"""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import DecodeError, Message
from tritonclient.grpc import service_pb2 as pb

from workers import log
from workers.net.compression import ENCODINGS
from workers.net.grpc import Admitted, Call, Endpoint, StatusError, parse_timeout
from workers.net.http2 import HeaderList
from workers.protocol.frames import Buffer
from workers.protocol.specs import ApplicationSpec
from workers.v2 import grpc
from workers.v2.grpc_memory import GrpcMemory
from workers.v2.grpc_template import GrpcTemplate
from workers.v2.query import V2Error, V2Query

from .catalog import Catalog
from .errors import GatewayError, Invalid, NotFound, UnsupportedEncoding, UnsupportedMethod
from .front import Front
from .in_flight import Answer, InFlightQuery, Outcome
from .metadata import Metadata
from .metrics import GatewayMetrics
from .responses import Responses
from .rpc_stream import Receiver, Streaming, Submit

logger = log.get("gateway.rpc")

SERVICE = b"/inference.GRPCInferenceService/"
#: seconds taken off a call's deadline for the response's way to the client
RETURN_S = 0.002
#: share of the deadline by which clients round it up: gRPC's own send three digits
ROUNDED = 0.01
#: most of the deadline that both take together
MOST_OFF = 0.05


class Rpc:
    """Admits calls and answers them."""

    def __init__(self, front: Front, metadata: Metadata, metrics: GatewayMetrics):
        self._front = front
        self._metadata = metadata
        self._metrics = metrics
        self._answer = self._answered
        self._responses = Responses(GrpcTemplate, _render)
        #: queries to applications of one catalog
        self._memory = GrpcMemory()
        self._memory_of: Catalog | None = None
        self._streaming = Streaming(self._submit, self.rejected, front.withdraw)
        self._open: dict[bytes, Endpoint] = {
            b"ServerLive": _Plain(pb.ServerLiveRequest, lambda _: pb.ServerLiveResponse(live=True)),
            b"ServerReady": _Plain(
                pb.ServerReadyRequest, lambda _: pb.ServerReadyResponse(ready=not metadata.not_ready())
            ),
        }
        self._keyed: dict[bytes, Endpoint] = {
            b"ServerMetadata": _Plain(
                pb.ServerMetadataRequest, lambda _: pb.ServerMetadataResponse(**metadata.server())
            ),
            b"ModelReady": _Plain(pb.ModelReadyRequest, self._model_ready),
            b"ModelMetadata": _Plain(
                pb.ModelMetadataRequest,
                lambda asked: pb.ModelMetadataResponse(**metadata.model(asked.name, asked.version or None)),
            ),
            b"ModelConfig": _Plain(
                pb.ModelConfigRequest,
                lambda asked: pb.ModelConfigResponse(config=metadata.config(asked.name, asked.version or None)),
            ),
            b"ModelStatistics": _Plain(
                pb.ModelStatisticsRequest,
                lambda asked: pb.ModelStatisticsResponse(
                    **metadata.statistics(asked.name or None, asked.version or None)
                ),
            ),
            b"RepositoryIndex": _Plain(
                pb.RepositoryIndexRequest,
                lambda asked: pb.RepositoryIndexResponse(models=metadata.index(asked.ready)),
            ),
            b"ModelInfer": _Infer(self._submit, front.withdraw),
            b"ModelStreamInfer": self._streaming,
        }

    # --- admission ---

    def admit(self, headers: HeaderList) -> Admitted:
        """The endpoint of a call by its headers, or the error that answers it."""
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
            # The error is kept, the frames that raised it are not.
            return Admitted(catalog, None, error.with_traceback(None))

    def current(self, admitted: Admitted) -> bool:
        """Return True if the decision still holds: a key is revoked at once."""
        return admitted.config is self._front.catalog

    def _endpoint(self, fields: dict[bytes, bytes]) -> tuple[Endpoint, str]:
        """Return endpoint and hash of the API key (or ""). Raises GatewayError."""
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
        """Count a call that ended in an error before it was a query."""
        self._metrics.invalid(error.code.name)

    # --- infer ---

    def _submit(
        self, data: Buffer, left_s: float | None, read_at: float, receiver: Receiver, client: str
    ) -> InFlightQuery:
        """Submit a serialised query.

        ``receiver`` gets its serialised response or error, perhaps before this returns.

        Raises:
            GatewayError: it is not a valid query.
        """
        front = self._front
        if self._memory_of is not front.catalog:
            self._memory_of = front.catalog
            self._memory = GrpcMemory()
        try:
            fields = grpc.split(data)
            query, (spec, variant) = self._memory.find(fields) or self._read(fields)
        except V2Error as error:
            raise Invalid(str(error)) from None
        if left_s is not None:
            left_s -= min(RETURN_S + ROUNDED * left_s, MOST_OFF * left_s)
            if query.latency_s is None or left_s < query.latency_s:
                query.latency_s = left_s
        return front.submit(spec, query, variant, read_at, self._answer, receiver, client)

    def _read(self, fields: grpc.RequestFields) -> tuple[V2Query, tuple[ApplicationSpec, str | None]]:
        """Parse query, application and named variant. Raises GatewayError and V2Error."""
        front, message = self._front, fields.parse()
        spec, variant = front.catalog.resolve(message.model_name, message.model_version or None)
        query = grpc.query(message, fields.contents, spec.signature, front.accounts.limits.query_rows)
        self._memory.remember(fields, message, query, (spec, variant))
        return query, (spec, variant)

    def _answered(self, flight: InFlightQuery, outcome: Outcome) -> None:
        """Settle a query's call. Raises ModelFailed if the client got a rendering error."""
        receiver: Receiver = flight.context
        if isinstance(outcome, GatewayError):
            receiver.settle(outcome)
            return
        try:
            response = self._responses.response(flight, outcome)
        except GatewayError as error:
            receiver.settle(error)
            raise
        receiver.settle(response)

    def stop(self) -> None:
        """The gateway stops: streams take no more queries."""
        self._streaming.stop()

    def _model_ready(self, request: pb.ModelReadyRequest) -> pb.ModelReadyResponse:
        try:
            why = self._metadata.model_not_ready(request.name, request.version or None)
        except NotFound:
            # As Triton answers: a model that does not exist is not ready.
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=not why)


class _Plain(Endpoint):
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


class _Infer(Endpoint):
    """Answers a query."""

    def __init__(self, submit: Submit, withdraw: Callable[[InFlightQuery], None]):
        self._submit = submit
        self._withdraw = withdraw

    def message(self, call: Call, data: Buffer) -> None:
        """See :class:`Endpoint`."""
        read_at = call.connection.touched
        flight = self._submit(data, call.left_s(read_at), read_at, call, call.client)
        if not call.done:
            # Reset with the answer: a reference cycle would keep the body until the garbage collector runs.
            call.waiter = flight

    def gone(self, call: Call) -> None:
        """See :class:`Endpoint`."""
        flight, call.waiter = call.waiter, None
        if flight is not None:
            self._withdraw(flight)


def _render(flight: InFlightQuery, answer: Answer) -> bytes:
    parameters, version = answer.parameters(), answer.run.variant
    return grpc.render(flight.query, flight.spec.name, version, parameters, answer.headers, answer.parts)


def _shown(text: bytes) -> str:
    return text[:80].decode("latin-1")
