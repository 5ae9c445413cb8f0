"""A bare echo server, the yardstick of the machine: ``python -m benchmarks.query.bare PORT ANSWER_BYTES``.

uvloop and httptools and nothing else: no key, no check, no routing, no model. What a query
takes here is what HTTP alone takes on this machine at this moment, which tells a slow machine from a slow server.
"""

from __future__ import annotations

import asyncio
import sys

import httptools
import uvloop


class Echo(asyncio.Protocol):
    """Answers each request with so many bytes of its body's end."""

    def __init__(self, size: int):
        self._size = size
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._body: list[bytes] = []

    def connection_made(self, transport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        body = b"".join(self._body)[-self._size :]
        self._body.clear()
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


async def serve(port: int, size: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Echo(size), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
