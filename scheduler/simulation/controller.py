"""A simulation's controller: from what has arrived to the next plan, by the live functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from scheduler.allocation.blocking import blocking
from scheduler.allocation.problem import Allocation, ApplicationDemand, DeviceResources, Problem
from scheduler.allocation.verification import UnusableProblem, violations
from scheduler.control.demand import FLOOR, HISTORY_S, QUANTILE, Estimates, bands, estimates
from scheduler.stacks import strategies
from scheduler.stacks.registry import PLACED_ONCE, TRIGGERS
from workers.gateway.bursts import BurstDetector

from .largest_second import MINUTE, PAST_S, forecast
from .scenario import Scenario


class SimulationError(Exception):
    """A strategy, policy or router broke its contract; the message says which and how."""


@dataclass(frozen=True)
class Planned:
    """A plan, and by device the variants that may not run under it."""

    at: float
    problem: Problem
    allocation: Allocation
    blocked: Mapping[str, frozenset[str]]


class Controller:
    """Estimates demand, plans, and watches for bursts.

    It sees arrivals as they happen, never later ones. Before the first second is over it takes ``initial_qps`` for each
    application's demand, and the whole trace's mean rates for strategies that place their variants once; the estimate
    starts from there. A run with a :class:`~.scenario.Start` has its plan and its history first.
    """

    def __init__(self, scenario: Scenario, strategy: str):
        self._scenario = scenario
        self._name = strategy
        self._strategy = strategies.get(strategy)
        self._variants = tuple(model.planned(scenario.load_s(model)) for model in scenario.models)
        self._bursts = BurstDetector()
        self._trigger = TRIGGERS[strategy]() if strategy in TRIGGERS else None
        #: for strategies that decide per arrival: called with (application, now) for each query that arrives, before
        #: it is routed; returns rates to plan for at once, or None. None: the strategy does not.
        self.on_arrival = None if self._trigger is None else self._trigger.on_arrival
        self.plans: list[Planned] = []
        self.arrived = self._bursts.arrived
        initial = max(scenario.control.initial_qps, FLOOR)
        self._history = [(-1, dict.fromkeys(scenario.applications, initial))]
        if strategy in PLACED_ONCE:
            # As Proteus' authors place them: for the mix of the experiment, known beforehand.
            self._history = [(-1, scenario.arrivals.mean_rates())]
        self._quantile = QUANTILE if scenario.start is None else scenario.start.quantile
        #: seconds of arrivals that forecasts look at
        self._history_s = HISTORY_S if scenario.control.forecaster != MINUTE else PAST_S
        if scenario.start is not None:
            self._history = list(scenario.start.history)

    def second_over(self, second: int, counts: Mapping[str, float]) -> None:
        """Arrivals of a second that is over; seconds in order, none left out."""
        self._history.append((second, counts))
        del self._history[: max(0, len(self._history) - self._history_s - 1)]

    def plan(
        self, now: float, loaded: Mapping[str, Iterable[str]], observed: Mapping[str, float] | None = None
    ) -> Planned:
        """The plan as of ``now``; ``observed``: rates by a burst's reports.

        Raises:
            SimulationError: the problem cannot be used, or the strategy's answer breaks a rule.
        """
        start = self._scenario.start
        if start is not None and not self.plans:
            return self._planned(now, start.problem, start.allocation)
        problem = self._problem(now, loaded, observed)
        try:
            allocation = self._strategy(problem)
        except UnusableProblem as error:
            raise SimulationError(f"the problem at {now:g} s cannot be planned for: {error}") from None
        broken = violations(problem, allocation)
        if broken:
            raise SimulationError(f"strategy {self._name} at {now:g} s: {'; '.join(broken[:5])}")
        return self._planned(now, problem, allocation)

    def _problem(
        self, now: float, loaded: Mapping[str, Iterable[str]], observed: Mapping[str, float] | None
    ) -> Problem:
        scenario, begun = self._scenario, self._scenario.start
        demand, expected = self._demand(int(now), observed)
        previous = self.plans[-1].allocation if self.plans else None
        if begun is not None:
            start = begun.problem
            return replace(
                start,
                devices=tuple(replace(device, loaded=frozenset(loaded[device.id])) for device in start.devices),
                applications=tuple(
                    replace(a, demand=demand[a.id], expected=expected[a.id]) for a in start.applications
                ),
                previous=previous,
                at_s=now,
            )
        return Problem(
            devices=tuple(
                DeviceResources(
                    name,
                    kind,
                    loaded=frozenset(loaded[name]),
                    max_resident=scenario.max_resident.get(kind),
                    cost=scenario.cost.get(kind, 1.0),
                )
                for name, kind in scenario.devices
            ),
            applications=tuple(
                ApplicationDemand(name, scenario.slo_s[name], demand[name], expected=expected[name])
                for name in scenario.applications
            ),
            variants=self._variants,
            time_limit_s=scenario.control.solve_s,
            previous=previous,
            at_s=now,
            costs=scenario.costs,
        )

    def _planned(self, now: float, problem: Problem, allocation: Allocation) -> Planned:
        planned = Planned(now, problem, allocation, blocking(problem, allocation))
        self.plans.append(planned)
        if self._trigger is not None:
            self._trigger.planned(problem, allocation)
        self._bursts.set_plan(
            bands({application.id: application.demand for application in problem.applications}), len(self.plans), now
        )
        return planned

    def _demand(self, now: int, observed: Mapping[str, float] | None) -> Estimates:
        control = self._scenario.control
        minute = partial(forecast, quantile=self._quantile) if control.forecaster == MINUTE else None
        return estimates(
            self._history,
            self._scenario.applications,
            now,
            observed,
            control.period_s,
            self._quantile,
            minute,
            self._history_s,
        )

    def burst(self, now: float) -> dict[str, float]:
        """Rates (items/s) of applications whose demand has left the plan's band."""
        return {burst.application: burst.rate for burst in self._bursts.check(now)}
