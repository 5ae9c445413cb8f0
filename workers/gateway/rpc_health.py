"""``grpc.health.v1.Health``: readiness for probes and balancers.

Source: https://github.com/grpc/grpc/blob/master/doc/health-checking.md. A service is ``""`` or
``inference.GRPCInferenceService`` (as ``/v2/health/ready``; no key needed), or an application (as
``/v2/models/M/ready``, with a key that reaches it).
"""

from __future__ import annotations

from enum import IntEnum

from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from workers.net.grpc import Call, GrpcMethod, StatusError

from .errors import Invalid, NotFound, Unauthenticated, Unavailable
from .front import Front
from .metadata import Metadata

#: services that stand for the whole gateway
OVERALL = ("", "inference.GRPCInferenceService")
_PATH = b"/grpc.health.v1.Health/"


class Serving(IntEnum):
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


class Health:
    def __init__(self, front: Front, metadata: Metadata) -> None:
        self._front = front
        self._metadata = metadata
        #: calls of Watch with their service and the status that was sent last
        self._watching: dict[Call, tuple[str, Serving]] = {}
        self.methods: dict[bytes, GrpcMethod] = {_PATH + b"Check": _Check(self), _PATH + b"Watch": _Watch(self)}

    def client(self, authorization: bytes | None) -> str:
        """The hash of a call's API key; empty without one, which only some need."""
        try:
            return "" if authorization is None else self._front.catalog.authenticate(authorization)
        except (Unauthenticated, Unavailable):
            return ""

    def status(self, call: Call, service: str) -> Serving:
        """The status of a service.

        Raises:
            NotFound: there is no such service.
            GatewayError: the call's key is missing, unknown or does not reach the application.
        """
        if service in OVERALL:
            return Serving.NOT_SERVING if self._metadata.not_ready() else Serving.SERVING
        catalog = self._front.catalog
        catalog.permit(catalog.authenticate(call.headers.fields.get(b"authorization")), service)
        if service not in catalog.applications:
            raise NotFound(f"service {service[:80]!r}: no such application; {OVERALL[1]} and '' stand for all of them")
        return Serving.NOT_SERVING if self._metadata.model_not_ready(service, None) else Serving.SERVING

    def watch(self, call: Call, service: str) -> None:
        status = self._watched(call, service)
        self._watching[call] = service, status
        call.waiter = service
        call.send(_answer(status))

    def _watched(self, call: Call, service: str) -> Serving:
        try:
            return self.status(call, service)
        except NotFound:
            # The service may come yet.
            return Serving.SERVICE_UNKNOWN

    def look(self) -> None:
        """Send what has changed; called each second."""
        # Many may watch the same.
        known: dict[tuple[str, str], Serving] = {}
        for call, (service, sent) in list(self._watching.items()):
            key = service, call.client
            try:
                status = known.get(key) or known.setdefault(key, self._watched(call, service))
            except StatusError as error:
                self.forget(call)
                call.fail(error)
                continue
            if status is not sent and call.outbox is None:
                self._watching[call] = service, status
                call.send(_answer(status))

    def forget(self, call: Call) -> None:
        self._watching.pop(call, None)
        call.waiter = None

    def stop(self) -> None:
        for call in list(self._watching):
            self.forget(call)
            call.fail(Unavailable(Unavailable.STOPPING))


class _Check(GrpcMethod):
    def __init__(self, health: Health):
        self._health = health

    def message(self, call: Call, data: bytes) -> None:
        call.settle(_answer(self._health.status(call, _service(data))))


class _Watch(GrpcMethod):
    def __init__(self, health: Health):
        self._health = health

    def message(self, call: Call, data: bytes) -> None:
        self._health.watch(call, _service(data))

    def gone(self, call: Call) -> None:
        self._health.forget(call)


def _service(data: bytes) -> str:
    """The service of a HealthCheckRequest, whose only field is a StringValue's."""
    try:
        return StringValue.FromString(data).value
    except DecodeError:
        raise Invalid("message: is not a valid grpc.health.v1.HealthCheckRequest") from None


def _answer(status: Serving) -> bytes:
    """A HealthCheckResponse, whose only field is an Int32Value's."""
    return Int32Value(value=status).SerializeToString()
