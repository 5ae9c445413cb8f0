"""A member's end of a link to the control plane's real end, over a real Redis, which sends what a test says."""

from __future__ import annotations

import json
from typing import Any

from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator

from registry.models import JoinToken, hash_secret
from scheduler.members.gateway import GatewayLink
from scheduler.members.node import NodeLink
from workers.protocol import control

KINDS = {"node": (NodeLink, control.decode_to_node), "gateway": (GatewayLink, control.decode_to_gateway)}
#: the control plane's own address in these connections, and another box's
HERE, ELSEWHERE = "10.0.0.1", "10.0.0.7"


async def token(name: str = "rack", **limits: Any) -> str:
    """A join token; it approves by itself unless said otherwise."""
    limits = {"auto_approve": True, **limits}
    await sync_to_async(JoinToken.objects.create)(name=name, token_hash=hash_secret(f"secret of {name}"), **limits)
    return f"secret of {name}"


class Closed(Exception):
    """The control plane closed the connection. ``args``: code and reason."""


class Connection:
    def __init__(self, kind: str, secret: str, address: str = ELSEWHERE):
        connection, self._decode = KINDS[kind]
        scope = {
            "type": "websocket",
            "path": f"/ws/{kind}/",
            "headers": [(b"authorization", f"Bearer {secret}".encode())],
            "subprotocols": [],
            "client": (address, 40_000),
            "server": (HERE, 8080),
        }
        self.kind = kind
        self._socket = ApplicationCommunicator(connection.serve, scope)

    async def open(self) -> None:
        await self._socket.send_input({"type": "websocket.connect"})
        assert (await self._socket.receive_output(60))["type"] == "websocket.accept"

    async def join(self, name: str, **fields: Any) -> control.ToMember:
        """Open, join; what is answered."""
        await self.open()
        if self.kind == "node":
            await self.say(control.JoinNode(name=name, **{"devices": (), **fields}))
        else:
            await self.say(control.JoinGateway(name=name, **{"address": "http://box:8000", **fields}))
        return await self.received()

    async def say(self, message: control.FromMember | dict | str) -> None:
        if isinstance(message, dict):
            message = json.dumps({"v": control.VERSION, **message})
        text = message if isinstance(message, str) else control.encode(message)
        await self._socket.send_input({"type": "websocket.receive", "text": text})

    async def received(self, kind: type[control.ToMember] | None = None) -> control.ToMember:
        """The next message, or the next of a kind; :class:`Closed` where the connection was closed before."""
        while True:
            event = await self._socket.receive_output(60)
            if event["type"] == "websocket.close":
                raise Closed(event["code"], event["reason"])
            message = self._decode(event["text"])
            if kind is None or isinstance(message, kind):
                return message

    async def closed(self) -> tuple[int, str]:
        try:
            while True:
                await self.received()
        except Closed as closed:
            await self.leave()
            return closed.args

    async def leave(self, code: int = 1006) -> None:
        await self._socket.send_input({"type": "websocket.disconnect", "code": code})
        await self._socket.wait(60)
