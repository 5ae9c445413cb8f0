"""A control plane, a gateway and a node daemon in one event loop, joined by real websockets over a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from asgiref.sync import sync_to_async

from registry.models import JoinToken, hash_secret
from tests.gateway.conftest import gateway_options
from tests.node.conftest import QUICK_RESTART, STAND_IN
from tests.running import free_ports
from tools.waiting import eventually_async
from workers.gateway.gateway import Gateway
from workers.link import LinkTiming, MemberLink, Membership
from workers.node import redivision
from workers.node.daemon import NodeDaemon
from workers.protocol import control
from workers.settings import Settings
from workers.trust.member import MemberIdentity, identity_file

#: a link that is lost on a busy machine would bring the configuration with the next join
TIMING = LinkTiming(first=0.05, refused_first=0.1, refused_longest=0.2, ping_every=60.0, ping_answer=60.0)


async def until(what: Callable[[], Any], why: str, seconds: float = 300.0) -> Any:
    """The first true answer of ``what``, which may be a coroutine function."""
    return await eventually_async(what, seconds, why=why)


@asynccontextmanager
async def served():
    """The appliance's ASGI application on a port; yields the port."""
    from appliance.asgi import application

    config = uvicorn.Config(application, host="127.0.0.1", port=0, lifespan="off", log_config=None)
    config.timeout_graceful_shutdown = 1
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None
    task = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started, "the control plane's start")
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


async def join_token(auto_approve: bool = True) -> None:
    await sync_to_async(JoinToken.objects.create)(
        name="rack", token_hash=hash_secret("join-me"), auto_approve=auto_approve
    )


@asynccontextmanager
async def background(running: Coroutine):
    task = asyncio.create_task(running)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class LinkedGateway:
    """A gateway with its link. ``received``: what it took over; ``stuck``: it refuses to take over anything."""

    def __init__(self, home: Path, port: int):
        options = gateway_options(home)
        http = options.settings.http
        self.received: list[control.GatewayConfig] = []
        self.stuck = False
        self.identity = MemberIdentity(identity_file(home, "gateway", "front"), "gateway", "front")
        self.link = MemberLink(
            Membership("gateway", "front", f"http://127.0.0.1:{port}", home, "join-me"),
            join=lambda _: control.JoinGateway(name="front", address=http.url),
            on_message=self._receive,
            timing=TIMING,
            identity=self.identity,
        )
        self.gateway = Gateway(options, send=self.link.send, control_state=lambda: self.link.state)

    def _receive(self, message: control.ToMember) -> None:
        if isinstance(message, control.GatewayConfig) and not self.stuck:
            self.received.append(message)
            self.gateway.configure(message)

    @property
    def held(self) -> control.GatewayConfig | None:
        return self.received[-1] if self.received else None

    @asynccontextmanager
    async def running(self):
        await self.gateway.start()
        async with background(self.link.run()):
            yield self
            await self.gateway.stop(0.1)


@asynccontextmanager
async def cluster(home: Path, executor: Sequence[str] = STAND_IN):
    """A gateway ``front`` and a node ``box``, with executors of that command, that hold a configuration."""
    await join_token()
    async with served() as port:
        (node_http,) = free_ports(1)
        settings = Settings.from_environ(
            {
                "NEREUS_HOME": str(home),
                "NEREUS_CONTROL_URL": f"http://127.0.0.1:{port}",
                "NEREUS_JOIN_TOKEN": "join-me",
                "NEREUS_NODE_NAME": "box",
                "NEREUS_NODE_HTTP": f"127.0.0.1:{node_http}",
                "NEREUS_CPU_DEVICES": "1x1",
                "NEREUS_GPU": "0",
            }
        )
        settings.make_folders()
        node = NodeDaemon(
            settings, redivision.restore(settings), command=executor, restart_timing=QUICK_RESTART, link_timing=TIMING
        )
        async with background(node.run()), LinkedGateway(home, port).running() as gateway:
            await until(lambda: gateway.held and node.config, "the members' first configurations")
            yield gateway, node
