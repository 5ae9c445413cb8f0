"""A gateway's connection: its seconds and bursts."""

from __future__ import annotations

import asyncio

from registry import clock
from registry.audit import origins
from registry.models import Gateway
from scheduler import samples, telemetry
from scheduler.control import readiness, requested_variants, requests
from scheduler.members import reaching
from scheduler.members.batches import MemberSecond, batches
from scheduler.members.configurations import configurations, in_thread
from scheduler.members.link import AcceptedLink
from workers import log
from workers.protocol import control
from workers.protocol.specs import ApplicationSpec, Reach

logger = log.get("members")


class GatewayLink(AcceptedLink):
    kind, decode = Gateway, staticmethod(control.decode_from_gateway)

    def __init__(self, *connection) -> None:
        super().__init__(*connection)
        self.reach_stored: tuple[frozenset[str], ...] | None = None

    async def admitted(self) -> None:
        # The others must let it connect.
        await self.announce_change()
        # It may reach devices that no other gateway does.
        batches().came.put(())

    async def configuration(self, since: float | None = None) -> control.GatewayConfig:
        return await configurations().gateway(since)

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
                registered = await configurations().registered()
                second = telemetry.gateway_second(self.member.name, message, clock.wall(), known, registered.variants)
                entry = telemetry.entry(telemetry.GATEWAY_STREAM, second)
                batches().seconds.put(MemberSecond("gateway_second", second, entry))
                if any(counts.slowest or counts.refused for counts in message.applications.values()):
                    await asyncio.to_thread(samples.record, second["t"], message, known)
                if registered.loading:
                    await in_thread(readiness.reported)()
                # An older report says nothing about now.
                if message.at < telemetry.RECENT_S:
                    await self._reached(message.reach)
                    if requested := requested_variants.requests_of(second):
                        await in_thread(requested_variants.record)(requested)
            case control.Burst() if message.application in known:
                rate = round(message.rate, 2)
                logger.info("burst", application=message.application, rate=rate, plan=message.plan_version)
                await in_thread(requests.burst)(message.application, message.rate, message.plan_version)
            case control.Overload() if message.application in known:
                who = f"gateway {self.member.name}"
                detail = f"{who} refused {message.refused} of {message.arrived} items of {message.application}"
                await in_thread(requests.request_plan)("overload", detail, at_most_every_s=3)

    async def _reached(self, found: Reach | None) -> None:
        if (mark := reaching.mark(found)) != self.reach_stored:
            await in_thread(reaching.report)(self.member.pk, found)
            self.reach_stored = mark
        elif reaching.undecided(found):
            await in_thread(reaching.look)()
