"""HTTP/2 for servers (RFC 9113): connections, their streams and flow control.

Flow control works in both directions. One protocol object a connection and one :class:`Http2Stream` a request; no task,
no timer and no future. Servers extend the stream. Left out, as gRPC needs none of it: push, priorities, and a dynamic
table for response headers. Entry point: :class:`Http2Connection`. Imports hpack and ``workers.net`` only. Reasons:
``docs/decisions/07-servers-and-the-query-path.md``.
"""

from .connection import Http2Connection
from .headers import HeaderList
from .stream import Http2Stream

__all__ = ["HeaderList", "Http2Connection", "Http2Stream"]
