"""The choice of a front's core: its own box's, or another box's.

Another one is chosen while the own core stands by: the core of the best rank among those that lead and can be reached.
A cluster has one that leads, except for moments in which it is divided
(docs/decisions/10-fronts-and-cores.md), or in which the next one takes over: queries wait meanwhile,
and after :data:`WAIT_S` the core before refuses them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from workers import log
from workers.protocol.control import GatewayConfig
from workers.protocol.frames import Hello
from workers.trust.endpoints import Endpoint
from workers.trust.member import PeerIdentity

from .core_link import CoreLink
from .front import Front
from .in_flight import InFlightQuery
from .rollout import Rollout

logger = log.get("gateway.cores")

#: seconds without a core that leads for which queries wait: longer than a lost core's lease and the next one's patience
WAIT_S = 3.0


class Cores:
    """The core that a front uses, among its own and those of other gateways.

    Args:
        own: this box's, whatever its rank.
        link: makes a link to another gateway's core.
    """

    def __init__(self, front: Front, name: str, own: Rollout | CoreLink, link: Callable[[Endpoint], CoreLink]) -> None:
        self._front, self._name, self._own, self._link = front, name, own, link
        self._others: dict[Endpoint, CoreLink] = {}
        #: by rank, the best first
        self._ranked: list[Rollout | CoreLink] = [own]
        #: never connected: holds the queries that come while no core leads
        self._nowhere = CoreLink(Endpoint("none:"), Hello("front", name), front)
        #: when a core led last, as far as this front knows
        self._led_at = time.monotonic()
        self.chosen: Rollout | CoreLink = own
        """the core that gets the queries from now on"""
        own.on_changed = self.choose
        front.core = own.core

    async def configure(self, config: GatewayConfig) -> None:
        ranks: dict[Rollout | CoreLink, float] = {self._own: math.inf}
        wanted: dict[Endpoint, CoreLink] = {}
        gone = dict(self._others)
        for peer in config.peers:
            if peer.role == "gateway" and peer.name == self._name:
                ranks[self._own] = peer.rank
            elif peer.role == "gateway" and peer.address:
                endpoint = Endpoint(f"tls:{peer.address}", PeerIdentity("gateway", peer.name, peer.key_hash))
                link = gone.pop(endpoint, None)
                if link is None:
                    link = self._link(endpoint)
                    link.on_changed = self.choose
                    link.start()
                wanted[endpoint] = link
                ranks[link] = peer.rank
        self._others = wanted
        self._ranked = sorted(ranks, key=ranks.__getitem__)
        if self.chosen not in ranks:
            self._use(self._own)
        self.choose()
        for link in gone.values():
            await link.close()
            self._move(link.hand_over(self._front))

    def choose(self) -> None:
        now = time.monotonic()
        best = next((core for core in self._ranked if core.leads), None)
        if best is not None or not self._others:
            self._led_at = now
            self._use(best or self.chosen)
        elif now < self._led_at + WAIT_S:
            self._front.core = self._nowhere
        else:
            self._use(self.chosen)
        for core in self._ranked:
            if core is not self.chosen:
                # Lost after the front had turned to another one, with queries that were still to be answered.
                self._move(core.hand_over(self._front))

    def tick(self, now: float) -> None:
        for core in (*self._ranked, self._nowhere):
            core.tick(now)
        self.choose()

    @property
    def alternatives(self) -> bool:
        return bool(self._others)

    @property
    def elsewhere(self) -> bool:
        """Whether another gateway's core leads and is used."""
        return self.chosen is not self._own and self.chosen.leads

    @property
    def flights(self) -> list[InFlightQuery]:
        flights = [flight for core in (*self._ranked, self._nowhere) for flight in core.core.flights]
        return [flight for flight in flights if flight.front is self._front]

    async def close(self) -> None:
        for core in self._ranked:
            await core.close()

    def _use(self, core: Rollout | CoreLink) -> None:
        if core is self.chosen and core.core is self._front.core:
            return
        before, self.chosen = self.chosen, core
        self._front.core = core.core
        moved = self._nowhere.hand_over(self._front)
        if before is not core:
            moved = before.hand_over(self._front) + moved
            name = "own" if core is self._own else core.name
            logger.info("core_chosen", core=name, queries=len(moved))
        self._move(moved)

    def _move(self, flights: Iterable[InFlightQuery]) -> None:
        core = self._front.core
        for flight in flights:
            if flight.answer is not None:
                flight.core = core
                core.submit(flight)
