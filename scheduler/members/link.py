"""The control plane's end of a member's link.

:meth:`AcceptedLink.serve` tells its life. Beside the member's messages it follows the registry
(:meth:`AcceptedLink._follow`).
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
from django.utils import timezone

from registry.models import Gateway, Node
from scheduler import live, troubles
from scheduler.members import admission, certificates, peers, standing
from scheduler.members.batches import Seen, batches
from scheduler.members.commits import together
from scheduler.members.configurations import configurations, in_thread
from scheduler.members.contents import Registered
from scheduler.members.intake import MAX_MESSAGE, IntakeLimits
from scheduler.members.lag import Lag
from scheduler.members.passing import PASSING, Losses, noted
from scheduler.members.standing import Standing
from workers import log
from workers.protocol import control

logger = log.get("members")

#: how often a live connection refreshes ``last_seen``
SEEN_EVERY_S = 3.0
WAITS = {
    Standing.PENDING: "an operator must approve this member in the console",
    Standing.CLAIMING: "a member of this name exists; an operator must accept this claim on its name in the console",
}


class _End(NamedTuple):
    code: int
    reason: str


ENDS = {
    Standing.REPLACED: _End(control.CLOSE_REPLACED, "another connection is this member now: a newer one, or a claim"),
    Standing.UNCLAIMED: _End(control.CLOSE_UNAUTHORIZED, "an operator refused this claim on the member's name"),
    Standing.REVOKED: _End(control.CLOSE_UNAUTHORIZED, "revoked or deleted by an operator"),
}


def _bearer(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    for name, value in headers:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            return token.strip() if scheme.lower() == "bearer" else None
    return None


def _fault(error: msgspec.ValidationError) -> str:
    """The field first: it must be in what a close frame has space for."""
    what, _, field = str(error).rpartition(" - at ")
    return f"{field.strip('`')}: {what}" if what else field


class AcceptedLink:
    """One member's websocket. A kind's messages are its subclass's."""

    kind: type[Node] | type[Gateway]
    decode: Callable[[str], control.FromMember]

    def __init__(self, scope: dict[str, Any], send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        self._send = send
        self.channel_name = uuid.uuid4().hex
        self.peer = peers.of_scope(scope)
        self.identity: admission.Identity | None = None
        self.member: Node | Gateway | None = None
        self.standing: Standing | None = None
        self.claims = False
        self.losses, self.intake = Losses(), IntakeLimits()
        self.turned_away = self.replaced = False
        self.seen_at = 0.0
        self.lag = Lag()
        self.sent_hash = ""
        self.behind = False
        self.refused, self.certify_from = False, math.inf

    @classmethod
    async def serve(cls, scope: dict[str, Any], receive: Callable[[], Awaitable[dict[str, Any]]], send) -> None:
        """A connection is accepted, joins, follows the registry, reports, and ends."""
        link = cls(scope, send)
        following: asyncio.Task | None = None
        try:
            # Accepted before anything is checked: only an accepted websocket can carry a close code with a reason.
            await receive()
            await send({"type": "websocket.accept"})
            await link._identify(_bearer(scope["headers"]))
            while (event := await receive())["type"] == "websocket.receive":
                message = await link._read(event.get("text"))
                joins = isinstance(message, control.Join)
                if message is None:
                    continue
                if link.member is None and joins:
                    if await link._join(message):
                        following = asyncio.create_task(link._follow(), name=f"follow-{message.name}")
                elif link.member is None or joins:
                    why = "joined already" if joins else "the first message must join"
                    await link.turn_away(control.CLOSE_MALFORMED, why)
                elif link.approved:
                    await link._take(message)
            if following is not None:
                await live.cancel(following)
                await link._leave(event["code"])
        finally:
            link.turned_away = True
            if following is not None:
                following.cancel()

    @property
    def approved(self) -> bool:
        return self.standing is Standing.APPROVED

    async def turn_away(self, code: int, reason: str) -> None:
        """Close with a reason; nothing that comes after it counts."""
        if self.turned_away:
            return
        self.turned_away = True
        name = self.member.name if self.member is not None else None
        logger.warning("member_refused", kind=self.kind.word, name=name, code=code, reason=reason)
        # A close frame's reason holds 123 bytes.
        shown = reason.encode()[:120].decode(errors="ignore")
        await self._send({"type": "websocket.close", "code": code, "reason": shown})

    # --- messages -----------------------------------------------------------------------------------------------------

    async def _read(self, text: str | None) -> control.FromMember | None:
        """A message that counts, once it may be dealt with."""
        if self.turned_away:
            return None
        if text is None or len(text) > MAX_MESSAGE:
            await self.turn_away(control.CLOSE_MALFORMED, f"messages are JSON text of at most {MAX_MESSAGE} characters")
            return None
        if pause := self.intake.pause(len(text), time.monotonic()):
            # Messages that it sends meanwhile wait at its end.
            await asyncio.sleep(pause)
        try:
            return self.decode(text)
        except control.VersionMismatch as error:
            await self.turn_away(control.CLOSE_VERSION, str(error))
        except msgspec.ValidationError as error:
            # Its sender may be right in all else: one field of one message is out of bounds.
            if self.member is not None and self.intake.endures(time.monotonic()):
                self.losses.log("not valid", self.member.name, f"{_fault(error)} ({self.intake.bad} so far)")
            else:
                await self.turn_away(control.CLOSE_MALFORMED, f"message not understood: {_fault(error)}")
        except (msgspec.DecodeError, RecursionError) as error:
            await self.turn_away(control.CLOSE_MALFORMED, f"message not understood: {error}")
        return None

    async def _take(self, message: control.FromMember) -> None:
        self._see()
        name, statistics = self.member.name, isinstance(message, control.MemberStats)
        if statistics and not self.intake.takes_statistics(time.monotonic()):
            self.losses.log("statistics", name, f"more than one report a second ({self.intake.surplus} skipped so far)")
            return
        # Without Redis each would wait for a time-out, and the next ones would be taken for a burst.
        if not (statistics and troubles.pausing(troubles.REDIS)):
            await self._attempt(self.handle(message), type(message).__name__)
        if statistics:
            await self._attempt(self.compare(message), type(message).__name__)

    def _see(self) -> None:
        if time.monotonic() - self.seen_at > SEEN_EVERY_S:
            self.seen_at = time.monotonic()
            batches().seen.put(self._seen)

    @property
    def _seen(self) -> Seen:
        return self.kind, self.member.pk, self.channel_name

    async def _attempt(self, doing: Awaitable[None], what: str) -> bool:
        return await self.losses.attempt(doing, what, self.member.name)

    async def announce(self, doing: Callable[[], Awaitable[None]], what: str) -> bool:
        """Do what needs Redis, which others would learn without it, too; whether it succeeded.

        Not while Redis fails: each call would wait for its time-out, and the member for all of them.
        """
        return not troubles.pausing(troubles.REDIS) and await self._attempt(doing(), what)

    async def _later(self, error: Exception) -> None:
        """Ask the member to come again: what its admission needs is away now."""
        noted(error)
        await self.turn_away(control.CLOSE_TRY_AGAIN, f"not admitted: {type(error).__name__}: {error}")

    # --- admission and standing ---------------------------------------------------------------------------------------

    async def _identify(self, secret: str | None) -> None:
        unknown = "Authorization: a join token or a credential is needed; this one is unknown"
        try:
            self.identity = await in_thread(admission.identify)(self.kind, secret, self.peer)
            if self.identity is None:
                await self.turn_away(control.CLOSE_UNAUTHORIZED, unknown)
        except admission.Refused as error:
            await self.turn_away(control.CLOSE_UNAUTHORIZED, str(error))
        except PASSING as error:
            await self._later(error)

    async def _join(self, message: control.Join) -> bool:
        """Whether the member was admitted, if only to wait."""
        try:
            who = self.kind, self.identity, message.name, self.channel_name, message.machine, message.release
            admitted = await together(admission.admit, *who)
        except admission.Refused as error:
            await self.turn_away(control.CLOSE_UNAUTHORIZED, str(error))
            return False
        except PASSING as error:
            await self._later(error)
            return False
        self.member, self.claims = admitted.member, admitted.claims
        self.join_message = message
        kind, address = self.kind.word, self.peer.address
        logger.info(
            "member_joined", kind=kind, name=message.name, state=self.member.state, claims=self.claims, address=address
        )
        if admitted.replaced:
            # The older connection looks at its standing; it also does so by itself, should this be lost.
            await self.announce_change()
        return True

    async def _follow(self) -> None:
        """Have the member follow the registry, from its admission to its end."""
        settled = False
        async with configurations().followed() as changed:
            while not self.turned_away:
                try:
                    await self._settle(settled)
                    settled = True
                except PASSING as error:
                    if not settled:
                        await self._later(error)
                        return
                    logger.warning("member_not_followed", member=self.member.name, error=str(error))
                except Exception:
                    logger.exception("member_not_followed", member=self.member.name)
                await changed.wait()
                changed.clear()

    async def _settle(self, settled: bool) -> None:
        """Take the standing that the registry gives the connection, and act on it."""
        before, since = self.standing, None
        # A read may have begun before this connection became the member: a change is looked up.
        row = (await configurations().registered()).rows.get((self.kind, self.member.pk)) if settled else None
        if not settled or self._standing(row) is not before:
            row = await in_thread(standing.row_of)(self.kind, self.member.pk)
        now = self._standing(row)

        # The connection ends, waits for an operator, or becomes the member.
        if now in ENDS:
            self.replaced = now is Standing.REPLACED
            await self.turn_away(*ENDS[now])
        elif now in WAITS:
            self.standing = now
            if now is not before:
                await self.say(control.Pending(reason=WAITS[now]))
            await together(standing.waits, self.kind, self.member.pk, self.channel_name)
        elif not self.approved:
            issued, credential = await together(self._store_admission)
            self.standing, self.claims, since = now, False, time.monotonic()
            self._certified(issued)
            await self.say(control.Joined(member=self.member.pk, credential=credential, issued=issued))
        if now is not before:
            await self.announce(lambda: self._tell_browsers(True), "event")
        if not self.approved or self.turned_away:
            return

        # Its configuration is sent where it is another one than the last; what the member holds is compared anyhow.
        config = await self.configuration(since)
        if config.hash != self.sent_hash:
            await self._configure(config)
        if now is not before:
            await self.admitted()
        registered = await configurations().registered()
        await self.follow(registered)
        row = registered.rows.get((self.kind, self.member.pk))
        # The row has the certificate of the key before where the present one was refused.
        if row is not None and (self.refused or certificates.due(row, registered.authority, timezone.now())):
            await self._certify()

    async def announce_change(self) -> None:
        if not await self.announce(in_thread(live.members_changed), "change"):
            configurations().look()

    async def _certify(self) -> None:
        request = self.join_message.certificate_request
        if request and time.monotonic() >= self.certify_from:
            issued = await together(certificates.issue, self.member, request, self.peer, self.channel_name)
            self._certified(issued)
            await self.say(issued)

    def _certified(self, issued: control.IssuedCertificate) -> None:
        self.refused = bool(issued.refused)
        pause = certificates.REFUSED_S if self.refused else certificates.RENEW_EVERY_S
        self.certify_from = time.monotonic() + pause

    def _standing(self, row: standing.Row | None) -> Standing:
        return standing.standing(row, self.channel_name, self.claims)

    def _store_admission(self) -> tuple[control.IssuedCertificate, str | None]:
        request = self.join_message.certificate_request
        issued = certificates.issue(self.member, request, self.peer, self.channel_name)
        credential = admission.issue_credential(self.member, self.peer)
        self.store_join()
        return issued, credential

    async def _tell_browsers(self, connected: bool) -> None:
        if self.claims:
            # Nothing about the member itself has changed.
            await live.publish_async("changed", {"kind": self.kind.word, "ref": self.member.name})
            return
        row = await in_thread(standing.row_of)(self.kind, self.member.pk)
        state = row.state if row is not None else None
        member = {"kind": self.kind.word, "name": self.member.name, "state": state, "connected": connected}
        await live.publish_async("member", member)

    # --- to the member ------------------------------------------------------------------------------------------------

    async def say(self, message: control.ToMember) -> None:
        if not self.turned_away:
            await self._send({"type": "websocket.send", "text": control.encode(message)})

    async def _configure(self, config: control.NodeConfig | control.GatewayConfig) -> None:
        self.lag.sent(time.monotonic())
        self.sent_hash = config.hash
        await self.say(config)

    async def compare(self, stats: control.MemberStats) -> None:
        """Answer a member that holds another configuration than it should; warn later."""
        wanted = await self.configuration()
        now = time.monotonic()
        if self.lag.report(stats.config_hash, wanted.hash, now - max(0.0, stats.at), now):
            held = stats.plan_version
            logger.info("configuration_repeated", member=self.member.name, held=held, plan=wanted.plan.version)
            await self._configure(wanted)
        behind = self.lag.behind_since(now)
        if (behind is not None) != self.behind:
            await self._warn(behind, now)

    async def _warn(self, behind: float | None, now: float) -> None:
        since = timezone.now() - timedelta(seconds=now - behind) if behind is not None else None
        await together(standing.set_behind, self.kind, self.member.pk, self.channel_name, since)
        self.behind = since is not None
        logger.warning("member_behind" if self.behind else "member_caught_up", member=self.member.name)
        await self._tell_browsers(True)

    async def _leave(self, code: int) -> None:
        # It would connect again what is left below.
        await batches().seen.forget(self._seen)
        # First, and whatever becomes of Redis: a connection that ended must not look alive.
        words = standing.last_words(code)
        await self._attempt(together(standing.left, self.kind, self.member.pk, self.channel_name, words), "left")
        if not self.replaced:
            await self.announce(lambda: self._tell_browsers(False), "event")
            if self.approved:
                await self.announce(self.left, "event")
        logger.info("member_left", kind=self.kind.word, name=self.member.name, code=code)

    # --- of a kind ----------------------------------------------------------------------------------------------------

    def store_join(self) -> None:
        """Store the join message, within the transaction of the admission."""
        raise NotImplementedError

    async def admitted(self) -> None:
        raise NotImplementedError

    async def follow(self, registered: Registered) -> None:
        """Send an approved member what it must know beside its configuration."""

    async def configuration(self, since: float | None = None) -> control.NodeConfig | control.GatewayConfig:
        """The configuration as of ``since`` (monotonic), or of a few seconds ago."""
        raise NotImplementedError

    async def handle(self, message: control.FromMember) -> None:
        raise NotImplementedError

    async def left(self) -> None:
        """Tell browsers what became of an approved member that left."""
