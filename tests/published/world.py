"""A world that carries out what the binding of published stacks decides, and checks it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from scheduler.simulation.stacks import POLICIES, ROUTERS
from workers.dispatch.binding import Decisions, QueryClass, ServiceTerms
from workers.dispatch.latency import LatencyModel
from workers.dispatch.options import OptionSet, ServingOption
from workers.dispatch.published.binding import PublishedBinding

SLO_S = 0.2


@dataclass(eq=False)
class Asked:
    """A query. ``ended``: how it did, once for each time that it began."""

    id: int
    arrived: float
    deadline: float
    rows: int
    key: Hashable
    query_class: QueryClass
    reservation: object = None
    ended: list[str] = field(default_factory=list)
    begun: int = 1
    withdrawn: bool = False


def option(variant: str, base_ms: float, accuracy: float, **changes) -> ServingOption:
    """An option for up to 4 rows: half as long again for each row more."""
    points = [(rows, base_ms * (1 + 0.5 * (rows - 1)) / 1e3) for rows in (1, 2, 3, 4)]
    return ServingOption(variant, accuracy, LatencyModel(points), 4, **changes)


def menus(*options: ServingOption, application: str = "a") -> dict[QueryClass, OptionSet]:
    return {QueryClass(application): OptionSet(options)}


class World:
    """A binding with devices that run what they get, one batch after the other.

    Args:
        pace: by device, how many times its expected time a run takes.
    """

    def __init__(
        self,
        policy: str = "nexus",
        router: str = "shares",
        rtt_s: float = 0.0,
        applications: Mapping[str, ServiceTerms] | None = None,
        pace: Mapping[str, float] | None = None,
    ):
        self.binding = PublishedBinding(ROUTERS[router](1), POLICIES[policy], slack_s=0.0)
        self.applications = dict(applications or {"a": ServiceTerms(SLO_S)})
        self.rtt_s = rtt_s
        self.pace = pace or {}
        self.now = 0.0
        self.wake_at = math.inf
        self.queries: list[Asked] = []
        self.log: list[tuple] = []
        self.up: dict[str, bool] = {}
        self.offers: dict[str, Mapping[QueryClass, OptionSet]] = {}
        self.under_way: dict[str, list] = {}
        self._free_at: dict[str, float] = {}
        self._heap: list[tuple] = []
        self.configure(self.applications)

    # --- what happens ------------------------------------------------------------------------------------------------

    def device(self, name: str, offer: Mapping[QueryClass, OptionSet]) -> None:
        self.binding.rtt_changed(name, self.rtt_s)
        self.under_way.setdefault(name, [])
        self._free_at.setdefault(name, 0.0)
        self.offer(name, offer)
        self.change(name, up=True)

    def configure(self, applications: Mapping[str, ServiceTerms]) -> None:
        self.act(self.binding.configured(applications, self.now))

    def offer(self, name: str, offer: Mapping[QueryClass, OptionSet]) -> None:
        self.offers[name] = offer
        self.act(self.binding.offered({name: offer}, self.now))

    def change(self, name: str, up: bool | None = None, busy_until: float | None = None) -> None:
        if up is not None:
            self.up[name] = up
        self.act(self.binding.device_changed(name, self.now, up, busy_until))

    def ask(self, application: str = "a", slo_s: float = SLO_S, rows: int = 1, key: Hashable = None, **named) -> Asked:
        query = Asked(len(self.queries), self.now, self.now + slo_s, rows, key, QueryClass(application, **named))
        self.queries.append(query)
        self.act(self.binding.arrived([query], self.now))
        return query

    def withdraw(self, query: Asked) -> None:
        if len(query.ended) < query.begun and not query.withdrawn:
            query.withdrawn = True
            self.act(self.binding.withdrawn(query, self.now))

    def lose(self, name: str, again: bool = True) -> None:
        """A device goes with all that it was sent; its queries are tried again, or not."""
        self.up[name] = False
        gone, self.under_way[name] = self.under_way[name], []
        self._heap = [event for event in self._heap if event[2] not in gone]
        self.act(self.binding.lost(name, self.now))
        if again:
            self.bring_back([query for batch in gone for query in batch.queries])

    def decline(self, name: str) -> None:
        batch = self.under_way[name].pop()
        self._heap = [event for event in self._heap if event[2] is not batch]
        self.act(self.binding.finished(batch, self.now))
        self.bring_back(batch.queries)

    def bring_back(self, queries: list[Asked]) -> None:
        for query in queries:
            query.begun += 1
        self.act(self.binding.returned(queries, self.now))

    # --- time --------------------------------------------------------------------------------------------------------

    def run(self, until: float = math.inf) -> None:
        """Let time pass, to the end if there is one."""
        self._heap.sort()
        while True:
            due = min(self.wake_at, self._heap[0][0] if self._heap else math.inf)
            if due > until or due == math.inf:
                break
            self.now = max(self.now, due)
            if self._heap and self._heap[0][0] <= self.wake_at:
                _, _, batch, run_s = heappop(self._heap)
                self.under_way[batch.device_name].remove(batch)
                self.act(self.binding.finished(batch, self.now, run_s))
            else:
                self.act(self.binding.wake(self.now))
                assert self.wake_at > self.now, "neither dispatches nor waits"
        if until < math.inf:
            self.now = until

    def act(self, decisions: Decisions) -> None:
        self.wake_at = decisions.wake_at
        for query in decisions.refusals:
            self.log.append((self.now, "refused", query.id))
            self._end(query, "refused")
        for batch in decisions.dispatches:
            self._dispatched(batch)

    def _dispatched(self, batch) -> None:
        name, variant = batch.device_name, batch.option.variant
        self.log.append((self.now, name, variant, [query.id for query in batch.queries]))
        assert self.up[name], "dispatched to a device that is down"
        assert batch.rows == sum(query.rows for query in batch.queries)
        assert len({(query.query_class.size, query.key) for query in batch.queries}) == 1
        assert len(self.under_way[name]) < (2 if self.rtt_s else 1)
        for query in batch.queries:
            application, size, permitted = query.query_class
            assert application == batch.application_name
            offer = self.offers[name].get(QueryClass(application, size)) or self.offers[name][QueryClass(application)]
            assert batch.option in offer.all_options
            assert permitted is None or variant in permitted
            if not self.applications[application].serve_late:
                alone = batch.option.latency.seconds(query.rows)
                assert self.now + self.rtt_s + alone <= query.deadline + 1e-9, "bound to be late"
            self._end(query, "dispatched")
        if len(batch.queries) > 1:
            assert batch.rows <= batch.option.max_rows
        run_s = batch.option.latency.seconds(batch.rows) * self.pace.get(name, 1.0)
        begin = max(self._free_at[name], self.now + self.rtt_s / 2)
        self._free_at[name] = begin + run_s
        self.under_way[name].append(batch)
        heappush(self._heap, (begin + run_s + self.rtt_s / 2, len(self.log), batch, run_s))

    def _end(self, query: Asked, how: str) -> None:
        query.ended.append(how)
        assert len(query.ended) <= query.begun, f"query {query.id} ended twice"
        assert not query.withdrawn, f"query {query.id} was withdrawn"

    def check_all_ended(self) -> None:
        """Once nothing happens any more."""
        for query in self.queries:
            assert len(query.ended) == query.begun - query.withdrawn, (
                f"query {query.id} of {query.begun}: {query.ended}"
            )
