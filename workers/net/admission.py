"""Admission of connections: limits, the one to evict, and budgets of refusals."""

from __future__ import annotations

import asyncio
import heapq
import ipaddress
import time
from collections import Counter
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TypeVar

from .limits import RefusalLimits

#: part of a limit that is freed at once: finding the longest idle connections takes a look at all
FREED_PART = 16


Kept = TypeVar("Kept")


class Connections(set[Kept]):
    """The open connections of a server, within limits.

    Each connection has an ``address``, its :func:`peer_address`; a ``holder``, the API key of its latest admitted
    request or else the address, under which connections count together; ``touched``, ``time.monotonic()`` of its
    latest progress; ``idle``, whether no request has arrived or is being answered; and ``evict_idle()``, which closes.

    Args:
        most: of all.
        most_of_address: of one peer address other than loopback, behind which there may be a proxy.
    """

    def __init__(self, most: int, most_of_address: int):
        super().__init__()
        self._most = most
        self._most_of_address = most_of_address
        self._by_address: Counter[str] = Counter()

    def open(self, connection: Kept) -> str | None:
        """Take a new connection in, and close the longest idle ones beyond a limit.

        Returns:
            Why the connection must be refused: all others are at work; None: it fits.
        """
        self.add(connection)
        address = connection.address
        self._by_address[address] += 1
        if address and self._by_address[address] > self._most_of_address:
            others = [one for one in self if one.address == address]
            if not _evict(others, connection, self._most_of_address):
                return f"connections of one address: at most {self._most_of_address} at a time"
        if len(self) > self._most and not _evict(self, connection, self._most):
            return f"connections: at most {self._most} at a time"
        return None

    def close(self, connection: Kept) -> None:
        if connection not in self:
            return
        self.discard(connection)
        self._by_address[connection.address] -= 1
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]


def _evict(connections: Iterable[Kept], new: Kept, most: int) -> bool:
    """Close the longest idle connections but the new one; False: there is none."""
    idle = [one for one in connections if one is not new and one.idle]
    for one in heapq.nsmallest(max(1, most // FREED_PART), idle, key=attrgetter("touched")):
        one.evict_idle()
    return bool(idle)


def most_holding(
    connections: Iterable[Kept], held: Callable[[Kept], int], asking: Kept | None = None, more: int = 0
) -> Kept:
    """Return the connection to give up where all together hold too much.

    It is the one that holds most, of the holder whose connections hold most together.

    Args:
        held: what a connection holds.
        asking: needs ``more``, and is given up itself where it would hold as much as the largest.
    """

    def size(one: Kept) -> tuple[int, bool]:
        return held(one) + (more if one is asking else 0), one is asking

    sums: Counter[str] = Counter()
    for one in connections:
        sums[one.holder] += size(one)[0]
    own_holder = asking.holder if asking is not None else ""
    holder = max(sums, key=lambda name: (sums[name], name == own_holder))
    return max((one for one in connections if one.holder == holder), key=size)


def peer_address(transport: asyncio.BaseTransport) -> str:
    """Return the address whose connections are limited together.

    It is empty for loopback and where there is no internet address. An IPv6 address counts as its /64.
    """
    peer = transport.get_extra_info("peername")
    if not isinstance(peer, tuple):
        return ""
    try:
        address = ipaddress.ip_address(peer[0].partition("%")[0])
    except ValueError:
        return ""
    if address.version == 6:
        if address.ipv4_mapped is None:
            # A host has its /64 to itself (RFC 4291), and may use any address of it.
            return "" if address.is_loopback else str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
        address = address.ipv4_mapped
    return "" if address.is_loopback else str(address)


class RefusalBudget:
    """Tokens for refusals: ``burst`` at first and at most, then ``per_s`` each second."""

    __slots__ = ("_earned", "_limits", "_since", "_tokens")

    def __init__(self, limits: RefusalLimits):
        self._limits = limits
        self._tokens = float(limits.burst)
        self._since = time.monotonic()
        self._earned = 0

    def spend(self, now: float, earned: int) -> bool:
        """Take a token, and return False where there is none.

        Args:
            now: ``time.monotonic()``.
            earned: further tokens since the connection was opened.
        """
        limits = self._limits
        gained = (now - self._since) * limits.per_s + earned - self._earned
        self._since, self._earned = now, earned
        self._tokens = min(limits.burst, self._tokens + gained) - 1.0
        return self._tokens >= 0.0
