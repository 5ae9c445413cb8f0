"""A node's connection: its devices, faults and profile jobs."""

from __future__ import annotations

from registry import clock
from registry.models import Node
from scheduler import live, telemetry
from scheduler.control import requests
from scheduler.members import devices, faults
from scheduler.members.batches import CAME_S, FIRST_CAME_S, MemberSecond, batches
from scheduler.members.commits import together
from scheduler.members.configurations import configurations, in_thread
from scheduler.members.contents import Registered
from scheduler.members.link import AcceptedLink
from scheduler.profiling import dispatch, results
from workers.protocol import control
from workers.protocol.specs import DeviceState

#: a node's profile jobs differ from those ordered for so long before they are compared with the database
JOBS_DIFFER_S = 3.0


class NodeLink(AcceptedLink):
    kind, decode = Node, staticmethod(control.decode_from_node)

    def __init__(self, *connection) -> None:
        super().__init__(*connection)
        self.running: dict[int, int] | None = None
        self.jobs_differ = clock.Unchanged()

    def store_join(self) -> None:
        self.divided = devices.sync(self.member, self.join_message.devices, self.join_message)

    async def admitted(self) -> None:
        # Plans may have left its devices out while it was away.
        batches().came.put(())
        if self.divided:
            changed = {"kind": "node", "ref": self.member.name}
            await self.announce(lambda: live.publish_async("changed", changed), "event")

    async def configuration(self, since: float | None = None) -> control.NodeConfig:
        return await configurations().node(self.member.pk, since)

    async def follow(self, registered: Registered) -> None:
        running, before = registered.jobs.get(self.member.pk, {}), self.running
        self.running = running
        if before is None or running == before:
            return  # jobs of before the join are compared with the node's own report
        for job in await in_thread(dispatch.cancelled)(before.keys() - running.keys()):
            await self.say(control.ProfileCancel(job=job))
        new = [job for job, attempts in running.items() if before.get(job) != attempts]
        for order in await in_thread(dispatch.orders)(self.member, new):
            await self.say(order)

    async def compare(self, stats: control.NodeStats) -> None:
        await super().compare(stats)
        if stats.jobs is None:
            return
        running = (await configurations().registered()).jobs.get(self.member.pk, {})
        differ = running.keys() != set(stats.jobs)
        if self.jobs_differ.ages({"differ": differ})["differ"] >= JOBS_DIFFER_S and differ:
            self.jobs_differ = clock.Unchanged()
            for message in await in_thread(dispatch.reconcile)(self.member, stats.jobs):
                await self.say(message)

    async def handle(self, message: control.FromNode) -> None:
        match message:
            case control.NodeStats(devices=()):
                # Sent to be compared only.
                batches().seconds.put(MemberSecond(node=self.member.pk, stamp=clock.stamp()))
            case control.NodeStats():
                own = {device.id for device in self.join_message.devices}
                second = telemetry.node_second(self.member.name, message, clock.wall(), own)
                entry = telemetry.entry(telemetry.NODE_STREAM, second)
                batches().seconds.put(MemberSecond("node_second", second, entry, self.member.pk, clock.stamp()))
            case control.DeviceStates():
                await self._report(message.devices)
            case control.Overload():
                detail = (
                    f"{message.device} refused {message.refused} of {message.arrived} items of {message.application}"
                )
                await in_thread(requests.request_plan)("overload", detail, at_most_every_s=3)
            case control.FaultReport():
                await in_thread(faults.record)(self.member, message)
            case control.Drift():
                await in_thread(results.drifted)(self.member, message)
            case control.ProfileProgress():
                await in_thread(results.progress)(self.member, message)
            case control.ProfileDone():
                await in_thread(results.done)(self.member, message)
            case control.ProfileFailed():
                await in_thread(results.failed)(self.member, message)

    async def _report(self, states: tuple[DeviceState, ...]) -> None:
        # Most reports say nothing new, and need no write lock to find that.
        if not await in_thread(devices.differs)(self.member, states):
            return
        found = await together(devices.report, self.member, states)
        if found.came:
            planned = (await configurations().registered()).shared.plan.version > 0
            batches().came.put(found.came, CAME_S if planned else FIRST_CAME_S)
        if found.went:
            await in_thread(requests.request_plan)("change", "; ".join(found.went))
        await live.publish_all([{"event": "device_state", "data": event} for event in found.events])

    async def left(self) -> None:
        found = await in_thread(devices.silence)(self.member)
        await live.publish_all([{"event": "device_state", "data": event} for event in found])
