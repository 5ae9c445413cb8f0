"""HTTP/1.1 for the gateway's edge: httptools parses, one protocol object a connection, no task a request.

A handler is called once a request is fully read and answers through :meth:`Exchange.respond`, at once or later from
any callback. One request of a connection is handled at a time; pipelined ones wait their turn. Why this and not an
ASGI server: ``docs/decisions/0002-gateway-http-server.md``.

Clients say the same in the heads of all their requests. A head that was parsed and admitted once is remembered by its
bytes, and a request that begins with one goes around the parser: its body is as long as the head says.
"""

from .messages import Exchange, Head, Headers
from .server import HttpServer

__all__ = ["Exchange", "Head", "Headers", "HttpServer"]
