"""The node daemon.

It joins the control plane, brings plans to this box's executors, and relays their reports.

While the control plane is away only new configurations are missing: executors serve, dead ones are started again with
their plan, and after a restart of the daemon the last configuration on disk is applied at once.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Sequence

import msgspec

from .. import __version__, disk, log, machine
from ..link import LinkTiming, MemberLink, Membership
from ..protocol import control, frames
from ..protocol.specs import DeviceInfo, DeviceState, DeviceStats
from ..settings import Settings, SettingsError
from ..trust.control_plane import client_context, control_context, follow
from ..trust.member import MemberIdentity, identity_file
from . import addresses, devices, redivision
from .backoff import RestartTiming
from .cache import FetchError, ModelCache
from .executor_process import end_leftovers
from .losses import Loss
from .placement import DeviceRollout
from .profiling import ProfileJobs
from .redivision import Layout
from .sensors import SensorThread
from .supervision import COMMAND, ExecutorSupervisor

#: characters of a device's detail, fewer than the control plane accepts
_MOST_DETAIL = 16_000
#: time between two verifications of the files in the model cache
VERIFY_EVERY_S = 7 * 86400.0
#: how long one device may take to come back before the next one is replaced
REPLACED_S = 60.0
#: seconds between two reports of all devices' states without a change: a control plane without one for a while
#: counts them as lost
STATES_EVERY_S = 30.0
#: seconds of a device's statistics that may wait to be relayed
_STATS_BACKLOG = 10


class NodeDaemon:
    """One box's daemon, for as long as :meth:`run` runs.

    Args:
        settings: home, control plane, name, join token.
        layout: devices that this node offers from the start; one executor each.
        command: the executor's command line, without ``--device FILE``.
    """

    def __init__(
        self,
        settings: Settings,
        layout: Layout,
        *,
        command: Sequence[str] = COMMAND,
        restart_timing: RestartTiming | None = None,
        link_timing: LinkTiming | None = None,
    ):
        self.name = settings.node_name
        several = settings.gateway_names if settings.gateways > 1 else ()
        self.gateways = {name: settings.gateway_socket(number) for number, name in enumerate(several, 1)}
        """sockets of this box's gateways by name; one alone serves its metrics itself"""
        self.devices = layout.devices
        self._division, self._retiring = layout.ordered, layout.retiring
        self._look_at_order = asyncio.Event()
        self._division_problem = ""
        """why the newest order of a division cannot be followed; empty: it is"""
        self._log = log.get("daemon").bind(node=self.name)
        self._config_file = settings.home / "members" / f"node-{disk.safe_name(self.name)}-config.json"
        self.config: control.NodeConfig | None = None
        """the newest configuration, from the control plane or from disk"""
        self.identity = MemberIdentity(identity_file(settings.home, "node", self.name), "node", self.name)
        """for connections with members on other boxes; its ``on_replaced`` says when its certificate is another one"""
        self.link = MemberLink(
            Membership(
                "node",
                self.name,
                settings.control_url,
                settings.home,
                settings.join_token,
                settings.link_status("node"),
            ),
            join=self._join,
            on_message=self._ordered,
            on_up=self._link_up,
            timing=link_timing,
            context=lambda: control_context(settings),
            identity=self.identity,
        )
        self.cache = ModelCache(
            settings.model_cache,
            settings.control_url,
            lambda: self.link.credential,
            limit_bytes=settings.max_upload_bytes,
            context=lambda: client_context(settings, settings.control_url),
        )
        self.executors: dict[str, ExecutorSupervisor] = {}
        self._running: dict[str, asyncio.Task] = {}
        self._group: asyncio.TaskGroup | None = None
        self._rollouts: dict[str, DeviceRollout] = {}
        self._states: dict[str, DeviceState] = {}
        self._stats: dict[str, deque[DeviceStats]] = {}
        self._sensors = SensorThread(lambda: self.devices)
        self._settings = settings
        self._command, self._restart_timing = command, restart_timing or RestartTiming()
        for device in self.devices:
            self._add(device)
        self.jobs = ProfileJobs(self.cache, self.executors, self.link.send)
        self.identity.on_replaced(self._send_cluster)

    def _join(self, local: str) -> control.JoinNode:
        announced = addresses.announced(self._settings.address or local, self.devices)
        return control.JoinNode(
            name=self.name,
            machine=machine.identity(),
            release=__version__,
            devices=announced,
            cores=tuple(sorted(os.sched_getaffinity(0))),
            divided=redivision.divided_as(self._settings, self._division).cpu_devices,
            ordered=bool(self._division),
            division_problem=self._division_problem,
            retiring=tuple(sorted(self._retiring)),
        )

    def _add(self, device: DeviceInfo) -> None:
        ref = device.id
        self.executors[ref] = ExecutorSupervisor(
            device,
            self.name,
            on_frame=lambda frame: self._received(ref, frame),
            on_up=lambda: self._executor_up(ref),
            on_lost=lambda loss: self._executor_lost(ref, loss),
            command=self._command,
            timing=self._restart_timing,
        )
        self._rollouts[ref] = DeviceRollout(
            device, self.cache, lambda apply: self.executors[ref].send(apply), self._plans_changed
        )
        self._states[ref] = DeviceState(device=ref, state="starting")
        self._stats[ref] = deque(maxlen=_STATS_BACKLOG)

    # --- life -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until cancelled; then end executors and link, within about four seconds."""
        leftovers = await end_leftovers(self._settings, self.devices)
        if leftovers:
            self._log.warning("leftovers_ended", pids=leftovers)
        self._load_config()
        self._sensors.start()
        try:
            # None of these ends by itself, so the first to end has failed, and the others are cancelled.
            async with asyncio.TaskGroup() as running:
                self._group = running
                for ref in self.executors:
                    self._start(ref)
                running.create_task(self.link.run(), name="link")
                running.create_task(self._tick(), name="stats")
                running.create_task(self._look_for_devices(), name="devices")
                running.create_task(self._follow_division(), name="division")
                running.create_task(self._verify_files(), name="verify")
                running.create_task(follow(self._settings), name="trust")
        finally:
            self._sensors.stop()
            await self.jobs.close()
            for placement in self._rollouts.values():
                await placement.close()
            await self.cache.close()

    async def _look_for_devices(self) -> None:
        """Serve on devices that appear, such as a GPU whose driver was loaded late."""
        while True:
            await asyncio.sleep(self._restart_timing.probe)
            appeared = await devices.appeared(redivision.divided_as(self._settings, self._division), self.devices)
            # The cores may have been divided anew meanwhile.
            cores = {core for device in self.devices for core in device.cores}
            appeared = tuple(one for one in appeared if one.id not in self.executors and cores.isdisjoint(one.cores))
            if appeared:
                self._appear(addresses.listening(self._settings, appeared, self.devices))
                self.link.rejoin()

    def _start(self, ref: str) -> None:
        self._running[ref] = self._group.create_task(self.executors[ref].run(), name=f"executor-{ref}")

    def _appear(self, added: Sequence[DeviceInfo]) -> None:
        devices.log_found(added)
        self.devices = (*self.devices, *added)
        for device in added:
            self._add(device)
            self._start(device.id)
            if self.config is not None:
                self._rollouts[device.id].place(self.config)

    async def _remove(self, ref: str) -> None:
        self.jobs.lost(ref, Loss("its cores are other devices now"))
        self._running[ref].cancel()
        await asyncio.wait([self._running.pop(ref)])
        await self._rollouts[ref].close()
        self.devices = tuple(device for device in self.devices if device.id != ref)
        for by_device in (self.executors, self._rollouts, self._states, self._stats):
            del by_device[ref]
        self._need_files()

    async def _follow_division(self) -> None:
        """Divide the cores as the control plane orders, while devices serve.

        The new devices' executors start beside those that serve. The devices that they replace *retire*: the control
        plane plans with them until the new ones are profiled, then with the new ones; the node ends a retired device
        once it holds nothing. A device whose cores stay together stays as it is.
        """
        refused = self._division
        while True:
            await self._look_at_order.wait()
            self._look_at_order.clear()
            if (config := self.config) is None:
                continue
            if config.cpu_devices not in (self._division, refused):
                refused = config.cpu_devices
                await self._divide(config.cpu_devices)
            elif config.cpu_devices == self._division and self._division_problem:
                refused, self._division_problem = self._division, ""
                self.link.rejoin()
            ended = [ref for ref in sorted(self._retiring.intersection(config.retired)) if not self._states[ref].warm]
            for ref in ended:
                await self._remove(ref)
                self._log.info("device_retired", id=ref)
            if ended:
                self._divided(self._division, self._retiring.difference(ended))

    async def _divide(self, ordered: str) -> None:
        present = self.devices
        try:
            settings = redivision.divided_as(self._settings, ordered)
            found = await asyncio.to_thread(devices.find, settings, present)
            found = addresses.listening(settings, found, present)
        except SettingsError as error:
            self._division_problem = "; ".join(error.problems)[:200]
            self._log.error("division_refused", ordered=ordered, reason=self._division_problem)
            self.link.rejoin()
            return
        self._division_problem = ""
        before, after = ({device.id for device in some} for some in (present, found))
        retiring = frozenset(device.id for device in present if device.kind == "cpu") - after
        self._appear([device for device in found if device.id not in before])
        self._log.info("divided", ordered=ordered, retiring=sorted(retiring))
        self._divided(ordered, retiring)

    def _divided(self, ordered: str, retiring: frozenset[str]) -> None:
        self._division, self._retiring = ordered, retiring
        redivision.store(self._settings, Layout(self.devices, ordered, retiring))
        self.link.rejoin()

    async def _verify_files(self) -> None:
        """Replace files that the disk has damaged, and executors that loaded them."""
        while True:
            damaged = await self.cache.verify()
            for ref, rollout in list(self._rollouts.items()):
                used = damaged & rollout.wanted
                if used and ref in self.executors:
                    await self._replace_files(ref, used)
            await asyncio.sleep(VERIFY_EVERY_S)

    async def _replace_files(self, ref: str, digests: set[str]) -> None:
        try:
            for digest in digests:
                await self.cache.fetch(digest)
        except FetchError:
            # The plan goes on without these variants, and is whole again once they can be fetched.
            if self.config is not None and ref in self._rollouts:
                self._rollouts[ref].place(self.config)
        executor = self.executors.get(ref)
        if executor is None:
            return
        executor.replace("a file that it serves from was damaged on disk")
        # One device after the other, or for a moment there would be none.
        starts, waited_s = executor.starts, 0.0
        while not (executor.up and executor.starts > starts) and waited_s < REPLACED_S:
            await asyncio.sleep(0.5)
            waited_s += 0.5

    def _load_config(self) -> None:
        try:
            data = disk.read(self._config_file)
            config = None if data is None else control.decode_to_node(data)
        except (OSError, msgspec.DecodeError, control.VersionMismatch) as error:
            self._log.error("config_unreadable", path=str(self._config_file), reason=str(error))
            return
        if isinstance(config, control.NodeConfig):
            self._log.info("config_from_disk", plan=config.plan.version)
            self._configure(config)

    # --- from the control plane -------------------------------------------------------------------------------------

    def _ordered(self, message: control.ToMember) -> None:
        match message:
            case control.NodeConfig():
                if message != self.config:
                    try:
                        disk.write_private(self._config_file, control.encode(message).encode())
                    except OSError as error:
                        # The plan can be served all the same; only a restart would lose it.
                        self._log.error("config_not_stored", path=str(self._config_file), reason=str(error))
                self._configure(message)
            case control.ProfileOrder():
                self.jobs.order(message)
            case control.ProfileCancel():
                self.jobs.cancel(message.job)

    def _configure(self, config: control.NodeConfig) -> None:
        same, before = config == self.config, self.config
        self.config = config
        if before is None or before.peers != config.peers:
            self._send_cluster()
        for plan in config.plan.devices:
            if plan.device not in self.executors:
                self._log.error("unknown_device_in_plan", device=plan.device, plan=config.plan.version)
        self._need_files()
        for placement in self._rollouts.values():
            # The same configuration again (after a reconnect) only hurries what could not be fetched.
            placement.retry() if same else placement.place(config)
        self._look_at_order.set()

    def _link_up(self) -> None:
        self._send_states()
        self.jobs.repeat()
        for placement in self._rollouts.values():
            placement.retry()

    # --- from the executors -----------------------------------------------------------------------------------------

    def _received(self, ref: str, frame: frames.Frame) -> None:
        match frame:
            case frames.StateReport(state=state):
                self._set_state(ref, state)
            case frames.StatsReport(stats=stats):
                self._stats[ref].append(stats)
            case frames.Relay(message=control.Overload() | control.Drift() | control.FaultReport() as message):
                self.link.send(message)
            case frames.Relay(message=report):
                self.jobs.relay(report)

    def _executor_up(self, ref: str) -> None:
        if self._states[ref].state == "down":
            self._set_state(ref, DeviceState(device=ref, state="starting"))
        self.executors[ref].send(self._cluster())
        apply = self._rollouts[ref].current
        if apply is not None:
            self.executors[ref].send(apply)

    def _cluster(self) -> frames.Cluster:
        """The members that may connect from other boxes, once there is a certificate."""
        peers = self.config.peers if self.config is not None else ()
        cores = tuple((peer.name, peer.key_hash, peer.rank) for peer in peers if peer.role == "gateway")
        return frames.Cluster(self.identity.pem if self.identity.issued else b"", cores)

    def _send_cluster(self) -> None:
        for executor in self.executors.values():
            executor.send(self._cluster())

    def _executor_lost(self, ref: str, loss: Loss) -> None:
        state = "down" if self.executors[ref].crash_looping else "starting"
        detail = f"the executor was lost ({loss.reason})"
        if loss.crashed and loss.variant:
            fault = f"the executor crashed while it ran the variant: {loss.reason}"
            self.link.send(control.FaultReport(device=ref, variant=loss.variant, cause="crashed", detail=fault))
        detail += "; it keeps dying, tries go on slowly" if state == "down" else "; starting it again"
        self._set_state(ref, DeviceState(device=ref, state=state, detail=detail))
        self._stats[ref].clear()
        self.jobs.lost(ref, loss)

    # --- to the control plane ---------------------------------------------------------------------------------------

    def states(self) -> tuple[DeviceState, ...]:
        """Every device's state; what keeps a plan from being whole stands in its detail."""
        states = []
        for ref, state in self._states.items():
            details = [part for part in (state.detail, self._rollouts[ref].problem) if part]
            states.append(msgspec.structs.replace(state, detail="; ".join(details)[:_MOST_DETAIL]))
        return tuple(states)

    def _set_state(self, ref: str, state: DeviceState) -> None:
        if state != self._states[ref]:
            self._states[ref] = state
            self._look_at_order.set()
            self._send_states()

    def _send_states(self) -> None:
        self.link.send(control.DeviceStates(devices=self.states()))

    def _plans_changed(self) -> None:
        self._need_files()
        self._send_states()

    def _need_files(self) -> None:
        """Have the cache keep what plans use or will use, and what is kept by order."""
        digests = set().union(*(placement.digests() for placement in self._rollouts.values()))
        if self.config is not None:
            digests.update(self.config.keep)
            plans = self.config.plan.devices
            digests.update(r.variant.digest for plan in plans for r in (*plan.residents, *plan.standby_residents))
        self.cache.need(digests)

    async def _tick(self) -> None:
        """Report the last second of every device to the control plane, in one message."""
        period, due = 1.0, time.monotonic()
        states_due = due + STATES_EVERY_S
        while True:
            due = max(due + period, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            if due >= states_due:
                states_due = due + STATES_EVERY_S
                self._send_states()
                if self.link.up:
                    self.jobs.repeat()
            self._send_stats()
            # Executors' seconds drift against ours: now and then one has two to report.
            if any(len(waiting) > 1 for waiting in self._stats.values()):
                self._send_stats()

    def _send_stats(self) -> None:
        # Sent even without a device's second: the control plane compares what the node holds with what it should.
        self.link.send(
            control.NodeStats(
                devices=tuple(self._sensors.added(waiting.popleft()) for waiting in self._stats.values() if waiting),
                plan_version=self.config.plan.version if self.config is not None else 0,
                config_hash=self.config.hash if self.config is not None else "",
                jobs=self.jobs.under_way,
            )
        )
