"""The control plane's end of a member link, small and real."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from http import HTTPStatus

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from tests.running import free_ports
from workers.protocol import control


def free_port() -> int:
    return free_ports(1)[0]


class ControlPlane:
    """Admits every member that shows a token of ``tokens``.

    A first join by ``join-me`` is answered with a fresh credential.

    Attributes:
        blobs: body, or (status, body, claimed length), by digest.
        greeting: raw texts sent after admission.
    """

    def __init__(self):
        self.port = free_port()
        self.tokens = {"join-me"}
        self.admit = True
        self.greeting: list[str] = []
        self.blobs: dict[str, bytes | tuple[int, bytes, int]] = {}
        self.blob_requests: list[tuple[str, str | None]] = []
        self.shown: list[str] = []
        self.received: list[control.FromMember] = []
        self.connections: list[ServerConnection] = []
        self.close_next_with: int | None = None
        self._issued = 0
        self._changed = asyncio.Event()
        self._server = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await serve(
            self._member, "127.0.0.1", self.port, process_request=self._http, close_timeout=0.2, reuse_port=True
        )

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None
            self.connections.clear()

    def add_blob(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return digest

    async def say(self, message: control.ToMember | str) -> None:
        text = message if isinstance(message, str) else control.encode(message)
        await self.connections[-1].send(text)

    async def until(self, condition: Callable[[], object], seconds: float = 120.0):
        """Wait until ``condition`` holds; its value."""
        async with asyncio.timeout(seconds):
            while not (value := condition()):
                self._changed.clear()
                try:
                    await asyncio.wait_for(self._changed.wait(), 0.05)
                except TimeoutError:
                    pass
            return value

    async def receive(self, kind: type, where: Callable[[object], bool] = lambda _: True, seconds: float = 120.0):
        """The first message of this kind (for which ``where`` holds), waited for."""
        return await self.until(
            lambda: next((m for m in self.received if isinstance(m, kind) and where(m)), None), seconds
        )

    def _http(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.path.startswith("/ws/"):
            return None
        digest = request.path.removeprefix("/api/v1/blobs/").rstrip("/")
        self.blob_requests.append((digest, request.headers.get("Authorization")))
        blob = self.blobs.get(digest, (404, b"no such blob", 12))
        status, body, length = blob if isinstance(blob, tuple) else (200, blob, len(blob))
        headers = Headers({"Content-Length": str(length), "Connection": "close"})
        return Response(status, HTTPStatus(status).phrase, headers, body)

    async def _member(self, connection: ServerConnection) -> None:
        token = connection.request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.shown.append(token)
        self._changed.set()
        if token not in self.tokens:
            await connection.close(control.CLOSE_UNAUTHORIZED, "unknown token")
            return
        decode = {"/ws/node/": control.decode_from_node, "/ws/gateway/": control.decode_from_gateway}[
            connection.request.path
        ]
        try:
            self.received.append(decode(await connection.recv()))
            self.connections.append(connection)
            if self.close_next_with is not None:
                code, self.close_next_with = self.close_next_with, None
                await connection.close(code, "as the test wished")
                return
            if self.admit:
                await self._admit(connection, token)
            else:
                await connection.send(control.encode(control.Pending(reason="wait for approval")))
            async for text in connection:
                self.received.append(decode(text))
                self._changed.set()
        except ConnectionClosed:
            pass

    async def _admit(self, connection: ServerConnection, token: str) -> None:
        credential = None
        if token == "join-me":
            self._issued += 1
            credential = f"secret-{self._issued}"
            self.tokens.add(credential)
        await connection.send(control.encode(control.Joined(member=1, credential=credential)))
        for text in self.greeting:
            await connection.send(text)
        self._changed.set()
