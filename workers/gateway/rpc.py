"""The V2 gRPC edge: calls of ``inference.GRPCInferenceService``, and health.

A call is admitted by its headers (method, key, deadline, compression), so that no client can make the gateway read a
message that it would reject anyway. :mod:`workers.v2.grpc` parses and renders messages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from google.protobuf.message import DecodeError, Message

from workers import log
from workers.net.compression import ENCODINGS
from workers.net.grpc import Admitted, Call, GrpcMethod, StatusError, parse_timeout
from workers.net.http2 import HeaderList
from workers.protocol.frames import Buffer
from workers.protocol.specs import ApplicationSpec
from workers.v2 import grpc
from workers.v2 import inference_pb2 as pb
from workers.v2.grpc_memory import GrpcMemory
from workers.v2.grpc_template import GrpcTemplate
from workers.v2.query import V2Error, V2Query

from .body_sizes import BodySizes
from .catalog import Catalog
from .errors import GatewayError, Invalid, ModelFailed, NotFound, UnsupportedEncoding, UnsupportedMethod
from .front import Front
from .in_flight import Answer, InFlightQuery, Outcome
from .metadata import Metadata
from .metrics import GatewayMetrics
from .parser_process import Parsed, ParseOrder
from .parsing import IN_LOOP_BYTES, Parse, Parsing
from .responses import Responses
from .rpc_health import Health
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

    def __init__(
        self, front: Front, metadata: Metadata, metrics: GatewayMetrics, sizes: BodySizes, parsing: Parsing
    ) -> None:
        self._front = front
        self._sizes = sizes
        self._parsing = parsing
        #: of any application of one catalog
        self._message_bytes = 0
        self._message_bytes_of: Catalog | None = None
        self._metadata = metadata
        self._metrics = metrics
        self._responses = Responses(GrpcTemplate, _render)
        #: queries to applications of one catalog
        self._memory = GrpcMemory()
        self._memory_of: Catalog | None = None
        self._streaming = Streaming(self._submit, self.rejected, self._withdraw)
        self._health = Health(front, metadata)
        self._open: dict[bytes, GrpcMethod] = {
            b"ServerLive": _Plain(pb.ServerLiveRequest, lambda *_: pb.ServerLiveResponse(live=True)),
            b"ServerReady": _Plain(
                pb.ServerReadyRequest, lambda *_: pb.ServerReadyResponse(ready=not metadata.not_ready())
            ),
        }
        self._keyed: dict[bytes, GrpcMethod] = {
            b"ServerMetadata": _Plain(
                pb.ServerMetadataRequest, lambda *_: pb.ServerMetadataResponse(**metadata.server()), self._check
            ),
            b"ModelReady": _Plain(pb.ModelReadyRequest, self._model_ready, self._check),
            b"ModelMetadata": _Plain(
                pb.ModelMetadataRequest,
                lambda asked, _: pb.ModelMetadataResponse(**metadata.model(asked.name, asked.version or None)),
                self._check,
            ),
            b"ModelConfig": _Plain(
                pb.ModelConfigRequest,
                lambda asked, _: pb.ModelConfigResponse(config=metadata.config(asked.name, asked.version or None)),
                self._check,
            ),
            b"ModelStatistics": _Plain(
                pb.ModelStatisticsRequest,
                lambda asked, client: pb.ModelStatisticsResponse(
                    **metadata.statistics(asked.name or None, asked.version or None, client)
                ),
                self._check,
            ),
            b"RepositoryIndex": _Plain(
                pb.RepositoryIndexRequest,
                lambda asked, client: pb.RepositoryIndexResponse(models=metadata.index(asked.ready, client)),
                self._check,
            ),
            b"ModelInfer": _Infer(self._submit, self._withdraw),
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
            return Admitted(catalog, endpoint, None, seconds, encoding, client, self._most(endpoint, catalog))
        except StatusError as error:
            # The error is kept, the frames that raised it are not.
            return Admitted(catalog, None, error.with_traceback(None))

    def current(self, admitted: Admitted) -> bool:
        """Return True if the decision still holds: a key is revoked at once."""
        return admitted.config is self._front.catalog

    def _most(self, endpoint: GrpcMethod, catalog: Catalog) -> int:
        """The most bytes of a message."""
        if not isinstance(endpoint, _Infer | Streaming):
            return IN_LOOP_BYTES
        if self._message_bytes_of is not catalog:
            self._message_bytes_of, self._message_bytes = catalog, self._sizes.message_bytes(catalog)
        return self._message_bytes

    def _endpoint(self, fields: dict[bytes, bytes]) -> tuple[GrpcMethod, str]:
        """Return endpoint and hash of the API key (or ""). Raises GatewayError."""
        path = fields[b":path"]
        if fields[b":method"] != b"POST" or not fields.get(b"content-type", b"").startswith(b"application/grpc"):
            raise Invalid("request: must be a POST of application/grpc")
        if not path.startswith(SERVICE):
            health = self._health.methods.get(path)
            if health is None:
                known = ", ".join(map(_shown, (SERVICE, *self._health.methods)))
                raise UnsupportedMethod(f"method {_shown(path)}: no such service; {known} are served")
            return health, self._health.client(fields.get(b"authorization"))
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
        self._metrics.invalid(error.code.name)

    # --- infer ---

    def _submit(
        self,
        data: Buffer,
        left_s: float | None,
        read_at: float,
        receiver: Receiver,
        client: str,
        encoding: bytes = b"identity",
    ) -> InFlightQuery | Parse:
        """Submit a serialised query.

        ``receiver`` gets its serialised response or error, perhaps before this returns.

        Args:
            encoding: other than identity, the query is too large to be decompressed in the event loop.

        Raises:
            GatewayError: it is not a valid query.
        """
        if encoding != b"identity":
            return self._parse_apart(data, left_s, read_at, receiver, client, encoding)
        front = self._front
        if self._memory_of is not front.catalog:
            self._memory_of = front.catalog
            self._memory = GrpcMemory()
        try:
            fields = grpc.split(data)
            found = self._memory.find(fields)
            if found is None and len(data) > IN_LOOP_BYTES and self._large(fields):
                return self._parse_apart(data, left_s, read_at, receiver, client, encoding)
            query, (spec, variant) = found or self._read(fields, client)
        except V2Error as error:
            raise Invalid(str(error)) from None
        if left_s is not None:
            _limit_time(query, left_s)
        return front.submit(spec, query, variant, read_at, self._answered, receiver, client)

    def _large(self, fields: grpc.RequestFields) -> bool:
        """Return whether a query takes the event loop too long."""
        size = len(fields.rest)
        if size <= IN_LOOP_BYTES:
            spec = self._front.catalog.applications.get(fields.parse().model_name)
            if spec is None or all(one.datatype != "BYTES" for one in spec.signature.inputs):
                return False
            size += sum(map(len, fields.contents))
        return self._parsing.takes(size)

    def _parse_apart(
        self, data: Buffer, left_s: float | None, read_at: float, receiver: Receiver, client: str, encoding: bytes
    ) -> Parse:
        """Have a query parsed by the parser process, and submit it afterwards."""
        rows = self._front.accounts.limits.query_rows
        order = ParseOrder(bytes(data), encoding, self._message_bytes, rows, None, None)
        parse = Parse(client, order, functools.partial(self._parsed, left_s, read_at, receiver))
        self._parsing.submit(parse)
        return parse

    def _parsed(
        self, left_s: float | None, read_at: float, receiver: Receiver, parse: Parse, outcome: Parsed | GatewayError
    ) -> None:
        try:
            if isinstance(outcome, GatewayError):
                raise outcome
            self._front.catalog.check_client(parse.client)
            spec, variant = self._front.resolve(outcome.application, outcome.version, parse.client)
            query = outcome.query()
            _limit_time(query, left_s)
            flight = self._front.submit(spec, query, variant, read_at, self._answered, receiver, parse.client)
            # A receiver that was settled by now holds the parse no longer.
            parse.flight = flight if flight.answer is not None else None
        except GatewayError as error:
            self.rejected(error)
            receiver.settle(error.with_traceback(None))
        except Exception:
            logger.exception("grpc_handler_failed")
            receiver.settle(ModelFailed("internal error"))

    def _withdraw(self, one: InFlightQuery | Parse) -> None:
        if isinstance(one, Parse):
            one.cancel()
            one = one.flight
        if one is not None:
            self._front.withdraw(one)

    def _read(self, fields: grpc.RequestFields, client: str) -> tuple[V2Query, tuple[ApplicationSpec, str | None]]:
        """Parse query, application and named variant. Raises GatewayError and V2Error."""
        front, message = self._front, fields.parse()
        spec, variant = front.resolve(message.model_name, message.model_version or None, client)
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

    def second(self) -> None:
        """Report changed health to those who watch it; called each second."""
        self._health.look()

    def stop(self) -> None:
        """The gateway stops: streams take no more queries, and watches end."""
        self._streaming.stop()
        self._health.stop()

    def _check(self, client: str, application: str) -> None:
        """Check that a key is still valid, and reaches an application."""
        self._front.catalog.check_client(client)
        if application:
            self._front.catalog.permit(client, application)

    def _model_ready(self, request: pb.ModelReadyRequest, client: str) -> pb.ModelReadyResponse:
        try:
            why = self._metadata.model_not_ready(request.name, request.version or None)
        except NotFound:
            # As Triton answers: a model that does not exist is not ready.
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=not why)


class _Plain(GrpcMethod):
    """Answers a message at once.

    Args:
        answer: from a request and the hash of its API key.
        check: of that key, and the application that the request names. Raises GatewayError.
    """

    def __init__(
        self,
        kind: type[Message],
        answer: Callable[[Message, str], Message],
        check: Callable[[str, str], None] | None = None,
    ):
        self._kind = kind
        self._answer = answer
        self._check = check

    def message(self, call: Call, data: Buffer) -> None:
        try:
            request = self._kind.FromString(data)
        except DecodeError:
            raise Invalid(f"message: is not a valid inference.{self._kind.DESCRIPTOR.name}") from None
        if self._check is not None:
            self._check(call.client, getattr(request, "name", ""))
        call.answer(self._answer(request, call.client).SerializeToString())


class _Infer(GrpcMethod):
    """Answers a query."""

    def __init__(self, submit: Submit, withdraw: Callable[[InFlightQuery | Parse], None]):
        self._submit = submit
        self._withdraw = withdraw

    def message(self, call: Call, data: Buffer) -> None:
        self.compressed(call, data, b"identity")

    def compressed(self, call: Call, data: Buffer, encoding: bytes) -> None:
        read_at = call.connection.touched
        flight = self._submit(data, call.left_s(read_at), read_at, call, call.client, encoding)
        if not call.done:
            # Reset with the answer: a reference cycle would keep the body until the garbage collector runs.
            call.waiter = flight

    def gone(self, call: Call) -> None:
        flight, call.waiter = call.waiter, None
        if flight is not None:
            self._withdraw(flight)


def _limit_time(query: V2Query, left_s: float | None) -> None:
    if left_s is None:
        return
    left_s -= min(RETURN_S + ROUNDED * left_s, MOST_OFF * left_s)
    if query.latency_s is None or left_s < query.latency_s:
        query.latency_s = left_s


def _render(flight: InFlightQuery, answer: Answer) -> bytes:
    parameters, version = answer.parameters(), answer.run.variant
    return grpc.render(flight.query, flight.spec.name, version, parameters, answer.headers, answer.parts)


def _shown(text: bytes) -> str:
    return text[:80].decode("latin-1")
