"""The websocket by which a member talks with the control plane.

A member is a node daemon or a gateway. The data plane never waits for it: :meth:`MemberLink.send` only puts a message
into a bounded outbox, and a control plane that is away, refuses the member or sends malformed messages is logged and
tried again.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from socket import IPPROTO_TCP, TCP_USER_TIMEOUT

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from . import disk, log
from .credential import CredentialFile
from .outbox import Outbox
from .protocol import control
from .settings import JOIN_TOKEN_FILE
from .trust.control_plane import TrustError
from .trust.member import MemberIdentity

_DECODERS = {"node": control.decode_to_node, "gateway": control.decode_to_gateway}
#: state and usual reason of a link that was refused, by close code
_REFUSALS = {
    control.CLOSE_UNAUTHORIZED: ("unauthorized", "the token is unknown to the control plane"),
    control.CLOSE_VERSION: ("version", "the control plane speaks another protocol version"),
    control.CLOSE_REPLACED: ("replaced", "another connection under this credential took over"),
    control.CLOSE_MALFORMED: ("malformed", "the control plane did not understand this member"),
}


@dataclass(frozen=True)
class LinkTiming:
    """Times of a link, in seconds.

    Attributes:
        first, longest: pause between attempts, doubled each time.
        refused_first, refused_longest: the same where an operator has to act (token refused, versions differ, name
            taken).
        replaced_first, replaced_longest: the same where another connection with this credential took over, so that two
            members with one credential do not alternate quickly.
        ping_every, ping_answer: between pings, and until each is answered; then the peer's process counts as dead.
    """

    first: float = 0.2
    longest: float = 5.0
    refused_first: float = 10.0
    refused_longest: float = 60.0
    replaced_first: float = 30.0
    replaced_longest: float = 600.0
    connect: float = 5.0  # to open a connection
    answer: float = 30.0  # until the first message, even from a control plane that answers pings
    # A kernel that acknowledges nothing for so long is gone, however slow the control plane may be.
    gone: float = 8.0  # without an acknowledgement by the peer's kernel, until its box counts as lost
    ping_every: float = 5.0
    # A control plane that stands behind serving may wait for seconds; what was sent on a link given up is lost.
    ping_answer: float = 20.0
    farewell: float = 0.3  # to send what is left when the member ends

    def pauses(self, state: str) -> tuple[float, float]:
        """The first and the longest pause of a link in this state."""
        if state == "replaced":
            return self.replaced_first, self.replaced_longest
        return (self.first, self.longest) if state == "down" else (self.refused_first, self.refused_longest)


class _Refused(Exception):
    """The control plane turned the member away; trying again at once is useless."""

    def __init__(self, state: str, reason: str):
        super().__init__(reason)
        self.state = state


@dataclass(frozen=True)
class Membership:
    kind: str  # ``node`` or ``gateway``; also names the websocket's path
    name: str  # the member's name in the cluster
    control_url: str  # ``http(s)://HOST:PORT`` of the control plane
    home: Path  # where ``members/<kind>-<name>.json`` keeps the credential (mode 0600)
    #: admits a member that has no credential yet, or whose credential is refused. Empty: the control plane's own box
    #: has one in ``home``, read at each try, since operators replace it.
    join_token: str
    status_file: Path | None = None


async def _no_context() -> None:
    """No context, for a control plane that is asked without TLS."""


class MemberLink:
    """A member's connection, for as long as :meth:`run` runs.

    Args:
        join: makes the message that is sent first on each connection, from the connection's address on this box.
        on_message: called with each understood message except those about admission and certificates; an exception is
            logged.
        on_up: called once admitted (after each reconnect too).
        on_down: called when an admitted connection ends.
        context: whom to trust, asked at each connection; None where the URL uses no TLS. Raises TrustError where the
            control plane is not the one that it should be.
        identity: the member's key and certificate, kept up to date; None: it has none.
    """

    def __init__(
        self,
        membership: Membership,
        *,
        join: Callable[[str], control.FromMember],
        on_message: Callable[[control.ToMember], None],
        on_up: Callable[[], None] = lambda: None,
        on_down: Callable[[], None] = lambda: None,
        timing: LinkTiming | None = None,
        context: Callable[[], Awaitable[ssl.SSLContext | None]] = _no_context,
        identity: MemberIdentity | None = None,
    ):
        kind, self._control_url = membership.kind, membership.control_url
        self._decode = _DECODERS[kind]
        self._url = "ws" + self._control_url.removeprefix("http") + f"/ws/{kind}/"
        self._status_file = membership.status_file
        self._given_join_token, self._own_join_token = membership.join_token, membership.home / JOIN_TOKEN_FILE
        self._identity = identity
        self._join = join
        self._on_message, self._on_up, self._on_down = on_message, on_up, on_down
        self._timing = timing or LinkTiming()
        self._context = context
        self._log = log.get("link").bind(member=membership.name)
        self._outbox = Outbox()
        self._filled = asyncio.Event()
        self._use_join_token = False
        self._socket: ClientConnection | None = None
        self.up = False
        """admitted and connected"""
        self.state = "connecting"
        """``connecting``, ``pending``, ``up``, ``down``, ``untrusted``, ``unauthorized``, ``version``, ``replaced``"""
        self.detail = ""
        """why the link is not up, in words"""
        path = membership.home / "members" / f"{kind}-{disk.safe_name(membership.name)}.json"
        self._credential = CredentialFile(path, self._control_url, self._log)

    @property
    def credential(self) -> str | None:
        return self._credential.value

    @property
    def dropped(self) -> dict[str, int]:
        return dict(self._outbox.dropped)

    def send(self, message: control.FromMember) -> None:
        """Send ``message`` once the link is up; never blocks."""
        self._outbox.put(message, time.monotonic(), self.up)
        self._filled.set()

    def rejoin(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().create_task(self._socket.close(), name="link-rejoin")

    async def run(self) -> None:
        """Keep the link up until cancelled; cancelling closes the connection properly."""
        tries, before = 0, ""
        while True:
            token, began = self._token(), time.monotonic()
            try:
                if token is None:
                    raise _Refused("unauthorized", self._no_token())
                if await self._connection(token):
                    tries = 0
            except _Refused as refused:
                self._set_state(refused.state, str(refused))
                if self._try_other_token(refused):
                    continue
            except Exception as error:
                # Without its link a gateway would serve by its last plan until somebody starts it again.
                if not isinstance(error, OSError | WebSocketException):
                    self._log.exception("link_failed")
                self._set_state("down", f"{type(error).__name__}: {error}")
            first, longest = self._timing.pauses(self.state)
            if self.state != before or time.monotonic() - began > longest:
                tries, before = 0, self.state
            # Full spread over the upper half, so that a whole site's members do not return in the same instant.
            pause = min(longest, first * 2 ** min(tries, 20)) * random.uniform(0.5, 1.0)
            tries += 1
            if self.state != "down":
                self._log.error("link_refused", state=self.state, reason=self.detail, retry_s=round(pause, 1))
            elif tries <= 3 or tries % 10 == 0:
                # The first failures and then one in a while: an absent control plane must not fill the log.
                self._log.warning("link_down", reason=self.detail, tries=tries, retry_s=round(pause, 2))
            await asyncio.sleep(pause)

    # --- one connection ---------------------------------------------------------------------------------------------

    async def _connection(self, token: str) -> bool:
        timing = self._timing
        try:
            # Before anything of ours is sent.
            context = await self._context()
        except TrustError as error:
            raise _Refused("untrusted", str(error)) from error
        try:
            async with connect(
                self._url,
                ssl=context,
                additional_headers={"Authorization": f"Bearer {token}"},
                open_timeout=timing.connect,
                close_timeout=1.0,
                ping_interval=timing.ping_every,
                ping_timeout=timing.ping_answer,
                max_size=64 * 1024 * 1024,
                compression=None,
                # Members and control plane share a site; a proxy meant for the internet must not come between.
                proxy=None,
            ) as socket:
                connected = socket.transport.get_extra_info("socket")
                connected.setsockopt(IPPROTO_TCP, TCP_USER_TIMEOUT, int(timing.gone * 1000))
                try:
                    return await self._converse(socket)
                except asyncio.CancelledError:
                    await self._take_leave(socket)
                    raise
        except InvalidStatus as error:
            status = error.response.status_code
            if status in (401, 403):
                raise _Refused("unauthorized", f"the control plane answered HTTP {status}") from error
            raise

    async def _converse(self, socket: ClientConnection) -> bool:
        admitted = False
        writer: asyncio.Task | None = None
        self._socket = socket
        try:
            first = self._join(socket.local_address[0])
            if self._identity is not None:
                # Each join renews the certificate.
                first = msgspec.structs.replace(first, certificate_request=self._identity.request())
            await socket.send(control.encode(first))
            # A control plane that lost the request on its way answers pings, and nothing else.
            async with asyncio.timeout(self._timing.answer) as patience:
                async for text in socket:
                    patience.reschedule(None)
                    message = self._understood(text)
                    if isinstance(message, control.Joined):
                        self._admit(message)
                        if not admitted:
                            admitted = True
                            writer = asyncio.create_task(self._write(socket), name="link-writer")
                            self._call(self._on_up)
                    elif isinstance(message, control.IssuedCertificate):
                        self._certify(message)
                    elif isinstance(message, control.Pending):
                        self._set_state("pending", message.reason)
                        self._log.info("link_pending", reason=message.reason)
                    elif message is not None:
                        self._call(self._on_message, message)
            # A clean close ends the loop without an exception, but its code may still be a refusal.
            self._raise_refusal(socket.close_code, socket.close_reason)
            self._set_state("down", f"the control plane closed the connection ({socket.close_code})")
        except ConnectionClosed as error:
            self._raise_refusal(error.rcvd.code if error.rcvd else None, error.rcvd.reason if error.rcvd else "")
            self._set_state("down", str(error))
        finally:
            self._socket = None
            if writer is not None:
                writer.cancel()
                await asyncio.gather(writer, return_exceptions=True)
            if admitted:
                self.up = False
                self._outbox.link_lost()
                self._log.warning("link_lost", code=socket.close_code, reason=socket.close_reason or "")
                self._call(self._on_down)
        return admitted

    def _certify(self, issued: control.IssuedCertificate) -> None:
        if self._identity is not None:
            self._call(self._identity.renew, issued)

    async def _take_leave(self, socket: ClientConnection) -> None:
        """Send what is left, and close properly; the library would report an error."""
        try:
            async with asyncio.timeout(self._timing.farewell):
                while self.state == "up" and (message := self._outbox.pop(time.monotonic())) is not None:
                    await socket.send(control.encode(message))
            await socket.close()
        except Exception as error:
            # Whatever it is, it must not keep the member from ending.
            self._log.warning("messages_unsent", messages=len(self._outbox), reason=str(error) or type(error).__name__)

    def _understood(self, text: str | bytes) -> control.ToMember | None:
        try:
            return self._decode(text)
        except control.VersionMismatch as error:
            raise _Refused("version", str(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            # An unknown message from a control plane of our version is its mistake; the rest still counts.
            self._log.error("bad_message", reason=str(error), size=len(text))
            return None

    def _raise_refusal(self, code: int | None, reason: str | None) -> None:
        if code in _REFUSALS:
            state, usual = _REFUSALS[code]
            again = "; if this goes on, two processes use one NEREUS_HOME, or copies of it" * (state == "replaced")
            raise _Refused(state, f"{reason or usual}{again}")

    def _admit(self, message: control.Joined) -> None:
        if message.credential is not None:
            self._credential.store(message.credential, message.member)
        self._certify(message.issued)
        self._use_join_token = False
        self.up = True
        self._set_state("up", "")
        self._log.info("link_up", url=self._url, member_id=message.member)

    async def _write(self, socket: ClientConnection) -> None:
        while True:
            message = self._outbox.pop(time.monotonic())
            if message is None:
                self._filled.clear()
                await self._filled.wait()
                continue
            try:
                await socket.send(control.encode(message))
            except ConnectionClosed:
                self._outbox.put_back(message, time.monotonic())
                return
            except asyncio.CancelledError:
                self._outbox.put_back(message, time.monotonic())
                raise
            except Exception:
                # One message that cannot be encoded must not silence all that follow.
                self._log.exception("send_failed", message=type(message).__name__)

    def _call(self, callback: Callable, *args) -> None:
        try:
            callback(*args)
        except Exception:
            self._log.exception("callback_failed", callback=getattr(callback, "__qualname__", repr(callback)))

    # --- tokens and pauses ------------------------------------------------------------------------------------------

    @property
    def _join_token(self) -> str:
        if self._given_join_token:
            return self._given_join_token
        try:
            return self._own_join_token.read_text().strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def _token(self) -> str | None:
        if self.credential is not None and not (self._use_join_token and self._join_token):
            return self.credential
        return self._join_token or None

    def _no_token(self) -> str:
        if self._credential.elsewhere:
            return (
                f"the credential on disk is for {self._credential.elsewhere}, and NEREUS_CONTROL_URL is "
                f"{self._control_url}: set NEREUS_JOIN_TOKEN to join there"
            )
        return (
            "NEREUS_JOIN_TOKEN is not set, and no credential is on disk: nereus join on the control plane's "
            "box makes a token"
        )

    def _try_other_token(self, refused: _Refused) -> bool:
        if refused.state != "unauthorized" or self.credential is None or not self._join_token:
            return False
        self._use_join_token = not self._use_join_token
        if self._use_join_token:
            self._log.warning("credential_refused", reason=str(refused), next="the join token")
        # From credential to join token at once; back again only after the pause.
        return self._use_join_token

    def _set_state(self, state: str, detail: str) -> None:
        self.state, self.detail = state, detail
        if self._status_file is not None:
            try:
                self._status_file.write_text(f"{state}\n{detail}")
            except OSError as error:
                self._log.warning("link_status_not_stored", path=str(self._status_file), reason=str(error))
