"""The V2 gRPC edge: calls of ``inference.GRPCInferenceService`` to calls of the handlers behind, and back. No decisions
here.

Methods take and give bytes: what a message holds is for :mod:`~workers.protocol.v2_grpc`, and a message that is none is
a clear error instead of whatever the library says. A call is admitted by its method and key before its message is read,
so that nobody can make the gateway read what it would refuse anyway.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, Awaitable, Callable

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from tritonclient.grpc import service_pb2 as pb

from workers import log
from workers.protocol import v2, v2_grpc
from workers.protocol.frames import TensorHeader
from workers.protocol.specs import ApplicationSpec
from workers.protocol.v2_grpc_repeated import Memory
from workers.protocol.v2_grpc_response import Template, fits

from .catalog import Catalog
from .dataplane import DataPlane, parse_version
from .errors import GatewayError, Invalid, ModelFailed, NotFound
from .flights import Answer, Flight, Outcome
from .metadata import Metadata
from .metrics import GatewayMetrics
from .rpc_stream import Context, Rendered, Stream, settle

logger = log.get("gateway.grpc")

SERVICE = "/inference.GRPCInferenceService/"
#: what the answer's way to the client takes off a call's deadline, which is the client's to have it by: seconds, but at
#: most this share of what is left
WAY_S, WAY_SHARE = 0.002, 0.05
#: kinds of answers that are remembered
TEMPLATES = 1024

_Rendered = tuple[v2.Terms, tuple[TensorHeader, ...], Template | None]


class Rpc(grpc.GenericRpcHandler):
    """Finds who answers a call.

    The methods are not registered with the server one by one, as generated code does: it would wait for each of them
    separately, and pay for all of them at each call.
    """

    def __init__(self, dataplane: DataPlane, metadata: Metadata, metrics: GatewayMetrics):
        self._dataplane = dataplane
        self._metadata = metadata
        self._metrics = metrics
        self._streams: set[Stream] = set()
        self._answer = self._answered
        #: of queries to the applications of the catalog that came last
        self._memory = Memory()
        self._remembers: Catalog | None = None
        self._templates: dict[tuple, _Rendered] = {}
        self._open = {
            "ServerLive": self._unary(pb.ServerLiveRequest, self._live),
            "ServerReady": self._unary(pb.ServerReadyRequest, self._ready),
        }
        self._keyed = {
            "ServerMetadata": self._unary(pb.ServerMetadataRequest, self._server),
            "ModelReady": self._unary(pb.ModelReadyRequest, self._model_ready),
            "ModelMetadata": self._unary(pb.ModelMetadataRequest, self._model),
            "ModelConfig": self._unary(pb.ModelConfigRequest, self._config),
            "ModelStatistics": self._unary(pb.ModelStatisticsRequest, self._statistics),
            "RepositoryIndex": self._unary(pb.RepositoryIndexRequest, self._index),
            "ModelInfer": grpc.unary_unary_rpc_method_handler(self._infer),
            "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(self._stream),
        }

    # --- admission ---

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Who answers the call; None: no such method, which the server says."""
        method = handler_call_details.method
        if not method.startswith(SERVICE):
            return None
        name = method[len(SERVICE) :]
        handler = self._open.get(name)
        if handler is not None:
            return handler
        try:
            self._dataplane.catalog.authenticate(_authorization(handler_call_details.invocation_metadata))
        except GatewayError as error:
            return self._refusing(error.grpc, error.message)
        handler = self._keyed.get(name)
        if handler is not None:
            return handler
        known = ", ".join([*self._open, *self._keyed])
        return self._refusing("UNIMPLEMENTED", f"method {name[:80]}: not supported; supported are {known}")

    def _refusing(self, code: str, message: str) -> grpc.RpcMethodHandler:
        """Refuses the call without reading what it sends, which only a handler of streams can leave unread."""

        async def refuse(_: AsyncIterable[bytes], context: Context) -> None:
            self._metrics.invalid(code)
            await context.abort(grpc.StatusCode[code], message)

        return grpc.stream_unary_rpc_method_handler(refuse)

    def _unary(self, kind: type[Message], call: Callable[[Message], Message]) -> grpc.RpcMethodHandler:
        async def answer(data: bytes, context: Context) -> bytes:
            try:
                try:
                    request = kind.FromString(data)
                except DecodeError:
                    raise Invalid(f"message: is not a valid {kind.DESCRIPTOR.full_name}") from None
                return call(request).SerializeToString()
            except GatewayError as error:
                return await self._abort(context, error)
            except Exception as error:
                logger.error("grpc_handler_failed", exc_info=error)
                return await self._abort(context, ModelFailed("internal error"))

        return grpc.unary_unary_rpc_method_handler(answer)

    def _abort(self, context: Context, error: GatewayError) -> Awaitable[bytes]:
        """End the call with the error; raises what the server expects of an aborted call."""
        self._refused(error)
        trailing = ()
        if error.retry_after_s is not None:
            # https://github.com/grpc/proposal/blob/master/A6-client-retries.md#pushback
            trailing = (("grpc-retry-pushback-ms", str(round(error.retry_after_s * 1e3))),)
        return context.abort(grpc.StatusCode[error.grpc], error.message, trailing)

    def _refused(self, error: GatewayError) -> None:
        if error.outcome is None:
            self._metrics.invalid(error.grpc)

    # --- infer ---

    def _submit(self, data: bytes, left_s: float | None, answered: asyncio.Future[Rendered]) -> Flight:
        """Hand a serialised query on; ``answered`` gets its serialised answer or error, perhaps before this returns.

        Raises GatewayError where it is none that the data plane could take.
        """
        read_at = time.monotonic()
        dataplane = self._dataplane
        if self._remembers is not dataplane.catalog:
            self._remembers = dataplane.catalog
            self._memory = Memory()
        found = self._memory.find(data)
        if found is None:
            found = self._read(data)
        query, (spec, variant) = found
        if left_s is not None:
            left_s -= min(WAY_S, WAY_SHARE * left_s)
            if query.latency_s is None or left_s < query.latency_s:
                query.latency_s = left_s
        return dataplane.submit(spec, query, variant, read_at, self._answer, answered)

    def _read(self, data: bytes) -> tuple[v2.Query, tuple[ApplicationSpec, str | None]]:
        """The query, and which application and variant it is for. Raises GatewayError."""
        dataplane = self._dataplane
        try:
            message, contents = v2_grpc.read(data)
            spec = dataplane.catalog.application(message.model_name)
            variant = parse_version(dataplane.catalog, spec, message.model_version or None)
            query = v2_grpc.query(message, contents, spec.signature, dataplane.accounts.limits.query_rows)
        except v2.V2Error as error:
            raise Invalid(str(error)) from None
        self._memory.remember(data, query, (spec, variant))
        return query, (spec, variant)

    def _answered(self, flight: Flight, outcome: Outcome) -> None:
        """Give an outcome to the call that waits; raises where it could not be rendered, and the call was told."""
        answered: asyncio.Future[Rendered] = flight.context
        if isinstance(outcome, GatewayError):
            settle(answered, outcome)
            return
        query = flight.query
        try:
            rendered = outcome.run.rendered
            if rendered is None or rendered[0] is not query.terms or rendered[1] is not outcome.headers:
                rendered = outcome.run.rendered = self._rendered(flight, outcome)
            template = rendered[2]
            if template is not None:
                settle(answered, template.fill(query.id, round(outcome.queue_s * 1e3, 3), outcome.parts))
                return
            response = _render(query, flight.spec.name, outcome)
        except v2.V2Error as error:
            failed = ModelFailed(str(error))
            settle(answered, failed)
            raise failed from None
        except Exception:
            settle(answered, ModelFailed("internal error: the answer could not be rendered"))
            raise
        settle(answered, response)

    def _rendered(self, flight: Flight, answer: Answer) -> _Rendered:
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

    async def _infer(self, data: bytes, context: Context) -> bytes:
        answered = asyncio.get_running_loop().create_future()
        try:
            flight = self._submit(data, context.time_remaining(), answered)
        except GatewayError as error:
            return await self._abort(context, error)
        except Exception as error:
            logger.error("grpc_handler_failed", exc_info=error)
            return await self._abort(context, ModelFailed("internal error"))
        try:
            outcome = await answered
        except asyncio.CancelledError:
            self._dataplane.cancel(flight)
            raise
        if isinstance(outcome, GatewayError):
            return await self._abort(context, outcome)
        return outcome

    async def _stream(self, messages: AsyncIterable[bytes], context: Context) -> None:
        stream = Stream(self._submit, self._refused, self._dataplane.cancel)
        self._streams.add(stream)
        try:
            await stream.run(messages, context)
        finally:
            self._streams.discard(stream)

    def stop(self) -> None:
        """The gateway stops: streams take no more queries."""
        for stream in self._streams:
            stream.stop()

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


def _authorization(metadata: tuple[tuple[str, str | bytes], ...]) -> bytes | None:
    for name, value in metadata:
        if name == "authorization":
            return value if isinstance(value, bytes) else value.encode()
    return None


def _render(query: v2.Query, model: str, answer: Answer) -> bytes:
    return v2_grpc.render(query, model, answer.run.variant, answer.parameters(), answer.headers, answer.parts)
