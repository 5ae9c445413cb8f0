"""Member links in the control plane: parse, call, answer. One consumer class a kind."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
from channels.generic.websocket import AsyncWebsocketConsumer
from django.core.exceptions import ObjectDoesNotExist
from django.db import DatabaseError
from django.utils import timezone
from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import RedisError

from registry import clock
from registry.models import Gateway, Member, Node
from scheduler import live, telemetry, troubles
from scheduler.control import readiness, requests
from scheduler.control.bursts import TotalArrivals
from scheduler.members import admission, devices, faults, push
from scheduler.members.configurations import configurations, in_thread
from scheduler.members.lag import Lag, Lasting
from scheduler.profiling import dispatch, results
from workers import log
from workers.protocol import control

logger = log.get("members")

MAX_MESSAGE = 4 * 1024 * 1024
#: how often a live connection refreshes ``last_seen``
SEEN_EVERY_S = 3.0
#: how often a connection compares its member's approval with the registry's
RECHECK_EVERY_S = 3.0
#: how often it joins its groups again, which Redis may have lost (FLUSHALL)
REJOIN_EVERY_S = 60.0
#: a wall clock that differs by more from the steady one than before was set
STEP_S = 60.0
#: a node's profile jobs differ from those ordered for so long before they are compared with the database
JOBS_DIFFER_S = 3.0
#: the close code of a member that ends its link by itself (RFC 6455, section 7.4.1)
CLOSED_IN_ORDER = 1000
#: what keeps a message from being dealt with now; the next one may fare better
PASSING = (RedisError, BrokerError, DatabaseError, ObjectDoesNotExist, OSError, OverflowError, ValueError)
#: those of them that others will meet, too
TROUBLE = (RedisError, BrokerError, DatabaseError)
#: how often a connection logs that messages are lost
LOST_EVERY_S = 10.0


class MemberConsumer(AsyncWebsocketConsumer):
    """Admission, approval and error handling; subclasses handle a kind's messages."""

    kind: type[Node] | type[Gateway]
    _polling: asyncio.Task | None = None
    _seeing: asyncio.Task | None = None

    async def __call__(self, scope, receive, send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # disconnect() is not called when Redis ends the connection.
            if self._polling is not None:
                self._polling.cancel()

    async def connect(self) -> None:
        self.member: Node | Gateway | None = None
        self.approved = False
        self.groups_joined: list[str] = []
        self.rejoin_at = math.inf
        self.lost, self.lost_logged = 0, -math.inf
        self.turned_away = False
        self.seen_at = 0.0
        self.lag = Lag()
        self.behind_since: float | None = None
        # Accepted before anything is checked: only an accepted websocket can carry a close code with a reason.
        await self.accept()
        self.identity = None
        try:
            self.identity = await in_thread(admission.identify)(self.kind, self._token())
        except PASSING as error:
            await self._later(error)
            return
        if self.identity is None:
            await self.turn_away(
                control.CLOSE_UNAUTHORIZED, "Authorization: a join token or a credential is needed; this one is unknown"
            )

    def _token(self) -> str | None:
        for name, value in self.scope["headers"]:
            if name == b"authorization":
                scheme, _, token = value.decode("latin-1").partition(" ")
                return token.strip() if scheme.lower() == "bearer" else None
        return None

    async def turn_away(self, code: int, reason: str) -> None:
        self.turned_away = True
        logger.warning("member_refused", kind=self.kind.__name__.lower(), code=code, reason=reason)
        # A close frame's reason holds 123 bytes.
        await self.close(code=code, reason=reason.encode()[:120].decode(errors="ignore"))

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self.identity is None:
            return
        if text_data is None or len(text_data) > MAX_MESSAGE:
            await self.turn_away(control.CLOSE_MALFORMED, f"messages are JSON text of at most {MAX_MESSAGE} characters")
            return
        try:
            message = self.decode(text_data)
        except control.VersionMismatch as error:
            await self.turn_away(control.CLOSE_VERSION, str(error))
            return
        except msgspec.DecodeError as error:
            await self.turn_away(control.CLOSE_MALFORMED, f"message not understood: {error}")
            return
        if self.member is None:
            if not isinstance(message, control.JoinNode | control.JoinGateway):
                await self.turn_away(control.CLOSE_MALFORMED, "the first message must join")
                return
            await self._join(message)
        elif isinstance(message, control.JoinNode | control.JoinGateway):
            await self.turn_away(control.CLOSE_MALFORMED, "joined already")
        elif self.approved:
            self._see()
            statistics = isinstance(message, control.MemberStats)
            # Without Redis each would wait for a time-out, and the next ones would be taken for a burst.
            if not (statistics and troubles.pausing(troubles.REDIS)):
                await self._or_log(self.handle, message)
            if statistics:
                await self._or_log(self.compare, message)

    def _see(self) -> None:
        """Store now and then that the member sent something. In the background: the database may be locked."""
        if time.monotonic() - self.seen_at > SEEN_EVERY_S and (self._seeing is None or self._seeing.done()):
            self.seen_at = time.monotonic()
            self._seeing = asyncio.create_task(self._store_seen(), name=f"seen-{self.member.name}")

    async def _store_seen(self) -> None:
        if await self._attempt(in_thread(admission.seen)(self.kind, self.member.pk, self.channel_name), "seen"):
            troubles.over(troubles.DATABASE)
            troubles.over(troubles.REDIS)

    async def _attempt(self, doing: Awaitable[None], what: str) -> bool:
        """Do what may fail now without harm; returns whether it succeeded."""
        try:
            await doing
        except PASSING as error:
            if isinstance(error, TROUBLE):
                troubles.occurred(error)
            self._log_lost(what, error)
            return False
        return True

    async def _or_log(self, handle: Callable[[Any], Awaitable[None]], message: control.FromMember) -> None:
        """A message that cannot be dealt with now (Redis is away, say) is lost; the link and what follows are not."""
        try:
            await handle(message)
        except PASSING as error:
            if isinstance(error, TROUBLE):
                troubles.occurred(error)
            self._log_lost(type(message).__name__, error)

    def _log_lost(self, what: str, error: Exception) -> None:
        self.lost += 1
        now = time.monotonic()
        if now - self.lost_logged >= LOST_EVERY_S:
            self.lost_logged = now
            detail = f"{type(error).__name__}: {error}"
            logger.error("message_lost", type=what, member=self.member.name, error=detail, lost=self.lost)

    async def _later(self, error: Exception) -> None:
        """Have the member come again: its admission needs what is away now, and may be half done."""
        if isinstance(error, TROUBLE):
            troubles.occurred(error)
        await self.turn_away(control.CLOSE_TRY_AGAIN, f"not admitted: {type(error).__name__}: {error}")

    async def _join(self, message: control.JoinNode | control.JoinGateway) -> None:
        try:
            self.member = await in_thread(admission.admit)(self.kind, self.identity, message.name, self.channel_name)
        except admission.Refused as error:
            await self.turn_away(control.CLOSE_UNAUTHORIZED, str(error))
            return
        except PASSING as error:
            await self._later(error)
            return
        self.join_message = message
        await self._enter(self.group(self.member.pk))
        logger.info("member_joined", kind=self.kind.__name__.lower(), name=message.name, state=self.member.state)
        self._polling = asyncio.create_task(self._poll(), name=f"poll-{message.name}")
        try:
            await self._admit_or_wait()
        except PASSING as error:
            await self._later(error)

    async def _poll(self) -> None:
        """Poll for what pushes would deliver."""
        ahead = clock.wall() - clock.steady()
        while not self.turned_away:
            await asyncio.sleep(RECHECK_EVERY_S)
            try:
                await self._recheck()
                # The channel layer forgets members of groups by the wall clock.
                stepped = abs(clock.wall() - clock.steady() - ahead) > STEP_S
                if stepped or time.monotonic() >= self.rejoin_at:
                    ahead = clock.wall() - clock.steady()
                    self.rejoin_at = time.monotonic() + REJOIN_EVERY_S
                    for group in self.groups_joined:
                        await self.channel_layer.group_add(group, self.channel_name)
            except PASSING as error:
                logger.warning("member_not_rechecked", member=self.member.name, error=str(error))
            except Exception:
                logger.exception("member_not_rechecked", member=self.member.name)

    async def _recheck(self) -> None:
        """Follow an approval or a revocation that no push announced."""
        key = self.kind, self.member.pk
        expected = Member.State.APPROVED if self.approved else Member.State.PENDING
        if (await configurations().registered()).states.get(key) == expected:
            return
        if (await configurations().registered(time.monotonic())).states.get(key) == expected:
            return
        try:
            await self._admit_or_wait()
        except PASSING as error:
            await self._later(error)

    async def _admit_or_wait(self) -> None:
        state = await in_thread(admission.state_of)(self.kind, self.member.pk)
        if state == Member.State.APPROVED and not self.approved:
            self.approved = True
            credential = await in_thread(admission.issue_credential)(self.member)
            await self.say(control.Joined(member=self.member.pk, credential=credential))
            await self.admitted()
        elif state == Member.State.PENDING and not self.approved:
            await self.say(control.Pending(reason="an operator must approve this member in the console"))
        elif state != Member.State.APPROVED:
            await self.turn_away(control.CLOSE_UNAUTHORIZED, "revoked by an operator")
        await self._attempt(self._tell_browsers(True), "event")

    async def _enter(self, group: str) -> None:
        """Join a group, as soon as Redis lets it; until then the member pulls."""
        self.groups_joined.append(group)
        joined = await self._attempt(self.channel_layer.group_add(group, self.channel_name), "group")
        self.rejoin_at = min(self.rejoin_at, time.monotonic() + (REJOIN_EVERY_S if joined else 0.0))

    async def _tell_browsers(self, connected: bool) -> None:
        await live.publish_async(
            "member",
            {
                "kind": self.kind.__name__.lower(),
                "name": self.member.name,
                "state": await in_thread(admission.state_of)(self.kind, self.member.pk),
                "connected": connected,
                "behind_since": self.behind_since if connected else None,
            },
        )

    async def say(self, message: control.ToMember) -> None:
        await self.send(text_data=control.encode(message))

    async def member_send(self, event: dict[str, Any]) -> None:
        """From the channel layer: an encoded message for the member."""
        if self.approved:
            await self.send(text_data=event["text"])

    async def member_refresh(self, event: dict[str, Any]) -> None:
        """From the channel layer: something that the member must know changed."""
        if self.approved:
            try:
                await self.send_configuration(time.monotonic())
            except PASSING as error:
                logger.warning("push_lost", member=self.member.name, error=str(error))

    async def send_configuration(self, since: float) -> None:
        """Send what the database held at ``since`` or later."""
        config = await self.configuration(since)
        self.lag.sent(time.monotonic())
        await self.say(config)

    async def compare(self, stats: control.MemberStats) -> None:
        """Answer a member that holds another configuration than it should, and warn where that lasts."""
        wanted = await self.configuration()
        now = time.monotonic()
        if self.lag.report(stats.config_hash, wanted.hash, now - max(0.0, stats.at), now):
            held = stats.plan_version
            logger.info("configuration_repeated", member=self.member.name, held=held, plan=wanted.plan.version)
            self.lag.sent(now)
            await self.say(wanted)
        if self.lag.warns(now) != (self.behind_since is not None):
            await self._warn(now)

    async def _warn(self, now: float) -> None:
        """Have browsers show that the member is behind, or that it has caught up."""
        since = timezone.now() - timedelta(seconds=now - self.lag.since) if self.lag.warns(now) else None
        await in_thread(admission.set_behind)(self.kind, self.member.pk, self.channel_name, since)
        self.behind_since = since.timestamp() if since is not None else None
        logger.warning("member_behind" if since is not None else "member_caught_up", member=self.member.name)
        await self._tell_browsers(True)

    async def member_recheck(self, event: dict[str, Any]) -> None:
        """From the channel layer: approval may have changed."""
        try:
            await self._admit_or_wait()
        except PASSING as error:
            await self._later(error)

    async def disconnect(self, code: int) -> None:
        if self._polling is not None:
            # It must not join a group again that is left below.
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
        if self._seeing is not None:
            # It would connect again what is left below.
            await asyncio.gather(self._seeing, return_exceptions=True)
        if self.member is not None:
            # First, and whatever becomes of Redis: a connection that ended must not look alive.
            await self._attempt(in_thread(admission.left)(self.kind, self.member.pk, self.channel_name), "left")
            for group in self.groups_joined:
                await self._attempt(self.channel_layer.group_discard(group, self.channel_name), "group")
            await self._attempt(self._tell_browsers(False), "event")
            logger.info("member_left", kind=self.kind.__name__.lower(), name=self.member.name, code=code)

    def decode(self, text: str):
        raise NotImplementedError

    def group(self, pk: int) -> str:
        raise NotImplementedError

    async def admitted(self) -> None:
        """The member is approved and was notified: send its configuration."""
        raise NotImplementedError

    async def configuration(self, since: float | None = None) -> control.NodeConfig | control.GatewayConfig:
        """Everything that the member must know, as of ``since`` (monotonic) or later; None: a few seconds ago."""
        raise NotImplementedError

    async def handle(self, message: control.FromMember) -> None:
        raise NotImplementedError


class NodeConsumer(MemberConsumer):
    """``/ws/node/``: a node daemon."""

    kind = Node

    async def connect(self) -> None:
        self.jobs_differ = Lasting(JOBS_DIFFER_S)
        await super().connect()

    def decode(self, text: str):
        return control.decode_from_node(text)

    def group(self, pk: int) -> str:
        return push.node_group(pk)

    async def admitted(self) -> None:
        await in_thread(devices.sync)(self.member, self.join_message.devices)
        await self.send_configuration(time.monotonic())

    async def configuration(self, since: float | None = None) -> control.NodeConfig:
        return await configurations().node(self.member.pk, since)

    async def compare(self, stats: control.NodeStats) -> None:
        await super().compare(stats)
        if stats.jobs is None:
            return
        ordered = (await configurations().registered()).jobs.get(self.member.pk, frozenset())
        if self.jobs_differ.holds(ordered != frozenset(stats.jobs), time.monotonic()):
            for message in await in_thread(dispatch.reconcile)(self.member, stats.jobs):
                await self.say(message)

    async def handle(self, message: control.FromNode) -> None:
        match message:
            case control.NodeStats(devices=()):
                pass  # sent to be compared only
            case control.NodeStats():
                second = telemetry.node_second(self.member.name, message, clock.wall())
                await in_thread(telemetry.record)(telemetry.NODE_STREAM, second)
                await live.publish_async("node_second", second)
            case control.DeviceStates():
                for event in await in_thread(devices.report)(self.member, message.devices):
                    await live.publish_async("device_state", event)
            case control.Overload():
                detail = (
                    f"{message.device} refused {message.refused} of {message.arrived} items of {message.application}"
                )
                await in_thread(requests.request_plan)("overload", detail, at_most_every_s=3)
            case control.FaultReport():
                event = await in_thread(faults.record)(self.member, message)
                if event is not None:
                    await live.publish_async("fault", event)
            case control.Drift():
                await in_thread(results.drifted)(self.member, message)
            case control.ProfileProgress():
                await in_thread(results.progress)(self.member, message)
            case control.ProfileDone():
                await in_thread(results.done)(self.member, message)
            case control.ProfileFailed():
                await in_thread(results.failed)(self.member, message)

    async def disconnect(self, code: int) -> None:
        await super().disconnect(code)
        if self.member is not None and self.approved:
            await self._attempt(self._silence(), "event")

    async def _silence(self) -> None:
        for event in await in_thread(devices.silence)(self.member):
            await live.publish_async("device_state", event)


class GatewayConsumer(MemberConsumer):
    """``/ws/gateway/``: a gateway."""

    kind = Gateway
    #: arrivals that gateways reported, in the one process that serves websockets
    total = TotalArrivals()

    def decode(self, text: str):
        return control.decode_from_gateway(text)

    def group(self, pk: int) -> str:
        return push.gateway_group(pk)

    async def admitted(self) -> None:
        await in_thread(self._remember_address)()
        self.total.joined(self.member.name, self.channel_name, time.monotonic())
        await self._enter(push.GATEWAYS)
        await self.send_configuration(time.monotonic())
        await self._attempt(self._refresh_gateways(), "refresh")

    async def configuration(self, since: float | None = None) -> control.GatewayConfig:
        config = await configurations().gateway(max(1, self.total.serving), since)
        self.total.set_plan(config.plan.bands, config.plan.version, time.monotonic())
        return config

    async def _refresh_gateways(self) -> None:
        """Send all gateways their configuration again: it includes the number of gateways."""
        await self.channel_layer.group_send(push.GATEWAYS, {"type": "member.refresh"})

    async def disconnect(self, code: int) -> None:
        # A gateway that stops closes its link in order; one that dies, or whose link breaks, does not.
        stopped, now = code == CLOSED_IN_ORDER, time.monotonic()
        left = self.member is not None and self.total.left(self.member.name, self.channel_name, now, stopped)
        await super().disconnect(code)
        if left and stopped:
            await self._attempt(self._refresh_gateways(), "refresh")

    def _remember_address(self) -> None:
        Gateway.objects.filter(pk=self.member.pk).update(address=self.join_message.address[:200])

    async def handle(self, message: control.FromGateway) -> None:
        match message:
            case control.GatewayStats():
                second = telemetry.gateway_second(self.member.name, message, clock.wall())
                await in_thread(telemetry.record)(telemetry.GATEWAY_STREAM, second)
                await in_thread(readiness.reported)()
                await live.publish_async("gateway_second", second)
                await self._judge()
            case control.Burst():
                await self._burst(message)
            case control.Arrivals():
                self.total.report(self.member.name, self.channel_name, message, time.monotonic())
                await self._judge()
            case control.Overload():
                who = f"gateway {self.member.name}"
                detail = f"{who} refused {message.refused} of {message.arrived} items of {message.application}"
                await in_thread(requests.request_plan)("overload", detail, at_most_every_s=3)

    async def _judge(self) -> None:
        if self.total.forget(time.monotonic()):
            await self._refresh_gateways()
        for burst in self.total.check(time.monotonic()):
            rate = round(burst.rate, 2)
            logger.info("burst", application=burst.application, rate=rate, plan=burst.plan_version)
            await self._burst(burst)

    async def _burst(self, burst: control.Burst) -> None:
        await in_thread(requests.burst)(burst.application, burst.rate, burst.plan_version)
