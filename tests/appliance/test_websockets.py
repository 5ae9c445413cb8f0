"""Bad input on the members' websockets gets a close code and a reason, and the control plane goes on."""

from __future__ import annotations

import asyncio
import json

import pytest
import websockets
from websockets.exceptions import ConnectionClosed, InvalidStatus

from workers.protocol import control
from workers.protocol.specs import DeviceInfo

pytestmark = pytest.mark.wide

NODE = {"v": 1, "type": "join_node", "name": "visitor", "devices": []}


async def closed_with(appliance, path: str, token: str | None, *messages: str | bytes) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    url = appliance.console.replace("http", "ws") + path
    async with websockets.connect(url, additional_headers=headers) as socket:
        try:
            for message in messages:
                await socket.send(message)
            async with asyncio.timeout(60):
                while True:
                    await socket.recv()
        except ConnectionClosed as end:
            return end.rcvd.code, end.rcvd.reason


BAD = {
    "no token": ("/ws/node/", None, [], 4401, "Authorization"),
    "unknown token": ("/ws/node/", "nobody", [], 4401, "unknown"),
    "unknown token at a gateway": ("/ws/gateway/", "nobody", [], 4401, "unknown"),
    "not JSON": ("/ws/node/", "join", ["hello"], 4400, "not understood"),
    "bytes": ("/ws/node/", "join", [b"\x00\x01"], 4400, "JSON text"),
    "no version": ("/ws/node/", "join", [json.dumps({"type": "join_node"})], 4400, "v"),
    "another version": ("/ws/node/", "join", [json.dumps({**NODE, "v": 99})], 4426, "version 99"),
    "unknown type": ("/ws/node/", "join", [json.dumps({**NODE, "type": "sing"})], 4400, "sing"),
    "missing field": ("/ws/node/", "join", [json.dumps({"v": 1, "type": "join_node", "name": "x"})], 4400, "devices"),
    "wrong field type": ("/ws/node/", "join", [json.dumps({**NODE, "name": 7})], 4400, "$.name"),
    "name too long": ("/ws/node/", "join", [json.dumps({**NODE, "name": "n" * 80})], 4401, "1 to 63"),
    "name with spaces": ("/ws/node/", "join", [json.dumps({**NODE, "name": "a b"})], 4401, "letters, digits"),
    "stats before joining": (
        "/ws/node/",
        "join",
        [json.dumps({"v": 1, "type": "node_stats", "devices": []})],
        4400,
        "first message must join",
    ),
    "joining twice": ("/ws/node/", "join", [json.dumps(NODE)] * 2, 4400, "joined already"),
    "a gateway's message from a node": (
        "/ws/node/",
        "join",
        [json.dumps({"v": 1, "type": "join_gateway", "name": "x", "address": "y"})],
        4400,
        "join_gateway",
    ),
    "a name in use": ("/ws/node/", "join", [json.dumps({**NODE, "name": "box"})], 4401, "connected already"),
}


@pytest.mark.parametrize("kind", BAD)
async def test_bad_input_is_turned_away_with_a_reason(appliance, kind):
    path, token, messages, code, says = BAD[kind]
    if token == "join":
        token = appliance.credentials["join_token"]
    got, reason = await closed_with(appliance, path, token, *messages)
    assert got == code
    assert says in reason


async def test_an_unknown_path_is_refused(appliance):
    try:
        code, _ = await closed_with(appliance, "/ws/nothing/", None)
    except InvalidStatus as refused:
        code = refused.response.status_code
    assert code in (4404, 403, 404)


async def test_a_browser_without_a_session_sees_nothing(appliance):
    try:
        code, _ = await closed_with(appliance, "/ws/console/live/", None)
    except InvalidStatus as refused:
        code = refused.response.status_code
    assert code in (4401, 403)


async def test_a_node_that_needs_approval_waits_and_is_then_admitted(appliance):
    with appliance.rest() as client:
        token = client.post("/join-tokens/", json={"name": "careful", "auto_approve": False}).json()["token"]
        url = appliance.console.replace("http", "ws") + "/ws/node/"
        info = DeviceInfo("newbox/cpu0", "cpu", "cpu-other-1c", "a core", (0,), None, 2**30, "unix:/nowhere")
        async with websockets.connect(url, additional_headers={"Authorization": f"Bearer {token}"}) as socket:
            await socket.send(control.encode(control.JoinNode(name="newbox", devices=(info,))))
            assert isinstance(control.decode_to_node(await socket.recv()), control.Pending)
            assert client.post("/nodes/newbox/approve/").status_code == 200
            joined = control.decode_to_node(await asyncio.wait_for(socket.recv(), 60))
            assert isinstance(joined, control.Joined) and joined.credential
            config = control.decode_to_node(await asyncio.wait_for(socket.recv(), 60))
            assert isinstance(config, control.NodeConfig)
        # With the credential it comes back as itself, and only as itself.
        code, reason = await closed_with(
            appliance, "/ws/node/", joined.credential, json.dumps({**NODE, "name": "somebody-else"})
        )
        assert code == 4401 and "newbox" in reason
        assert client.post("/nodes/newbox/revoke/").status_code == 200
        code, _ = await closed_with(appliance, "/ws/node/", joined.credential)
        assert code == 4401
        assert client.delete("/nodes/newbox/").status_code == 204
