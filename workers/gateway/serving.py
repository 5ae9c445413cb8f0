"""One gateway process from its start to its end."""

from __future__ import annotations

import asyncio
import gc
import signal

from workers import disk, log
from workers.link import MemberLink
from workers.protocol.control import GatewayConfig, JoinGateway, ToMember
from workers.settings import Settings

from .gateway import Beside, CannotListen, Gateway, GatewayOptions

#: queries under way get this long to end once the process is told to
GRACE_S = 3.0


async def serve(settings: Settings, number: int = 1) -> int:
    """Run gateway ``number`` until SIGTERM or SIGINT; the exit status."""
    logger = log.get("gateway")
    name = settings.gateway_names[number - 1]
    link: MemberLink | None = None

    def on_message(message: ToMember) -> None:
        if isinstance(message, GatewayConfig):
            gateway.configure(message)

    gateway = Gateway(
        GatewayOptions(
            name=name,
            host=settings.http.host,
            port=settings.http.port,
            grpc_host=settings.grpc.host,
            grpc_port=settings.grpc.port,
            file=settings.home / "members" / f"gateway-{disk.safe_name(name)}-config.json",
            queue_rows=settings.queue_rows,
            max_body_bytes=settings.max_request_bytes,
            beside=_beside(settings, number),
        ),
        send=lambda message: link.send(message) if link is not None else None,
        control_state=lambda: link.state if link is not None else "none",
    )
    link = MemberLink(
        kind="gateway",
        name=name,
        control_url=settings.control_url,
        home=settings.home,
        join_token=settings.join_token,
        join=lambda: JoinGateway(name=name, address=settings.http.url),
        on_message=on_message,
    )
    stop = asyncio.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(one, stop.set)
    # One of several gets its first configuration before it listens, if it can. One that serves alone listens first: if
    # it is started twice, the second must not take over the first one's link.
    linking = _keep_linked(link, logger) if settings.gateways > 1 else None
    try:
        await gateway.start()
    except OSError as error:
        if isinstance(error, CannotListen):
            logger.error("cannot_listen", setting=error.setting, address=error.address, reason=error.reason)
        else:
            logger.error("cannot_listen", setting="NEREUS_HOME", address=str(settings.socket_folder), reason=str(error))
        if linking is not None:
            await _end(linking)
        return 1
    # What is here now stays: nothing of it needs to be looked at again. A query's objects go with their last reference;
    # the collector is for what errors and connections tie together, and need not come by every few queries.
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 20, 50)
    if linking is None:
        linking = _keep_linked(link, logger)
    await stop.wait()
    await gateway.stop(GRACE_S)
    await _end(linking)
    return 0


def _beside(settings: Settings, number: int) -> Beside | None:
    if settings.gateways == 1:
        return None
    totals = tuple(settings.gateway_totals(n) for n in range(1, settings.gateways + 1))
    return Beside(settings.gateway_socket(number), totals, number - 1)


def _keep_linked(link: MemberLink, logger) -> asyncio.Task:
    linking = asyncio.create_task(link.run(), name="member-link")
    linking.add_done_callback(lambda task: _link_ended(task, logger))
    return linking


async def _end(linking: asyncio.Task) -> None:
    linking.cancel()
    await asyncio.gather(linking, return_exceptions=True)


def _link_ended(task: asyncio.Task, logger) -> None:
    if not task.cancelled() and task.exception() is not None:
        # Serving goes on with the last plan; only news from the control plane ends.
        logger.error("link_failed", exc_info=task.exception())
