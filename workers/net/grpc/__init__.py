"""gRPC for servers over HTTP/2.

Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md. A :class:`GrpcServer` listens, asks a
:class:`GrpcService` which :class:`GrpcMethod` answers a call by its headers, and hands that endpoint each message as
bytes; errors are :class:`StatusError`. No protobuf, no threads, no task a call. Entry point: :class:`GrpcServer`.
Imports numpy and ``workers.net`` only.
"""

from .call import Admitted, Call, GrpcMethod, GrpcService, parse_timeout
from .messages import MessageParser
from .server import GrpcServer
from .status import Code, StatusError

__all__ = [
    "Admitted",
    "Call",
    "Code",
    "GrpcMethod",
    "GrpcServer",
    "GrpcService",
    "MessageParser",
    "StatusError",
    "parse_timeout",
]
