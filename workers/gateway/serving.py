"""A gateway process from start to end: a front with its core, or one of the two."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from workers import __version__, log, machine
from workers.addresses import Address
from workers.link import MemberLink, Membership
from workers.protocol.control import GatewayConfig, JoinGateway, ToMember
from workers.settings import Settings
from workers.trust.authority import CertificateError
from workers.trust.control_plane import control_context, follow
from workers.trust.member import MemberIdentity
from workers.trust.server import ServerIdentity

from .gateway import Gateway
from .options import CannotListen, GatewayOptions

#: seconds for queries in flight to end on shutdown
GRACE_S = 3.0

logger = log.get("gateway")


async def serve(settings: Settings, number: int = 1) -> int:
    member = number == 1

    def on_message(message: ToMember) -> None:
        if isinstance(message, GatewayConfig):
            gateway.configure(message)

    try:
        http_tls = ServerIdentity(settings, "http/1.1") if settings.http.tls else None
        grpc_tls = ServerIdentity(settings, "h2") if settings.grpc.tls else None
    except (CertificateError, OSError) as error:
        logger.error("certificate_unusable", reason=str(error))
        return 1
    contexts = [identity.context if identity is not None else None for identity in (http_tls, grpc_tls)]
    options = GatewayOptions(settings, number, *contexts)
    if member:
        # For connections with members on other boxes; its ``on_replaced`` says when its certificate is another one.
        identity = MemberIdentity(options.identity, "gateway", options.name)
        link = _link(settings, options.name, identity, on_message)
        gateway = Gateway(options, link.send, control_state=lambda: link.state)
    else:
        gateway = Gateway(options, control_state=lambda: "by the core")
    stop = asyncio.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(one, stop.set)
    linking: list[asyncio.Task] = []
    watching: list[asyncio.Task] = []

    def join() -> None:
        if member and not linking:
            linking.append(asyncio.create_task(link.run(), name="member-link"))
            watching.append(asyncio.create_task(_certify(identity, gateway)))

    if not await _started(gateway.start(join), stop, settings):
        return 1
    _freeze()
    # Linked once it listens: a second start must not take over the link of the first. One that has to be linked before
    # it does (Gateway.start) listens for other gateways by then.
    join()
    watching += [asyncio.create_task(identity.watch()) for identity in (http_tls, grpc_tls) if identity is not None]
    if member:
        watching.append(asyncio.create_task(follow(settings)))
    await stop.wait()
    for task in watching:
        task.cancel()
    await gateway.stop(GRACE_S)
    for task in linking:
        task.cancel()
    await asyncio.gather(*linking, return_exceptions=True)
    return 0


async def _started(starting: Coroutine[Any, Any, None], stop: asyncio.Event, settings: Settings) -> bool:
    """Start, unless ``stop`` comes before; False: an address or folder is unusable."""
    start, stopping = asyncio.create_task(starting), asyncio.create_task(stop.wait())
    await asyncio.wait((start, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not start.done():
        start.cancel()
    try:
        await start
    except asyncio.CancelledError:
        logger.info("start_given_up")
    except CannotListen as error:
        logger.error("cannot_listen", setting=error.setting, address=error.address, reason=error.reason)
        return False
    except OSError as error:
        logger.error("cannot_listen", setting="NEREUS_HOME", address=str(settings.socket_folder), reason=str(error))
        return False
    return True


def _freeze() -> None:
    """Keep start-up objects out of the garbage collector."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 20, 50)


def _link(
    settings: Settings, name: str, identity: MemberIdentity, on_message: Callable[[ToMember], None]
) -> MemberLink:
    status = settings.link_status("gateway")
    return MemberLink(
        Membership("gateway", name, settings.control_url, settings.home, settings.join_token, status),
        join=lambda host: _join(settings, name, host),
        on_message=on_message,
        context=lambda: control_context(settings),
        identity=identity,
    )


def _join(settings: Settings, name: str, local: str) -> JoinGateway:
    host, core = settings.address or local, settings.core
    return JoinGateway(
        name=name,
        machine=machine.identity(),
        release=__version__,
        address=settings.http.url_at(host),
        core=str(Address(host, core.port)) if core is not None else "",
    )


async def _certify(identity: MemberIdentity, gateway: Gateway) -> None:
    """Show members of other boxes this gateway's certificate, and each later one."""
    replaced = asyncio.Event()
    identity.on_replaced(replaced.set)
    while True:
        replaced.clear()
        if identity.issued:
            try:
                await gateway.certified(identity.pem)
            except (CertificateError, OSError) as error:
                logger.error("certificate_unusable", reason=str(error))
        await replaced.wait()
