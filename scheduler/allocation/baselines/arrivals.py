"""Triggers of strategies that decide at each arrival, not once a period. Pure.

The simulator calls them at each arrival. Live, where a decision is a solve in another process, gateways' burst reports
and the planning period replace them: demand above the plan's band is reported within a fraction of a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from workers.dispatch.instance_states import SLACK

from ..problem import Allocation, Problem
from .dedicated import DedicatedChoices

#: window of arrivals that the load is measured over, and least time between two decisions on the same load, seconds:
#: INFaaS' Model-Autoscaler runs once a second
WINDOW_S = 1.0


class Trigger(Protocol):
    """Decides at which arrivals a new plan is due."""

    def planned(self, problem: Problem, allocation: Allocation) -> None:
        """A plan is in force, made for this problem."""

    def on_arrival(self, application: str, now: float) -> Mapping[str, float] | None:
        """Note the arrival of a query, and decide whether a new plan is due.

        Args:
            application: of the query.
            now: time of the arrival, seconds, never decreasing.

        Returns:
            Rates (items/s, by application) to plan for at once, or None.
        """


class HeadroomTrigger:
    """INFaaS' rule: scale when the instances have too little headroom over the load.

    That is when the running instances' saturation throughput is below load * :data:`SLACK`. The load is what arrived
    within the last :data:`WINDOW_S`. Where planning could not raise the throughput (the cluster is full), the same load
    triggers again only after a window; a load that is higher by the slack does at once.
    """

    def __init__(self) -> None:
        self._capacity: dict[str, float] = {}
        self._arrived: dict[str, deque[float]] = {}
        self._asked: dict[str, tuple[float, float]] = {}

    def planned(self, problem: Problem, allocation: Allocation) -> None:
        choices = DedicatedChoices(problem)
        self._capacity = dict.fromkeys((a.id for a in problem.applications), 0.0)
        for resident in choices.residents(allocation.placements).values():
            self._capacity[resident.variant.application] += resident.capacity

    def on_arrival(self, application: str, now: float) -> dict[str, float] | None:
        times = self._arrived.get(application)
        if times is None:
            times = self._arrived[application] = deque()
        times.append(now)
        while times[0] <= now - WINDOW_S:
            times.popleft()
        load = len(times) / WINDOW_S
        if load * SLACK <= self._capacity.get(application, 0.0):
            return None
        at, asked = self._asked.get(application, (-WINDOW_S, 0.0))
        if now - at < WINDOW_S and load <= asked * SLACK:
            return None
        self._asked[application] = now, load
        return {application: load}


TRIGGERS: Mapping[str, Callable[[], Trigger]] = dict.fromkeys(
    ("infaas-accuracy", "infaas-ilp", "infaas-greedy", "sm+"), HeadroomTrigger
)


def trigger_of(strategy: str) -> Trigger | None:
    """Return a fresh trigger for a strategy that decides per arrival.

    Returns:
        None where the strategy plans by period and burst alone.
    """
    make = TRIGGERS.get(strategy)
    return None if make is None else make()
