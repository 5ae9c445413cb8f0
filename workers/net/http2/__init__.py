"""HTTP/2 for the gateway's gRPC edge (RFC 9113): connections, their streams, and flow control in both directions.

One protocol object a connection and one :class:`.stream.Stream` a request; no task, no timer and no future. What a
stream means is for whoever extends it. Only what gRPC needs of a server is here: no push, no priorities, and
responses' heads go into no table. Why this and not a library's server: ``docs/decisions/0017-grpc-over-own-http2.md``.
"""

from .connection import Connection
from .heads import Head
from .stream import Stream

__all__ = ["Connection", "Head", "Stream"]
