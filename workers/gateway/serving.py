"""A gateway process from start to end: a front with its core, or one of the two."""

from __future__ import annotations

import asyncio
import gc
import signal

from workers import __version__, control_trust, disk, log, machine
from workers.certificates import CertificateError
from workers.link import MemberLink, Membership
from workers.metrics_access import MetricsAccess
from workers.protocol.control import GatewayConfig, JoinGateway, ToMember
from workers.settings import Settings
from workers.tls import ServerIdentity, control_context
from workers.transport.identity import MemberIdentity, identity_file

from .core_process import CoreProcess
from .gateway import FrontProcess
from .options import CannotListen, GatewayOptions, Siblings

#: seconds for queries in flight to end on shutdown
GRACE_S = 3.0

logger = log.get("gateway")


async def serve(settings: Settings, number: int = 1, core: bool = False) -> int:
    """Run until SIGTERM or SIGINT; the exit status.

    Args:
        number: of several fronts, which one, from 1.
        core: run the fronts' core instead.
    """
    link: MemberLink | None = None
    several = settings.gateways > 1
    member = core or not several

    def on_message(message: ToMember) -> None:
        if isinstance(message, GatewayConfig):
            gateway.configure(message)

    def send(message) -> None:
        if link is not None:
            link.send(message)

    try:
        http_tls = ServerIdentity(settings, "http/1.1") if settings.http.tls and not core else None
        grpc_tls = ServerIdentity(settings, "h2") if settings.grpc.tls and not core else None
    except (CertificateError, OSError) as error:
        logger.error("certificate_unusable", reason=str(error))
        return 1
    options = _options(settings, number, http_tls, grpc_tls)
    if core:
        gateway = CoreProcess(options, settings.gateway_core_socket, send)
    else:
        gateway = FrontProcess(options, send, control_state=lambda: link.state if link is not None else "by the core")
    if member:
        # For connections with members on other boxes; its ``on_replaced`` says when its certificate is another one.
        identity = MemberIdentity(options.identity, "gateway", options.name)
        link = MemberLink(
            Membership(
                "gateway",
                options.name,
                settings.control_url,
                settings.home,
                settings.join_token,
                settings.link_status("gateway"),
            ),
            join=lambda: _join(settings, options.name),
            on_message=on_message,
            context=lambda: control_context(settings),
            identity=identity,
        )
    stop = asyncio.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(one, stop.set)
    try:
        await gateway.start()
    except OSError as error:
        if isinstance(error, CannotListen):
            logger.error("cannot_listen", setting=error.setting, address=error.address, reason=error.reason)
        else:
            logger.error("cannot_listen", setting="NEREUS_HOME", address=str(settings.socket_folder), reason=str(error))
        return 1
    # Freeze start-up objects out of the garbage collector: a query's objects go with their last reference.
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 20, 50)
    certifying = asyncio.create_task(_certify(identity, gateway)) if member else None
    # Linked once it listens: a second start must not take over the link of the first.
    linking = _keep_linked(link) if link is not None else None
    watching = [asyncio.create_task(identity.watch()) for identity in (http_tls, grpc_tls) if identity is not None]
    if member:
        watching.append(asyncio.create_task(control_trust.follow(settings)))
    await stop.wait()
    for task in (*watching, *([certifying] if certifying is not None else [])):
        task.cancel()
    await gateway.stop(GRACE_S)
    if linking is not None:
        linking.cancel()
        await asyncio.gather(linking, return_exceptions=True)
    return 0


def _join(settings: Settings, name: str) -> JoinGateway:
    """The gateway's request to join, with the addresses that others reach it at."""
    host, core = machine.own_host(settings), settings.core
    return JoinGateway(
        name=name,
        machine=machine.identity(),
        release=__version__,
        address=settings.http.url_at(host),
        core=machine.host_and_port(host, core.port) if core is not None else "",
    )


async def _certify(identity: MemberIdentity, gateway: FrontProcess | CoreProcess) -> None:
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


def _options(
    settings: Settings, number: int, http_tls: ServerIdentity | None, grpc_tls: ServerIdentity | None
) -> GatewayOptions:
    first, name = settings.gateway_names[0], settings.gateway_names[number - 1]
    siblings = None
    if settings.gateways > 1:
        totals = tuple(settings.gateway_totals(n) for n in range(1, settings.gateways + 1))
        siblings = Siblings(settings.gateway_core_socket, totals, number - 1)
    return GatewayOptions(
        name=name,
        host=settings.http.host,
        port=settings.http.port,
        grpc_host=settings.grpc.host,
        grpc_port=settings.grpc.port,
        file=settings.home / "members" / f"gateway-{disk.safe_name(first)}-config.json",
        queue_rows=settings.queue_rows,
        max_body_bytes=settings.max_request_bytes,
        max_json_bytes=settings.max_json_bytes,
        address_connections=settings.address_connections,
        siblings=siblings,
        admin_socket=settings.gateway_socket(number),
        http_tls=http_tls.context if http_tls is not None else None,
        grpc_tls=grpc_tls.context if grpc_tls is not None else None,
        access=MetricsAccess.of(settings),
        member=first,
        identity=identity_file(settings.home, "gateway", first),
        core_address=settings.core,
    )


def _keep_linked(link: MemberLink) -> asyncio.Task:
    linking = asyncio.create_task(link.run(), name="member-link")
    linking.add_done_callback(_link_ended)
    return linking


def _link_ended(task: asyncio.Task) -> None:
    if not task.cancelled() and task.exception() is not None:
        # Serving goes on with the last plan, without the control plane.
        logger.error("link_failed", exc_info=task.exception())
