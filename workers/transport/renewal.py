"""A member's part in the renewal of its certificate.

It decides when the member asks, and how it takes the answers.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from workers import log
from workers.certificates import CertificateError
from workers.protocol import control

from .identity import MemberIdentity

#: seconds between two looks at the certificate
LOOK_EVERY_S = 60.0
#: seconds between two requests of the member's own: where its clock is wrong, each certificate looks old at once
ASK_EVERY_S = 3600.0

logger = log.get("identity")


class Renewal:
    """Keeps an identity's certificate young over one link.

    Args:
        send: has a message sent while the link is up.
        now: the wall clock, which may jump.
        steady: seconds of a clock that does not.
    """

    def __init__(
        self,
        identity: MemberIdentity,
        send: Callable[[control.FromMember], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        steady: Callable[[], float] = time.monotonic,
    ):
        self._identity, self._send, self._now, self._steady = identity, send, now, steady
        self._asked = -math.inf

    def joining(self, message: control.Join) -> control.Join:
        """The first message of a connection, with a request: each join renews."""
        self._asked = self._steady()
        return msgspec.structs.replace(message, certificate_request=self._identity.request())

    def answered(self, issued: control.IssuedCertificate) -> None:
        """Take what was issued; where nothing can be, the present certificate stays."""
        if issued.refused:
            logger.error("certificate_refused", reason=issued.refused)
        elif issued.certificate:
            try:
                self._identity.store(issued.certificate, issued.authorities)
            except CertificateError as error:
                logger.error("certificate_unusable", reason=str(error))

    def ask(self) -> None:
        self._asked = self._steady()
        self._send(control.RenewCertificate(certificate_request=self._identity.request()))

    def look(self) -> None:
        """Ask where it is due, and was not just asked."""
        if self._identity.due(self._now()) and self._steady() - self._asked >= ASK_EVERY_S:
            self.ask()

    async def watch(self) -> None:
        """Look until cancelled; run it while the link is up."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()
