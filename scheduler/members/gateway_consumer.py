"""A gateway's connection: its seconds, bursts and arrivals.

It also says how many gateways there are.
"""

from __future__ import annotations

import time

import msgspec

from registry import clock
from registry.audit import origins
from registry.models import Gateway
from scheduler import samples, telemetry
from scheduler.control import readiness, requested_variants, requests
from scheduler.control.bursts import TotalArrivals
from scheduler.members import push, reaching, standing
from scheduler.members.batches import batches
from scheduler.members.configurations import configurations, in_thread
from scheduler.members.consumer import MemberConsumer
from workers import log
from workers.protocol import control
from workers.protocol.specs import ApplicationSpec, Reach

logger = log.get("members")


class GatewayConsumer(MemberConsumer):
    """``/ws/gateway/``: a gateway."""

    kind = Gateway
    #: arrivals that gateways reported, in the one process that serves websockets
    total = TotalArrivals()

    async def connect(self) -> None:
        self.reach_changes = reaching.ReportChanges()
        await super().connect()

    def decode(self, text: str):
        return control.decode_from_gateway(text)

    def group(self, pk: int) -> str:
        return push.gateway_group(pk)

    async def admitted(self) -> None:
        self.total.joined(self.member.name, self.channel_name, time.monotonic())
        await self._enter(push.GATEWAYS)
        await self.send_configuration(time.monotonic())
        await self.announce(self._refresh_gateways, "refresh")
        # It may reach devices that no other gateway does.
        batches().came.put(())

    async def configuration(self, since: float | None = None) -> control.GatewayConfig:
        config = await configurations().gateway(max(1, self.total.serving), since)
        self.total.set_plan(config.plan.bands, config.plan.version, time.monotonic())
        return config

    async def _refresh_gateways(self) -> None:
        """Send all gateways their configuration again: it includes the number of gateways."""
        await self.channel_layer.group_send(push.GATEWAYS, {"type": "member.refresh"})

    async def disconnect(self, code: int) -> None:
        # A gateway that stops closes its link in order; one that dies, or whose link breaks, does not.
        stopped, now = code == standing.CLOSED_IN_ORDER, time.monotonic()
        left = self.member is not None and self.total.left(self.member.name, self.channel_name, now, stopped)
        await super().disconnect(code)
        if left and stopped:
            await self.announce(self._refresh_gateways, "refresh")

    def store_join(self) -> None:
        with origins.acting(f"gateway {self.member.name}", "its join", self.peer.address):
            Gateway.objects.filter(pk=self.member.pk).update(
                address=self.join_message.address, core_address=self.join_message.core
            )
        reaching.joined(self.member.pk)

    async def _known(self) -> dict[str, ApplicationSpec]:
        """Applications by name; what a gateway reports of others is left out."""
        return {spec.name: spec for spec in (await self.configuration()).applications}

    async def handle(self, message: control.FromGateway) -> None:
        known = await self._known()
        match message:
            case control.GatewayStats():
                variants = (await configurations().registered()).variants
                second = telemetry.gateway_second(self.member.name, message, clock.wall(), known, variants)
                await in_thread(_store_second)(second, message, known)
                await in_thread(readiness.reported)()
                batches().events.put(("gateway_second", second))
                await self._judge()
                # An older report says nothing about now.
                if message.at < telemetry.RECENT_S:
                    await self._reached(message.reach)
                    if requested := requested_variants.requests_of(second):
                        await in_thread(requested_variants.record)(requested)
            case control.Burst() if message.application in known:
                await self._burst(message)
            case control.Arrivals():
                named = {name: slots for name, slots in message.applications.items() if name in known}
                report = msgspec.structs.replace(message, applications=named)
                self.total.report(self.member.name, self.channel_name, report, time.monotonic())
                await self._judge()
            case control.Overload() if message.application in known:
                who = f"gateway {self.member.name}"
                detail = f"{who} refused {message.refused} of {message.arrived} items of {message.application}"
                await in_thread(requests.request_plan)("overload", detail, at_most_every_s=3)

    async def _reached(self, found: Reach | None) -> None:
        if self.reach_changes.new(found):
            await in_thread(reaching.report)(self.member.pk, found)
            self.reach_changes.stored()
        elif reaching.undecided(found):
            await in_thread(reaching.look)()

    async def _judge(self) -> None:
        if self.total.forget(time.monotonic()):
            await self._refresh_gateways()
        for burst in self.total.check(time.monotonic()):
            rate = round(burst.rate, 2)
            logger.info("burst", application=burst.application, rate=rate, plan=burst.plan_version)
            await self._burst(burst)

    async def _burst(self, burst: control.Burst) -> None:
        await in_thread(requests.burst)(burst.application, burst.rate, burst.plan_version)


def _store_second(second: dict, stats: control.GatewayStats, known: dict[str, ApplicationSpec]) -> None:
    telemetry.record(telemetry.GATEWAY_STREAM, second)
    samples.record(second["t"], stats, known)
