"""Errors that a query can end in, with their status in HTTP and gRPC.

``outcome`` is how the gateway counts them: ``dropped`` (refused to keep others in time), ``failed`` (should have been
answered), ``answered`` (as an answer), or None (the client's mistake: rejected before it counts as a query). Any error
of a request that was not submitted is counted by its status instead.
"""

from __future__ import annotations

from workers.net.grpc import Code, StatusError


class GatewayError(StatusError):
    """Base of all errors that a client sees.

    Attributes:
        status: of HTTP; ``code``: of gRPC.
        retry_after_s: seconds after which a retry may help; None: it will not, or the time is unknown.
    """

    status = 500
    code = Code.INTERNAL
    outcome: str | None = "failed"

    def __init__(self, message: str, retry_after_s: float | None = None, headers: tuple[tuple[bytes, bytes], ...] = ()):
        super().__init__(self.code, message, retry_after_s)
        self.headers = headers


class Invalid(GatewayError):
    """The query does not fit the application's signature or the protocol. Permanent."""

    status, code, outcome = 400, Code.INVALID_ARGUMENT, None


class Unauthenticated(GatewayError):
    """No API key, or an unknown one. Permanent."""

    status, code, outcome = 401, Code.UNAUTHENTICATED, None

    def __init__(self, message: str):
        super().__init__(message, headers=((b"www-authenticate", b'Bearer realm="nereus"'),))


class Forbidden(GatewayError):
    """The API key does not reach the application. Permanent, unless an operator acts."""

    status, code, outcome = 403, Code.PERMISSION_DENIED, None


class RateLimited(GatewayError):
    """The API key sends more queries than its rate; no demand. Retryable."""

    status, code, outcome = 429, Code.RESOURCE_EXHAUSTED, None


class NotFound(GatewayError):
    """No such path, application or variant. Permanent, until an operator registers it."""

    status, code, outcome = 404, Code.NOT_FOUND, None


class NoSuchVariant(NotFound):
    """The plan has no variant of that name; the next one may, if it is registered."""


class MethodNotAllowed(GatewayError):
    status, code, outcome = 405, Code.UNIMPLEMENTED, None

    def __init__(self, method: str, allowed: tuple[str, ...]):
        names = ", ".join(allowed)
        super().__init__(f"method {method}: not allowed here; allowed: {names}", headers=((b"allow", names.encode()),))


class UnsupportedMethod(GatewayError):
    status, code, outcome = 501, Code.UNIMPLEMENTED, None


class BodyTooLarge(GatewayError):
    status, code, outcome = 413, Code.RESOURCE_EXHAUSTED, None


class UnsupportedEncoding(GatewayError):
    status, code, outcome = 415, Code.UNIMPLEMENTED, None


class Overloaded(GatewayError):
    """Queues are full, or the deadline cannot be met. Retryable."""

    status, code, outcome = 503, Code.RESOURCE_EXHAUSTED, "dropped"

    def __init__(self, message: str):
        super().__init__(message, 1.0)


class OverShare(GatewayError):
    """The API key has had its share of an application that refuses. Retryable."""

    status, code, outcome = 429, Code.RESOURCE_EXHAUSTED, "dropped"


class Unavailable(GatewayError):
    """No device is warm, or the query's device was lost. Retryable."""

    status, code, outcome = 503, Code.UNAVAILABLE, "failed"
    STOPPING = "the gateway is stopping; try another or try again"

    def __init__(self, message: str, retry_after_s: float = 1.0):
        super().__init__(message, retry_after_s)


class HandedBack(Unavailable):
    """The core stops; the next one decides, and clients see this without one."""

    def __init__(self) -> None:
        super().__init__(self.STOPPING)


class TimedOut(GatewayError):
    status, code, outcome = 504, Code.DEADLINE_EXCEEDED, "dropped"


class ModelFailed(GatewayError):
    """The model failed, or its outputs cannot be sent. Permanent."""

    status, code, outcome = 500, Code.INTERNAL, "failed"


class Unrenderable(GatewayError):
    """An output cannot be sent in the form that was asked for. Permanent."""

    status, code, outcome = 422, Code.INVALID_ARGUMENT, "answered"


def of_name(name: str, message: str, retry_after_s: float | None) -> GatewayError:
    known = {kind.__name__: kind for kind in GatewayError.__subclasses__()}
    error = Exception.__new__(known.get(name, ModelFailed))
    GatewayError.__init__(error, message, retry_after_s)
    return error
