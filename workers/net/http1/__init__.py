"""An HTTP/1.1 server (RFC 9110, RFC 9112).

It has one protocol object a connection, and no task or timer a request. :class:`~.parser.RequestParser` turns bytes
into requests without I/O and reports to a sink. The connection around it handles one request at a time; pipelined ones
wait in order. A handler answers through :meth:`Exchange.respond`, at once or later from any callback. Entry point:
:class:`HttpServer`. Imports httptools (llhttp), msgspec, numpy and ``workers.net`` only. Reasons:
``docs/decisions/07-servers-and-the-query-path.md``.
"""

from .messages import Exchange, Headers, HttpHandler, RequestHead, Response
from .parser import RequestParser
from .server import HttpServer

__all__ = ["Exchange", "Headers", "HttpHandler", "HttpServer", "RequestHead", "RequestParser", "Response"]
