"""What a paper brings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from scheduler.allocation.problem import Allocation, Problem, Strategy
from workers.dispatch.published.policy import BatchPolicy
from workers.dispatch.published.routing import Router
from workers.dispatch.stack import Stack


class Trigger(Protocol):
    """Decides at which arrivals a new plan is due.

    For simulations of strategies that decide at each arrival. Live, where a decision is a solve in another process,
    gateways' burst reports and the planning period replace it: demand above the plan's band is reported within a
    fraction of a second.
    """

    def planned(self, problem: Problem, allocation: Allocation) -> None:
        pass

    def on_arrival(self, application: str, now: float) -> Mapping[str, float] | None:
        """Rates (items/s) to plan for at once, or None. ``now`` (seconds) never decreases."""


@dataclass(frozen=True)
class Expected:
    """What policies promise in the long run, as long as arrivals are those that they were made for.

    Attributes:
        accuracy: percent, of queries in time; 0 where none is.
        violation_rate: share (0 to 1) of queries that are late or dropped.
    """

    accuracy: float
    violation_rate: float


@dataclass(frozen=True)
class Paper:
    """A published system and what its paper compares it with.

    Attributes:
        strategies: by name.
        simulated: stacks that only simulations run.
        policies: batch policies of simulations alone, by name.
        routers: of simulations alone, by name; made from the scenario's seed.
        placed_once: strategies that place applications once, for good.
        triggers: of strategies that decide at each arrival.
    """

    strategies: Mapping[str, Strategy]
    simulated: tuple[Stack, ...] = ()
    policies: Mapping[str, Callable[[], BatchPolicy]] = field(default_factory=dict)
    routers: Mapping[str, Callable[[int], Router]] = field(default_factory=dict)
    placed_once: frozenset[str] = frozenset()
    triggers: Mapping[str, Callable[[], Trigger]] = field(default_factory=dict)
