"""The V2 gRPC edge: calls of ``inference.GRPCInferenceService``, and health.

A call is admitted by its headers (method, key, deadline, compression), so that no client can make the gateway read a
message that it would reject anyway. :mod:`workers.v2.grpc` parses and renders messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.message import DecodeError

from workers.net.compression import ENCODINGS
from workers.net.grpc import Admitted, Call, GrpcMethod, StatusError, parse_timeout
from workers.net.http2 import HeaderList
from workers.protocol.frames import Buffer
from workers.v2 import grpc
from workers.v2 import inference_pb2 as pb
from workers.v2.grpc_template import GrpcTemplate
from workers.v2.query import V2Error, V2Query

from .body_sizes import BodySizes
from .edge import Edge, Target
from .errors import GatewayError, Invalid, NotFound, UnsupportedEncoding, UnsupportedMethod
from .front import Front
from .in_flight import Answer, InFlightQuery
from .metadata import Metadata
from .metrics import GatewayMetrics
from .parser_process import ParseOrder
from .parsing import IN_LOOP_BYTES, Parsing
from .rpc_health import Health
from .rpc_stream import Reply, Streaming

SERVICE = b"/inference.GRPCInferenceService/"


class Rpc(Edge):
    template = GrpcTemplate

    def __init__(
        self, front: Front, metadata: Metadata, metrics: GatewayMetrics, sizes: BodySizes, parsing: Parsing
    ) -> None:
        super().__init__(front, metadata, metrics, sizes, parsing)
        self._streaming = Streaming(self)
        self._health = Health(front, metadata)
        #: without a key
        self._open: dict[bytes, GrpcMethod] = {
            b"ServerLive": _Plain("ServerLive", lambda *_: {"live": True}),
            b"ServerReady": _Plain("ServerReady", lambda *_: {"ready": not metadata.not_ready()}),
        }
        answers = {
            "ServerMetadata": lambda *_: metadata.server(),
            "ModelReady": self._model_ready,
            "ModelMetadata": lambda asked, _: metadata.model(asked.name, asked.version or None),
            "ModelConfig": lambda asked, _: {"config": metadata.config(asked.name, asked.version or None)},
            "ModelStatistics": lambda asked, client: metadata.statistics(
                asked.name or None, asked.version or None, client
            ),
            "RepositoryIndex": lambda asked, client: {"models": metadata.index(asked.ready, client)},
        }
        self._keyed: dict[bytes, GrpcMethod] = {
            **{name.encode(): _Plain(name, answer, self._check) for name, answer in answers.items()},
            b"ModelInfer": _Infer(self),
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
            infers = isinstance(endpoint, _Infer | Streaming)
            most = self._sizes.message_bytes(catalog) if infers else IN_LOOP_BYTES
            return Admitted(catalog, endpoint, None, seconds, encoding, client, most)
        except StatusError as error:
            # The error is kept, the frames that raised it are not.
            return Admitted(catalog, None, error.with_traceback(None))

    def current(self, admitted: Admitted) -> bool:
        """Return True if the decision still holds: a key is revoked at once."""
        return admitted.config is self._front.catalog

    def _endpoint(self, fields: dict[bytes, bytes]) -> tuple[GrpcMethod, str]:
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

    # --- queries ---

    def parse(self, reply: Reply, data: Buffer, encoding: bytes, client: str) -> tuple[V2Query, Target] | ParseOrder:
        front = self._front
        if encoding == b"identity":
            fields = grpc.split(data)
            remembered = front.catalog.messages.find(fields)
            if remembered is not None:
                return remembered
            if len(data) <= IN_LOOP_BYTES or not self._large(fields):
                return self._read(fields, client)
        most = self._sizes.message_bytes(front.catalog)
        return ParseOrder(bytes(data), encoding, most, front.accounts.limits.query_rows, None, None)

    def _large(self, fields: grpc.RequestFields) -> bool:
        size = len(fields.rest)
        if size <= IN_LOOP_BYTES:
            spec = self._front.catalog.applications.get(fields.parse().model_name)
            if spec is None or all(tensor.datatype != "BYTES" for tensor in spec.signature.inputs):
                return False
            size += sum(map(len, fields.contents))
        return self._parsing.takes(size)

    def _read(self, fields: grpc.RequestFields, client: str) -> tuple[V2Query, Target]:
        front, message = self._front, fields.parse()
        target = spec, _ = front.resolve(message.model_name, message.model_version or None, client)
        query = grpc.query(message, fields.contents, spec.signature, front.accounts.limits.query_rows)
        front.catalog.messages.remember(fields, message, query, target)
        return query, target

    def render(self, flight: InFlightQuery, answer: Answer) -> bytes:
        # Every response has a template, unless the model left out an output.
        given = {header.name for header in answer.headers}
        missing = [name for name, _ in flight.query.terms.outputs if name not in given]
        raise V2Error(f"outputs.{', '.join(missing)}: the model did not give it")

    def respond(self, reply: Reply, response: Buffer) -> None:
        reply.settle(response)

    def refuse(self, reply: Reply, error: GatewayError) -> None:
        self.rejected(error)
        self.fail(reply, error)

    def fail(self, reply: Reply, error: GatewayError) -> None:
        # Without the frames that raised it there is no reference cycle.
        reply.settle(error.with_traceback(None))

    def second(self) -> None:
        """Report changed health to those who watch it; called each second."""
        self._health.look()

    def stop(self) -> None:
        self._streaming.stop()
        self._health.stop()

    def _check(self, client: str, application: str) -> None:
        self._front.catalog.check_client(client)
        if application:
            self._front.catalog.permit(client, application)

    def _model_ready(self, request: pb.ModelReadyRequest, client: str) -> dict[str, bool]:
        try:
            return {"ready": not self._metadata.model_not_ready(request.name, request.version or None)}
        except NotFound:
            # As Triton answers: a model that does not exist is not ready.
            return {"ready": False}


class _Plain(GrpcMethod):
    """Answers a message at once.

    Args:
        name: of the method, and so of its messages.
        answer: the response's fields, from a request and the hash of its API key.
        check: of that key, and the application that the request names. Raises GatewayError.
    """

    def __init__(
        self,
        name: str,
        answer: Callable[[Any, str], Mapping[str, Any]],
        check: Callable[[str, str], None] | None = None,
    ):
        self._request, self._response = getattr(pb, f"{name}Request"), getattr(pb, f"{name}Response")
        self._answer = answer
        self._check = check

    def message(self, call: Call, data: Buffer) -> None:
        try:
            request = self._request.FromString(data)
        except DecodeError:
            raise Invalid(f"message: is not a valid inference.{self._request.DESCRIPTOR.name}") from None
        if self._check is not None:
            self._check(call.client, getattr(request, "name", ""))
        call.settle(self._response(**self._answer(request, call.client)).SerializeToString())


class _Infer(GrpcMethod):
    takes_compressed = True

    def __init__(self, edge: Rpc):
        self._edge = edge

    def message(self, call: Call, data: Buffer, encoding: bytes = b"identity") -> None:
        read_at = call.connection.touched
        waiting = self._edge.infer(call, data, encoding, call.client, read_at, call.left_s(read_at))
        if not call.done:
            # Reset with the answer: a reference cycle would keep the body until the garbage collector runs.
            call.waiter = waiting

    def gone(self, call: Call) -> None:
        waiting, call.waiter = call.waiter, None
        self._edge.withdraw(waiting)


def _shown(text: bytes) -> str:
    return text[:80].decode("latin-1")
