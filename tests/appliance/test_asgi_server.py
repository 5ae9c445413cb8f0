"""The console's web server, with connections that stop in the middle and websockets that last."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest
import uvicorn
import websockets
from django.core import checks
from django.core.management.base import SystemCheckError

from appliance.local import asgi_server, web
from appliance.local.web import ConsoleWorker
from workers.link import LinkTiming


async def echo(scope, receive, send) -> None:
    """Repeat texts over a websocket, and answer a request once its body has ended."""
    if scope["type"] == "http":
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


@pytest.fixture
def port(monkeypatch):
    monkeypatch.setattr(asgi_server, "BODY_S", 0.1)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(echo, http=asgi_server.LimitedProtocol, lifespan="off", log_level="critical")
    server = asgi_server.Server(config, None)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join()


def test_a_websocket_outlasts_the_time_for_bodies(port):
    async def talk() -> str:
        async with websockets.connect(f"ws://127.0.0.1:{port}/", open_timeout=60) as link:
            await asyncio.sleep(0.5)
            await link.send("still here")
            return await asyncio.wait_for(link.recv(), 60)

    assert asyncio.run(talk()) == "still here"


def test_a_body_that_stops_in_the_middle_ends_its_connection(port):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
        try:
            assert client.recv(100) == b""
        except ConnectionResetError:
            pass


def test_idle_connections_make_room_for_requests_while_open_requests_stay(port, monkeypatch):
    monkeypatch.setattr(asgi_server, "MAX_CONNECTIONS", 4)
    monkeypatch.setattr(asgi_server, "BODY_S", 600.0)
    half = socket.create_connection(("127.0.0.1", port), timeout=60)
    half.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert half.recv(100).startswith(b"HTTP/1.1 100")
    idle = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(8)]
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 204")
    with half:
        half.sendall(b"12")
        assert half.recv(100).startswith(b"HTTP/1.1 204"), "a request that is under way is not the price"
    try:
        assert idle[0].recv(1) == b""
    except ConnectionResetError:
        pass
    for client in idle:
        client.close()


def test_the_console_is_more_patient_with_links_than_members_are():
    # It reads a link on when the messages before are handled, and pongs come behind them; members read at once.
    timing = LinkTiming()
    assert ConsoleWorker.CONFIG_KWARGS["ws_ping_timeout"] > timing.ping_every + timing.ping_answer


def test_a_check_that_fails_keeps_the_worker_from_starting(monkeypatch):
    web.post_worker_init(None)
    registered = {*checks.registry.registry.registered_checks, lambda **_: [checks.Error("nothing works")]}
    monkeypatch.setattr(checks.registry.registry, "registered_checks", registered)
    with pytest.raises(SystemCheckError, match="nothing works"):
        web.post_worker_init(None)
