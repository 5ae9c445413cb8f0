"""Transient failures: a message that cannot be handled now is dropped, its connection kept."""

from __future__ import annotations

import time
from collections.abc import Awaitable

from django.core.exceptions import ObjectDoesNotExist
from django.db import DatabaseError
from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import RedisError

from scheduler import troubles
from workers import log

logger = log.get("members")

#: what keeps a message from being dealt with now; the next one may fare better
PASSING = (RedisError, BrokerError, DatabaseError, ObjectDoesNotExist, OSError, OverflowError, ValueError)
#: those of them that others will meet, too
TROUBLE = (RedisError, BrokerError, DatabaseError)
#: how often a connection logs that messages are lost
LOG_EVERY_S = 10.0


def noted(error: Exception) -> None:
    """Have console and health show what others will meet, too."""
    if isinstance(error, TROUBLE):
        troubles.occurred(error)


class Losses:
    """Losses of one connection so far, logged now and then."""

    def __init__(self) -> None:
        self._lost, self._logged = 0, float("-inf")

    async def attempt(self, doing: Awaitable[None], what: str, member: str) -> bool:
        """Do what may fail now without harm; returns whether it succeeded."""
        try:
            await doing
        except PASSING as error:
            noted(error)
            self.log(what, member, f"{type(error).__name__}: {error}")
            return False
        return True

    def log(self, what: str, member: str, why: str) -> None:
        self._lost += 1
        now = time.monotonic()
        if now - self._logged >= LOG_EVERY_S:
            self._logged = now
            logger.error("message_lost", type=what, member=member, error=why, lost=self._lost)
