"""A discrete-event simulator of the live system, under a virtual clock.

It runs the objects that serve live (strategies, batch policies and routers), on devices that take the times of their
profiles. Entry point: :func:`simulate`. ``engine`` drives a run; ``late`` and ``published`` are its two kinds. May
import ``workers.dispatch``, ``scheduler.allocation`` and the pure parts of ``scheduler.control``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from workers.dispatch.stack import LATE, Stack

from . import stacks
from .ablations import without
from .controller import SimulationError
from .late import LateEngine
from .published import PublishedEngine
from .results import SimulationResults
from .scenario import Scenario, load
from .tables import ScenarioError

__all__ = ["Scenario", "ScenarioError", "SimulationError", "SimulationResults", "load", "simulate"]


def simulate(
    scenario: Scenario | Path | str,
    stack: Stack | str | None = None,
    batching: str | None = None,
    part: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> SimulationResults:
    """Run a scenario (or the file of one).

    Args:
        stack: or its name; None: the scenario's, with the scenario's batching, else the live default.
        batching: a batch policy instead of the stack's.
        part: of late binding or the plan search that is taken away (:mod:`.ablations`).
        progress: called now and then with the share of the queries that has arrived.

    Raises:
        ScenarioError: the scenario or a name cannot be used.
        SimulationError: a strategy or a policy broke its contract.
    """
    if not isinstance(scenario, Scenario):
        scenario = load(scenario)
    if stack is None:
        stack = scenario.stack
        batching = scenario.batching if batching is None else batching
    chosen = stack if isinstance(stack, Stack) else stacks.choose(stack, batching)
    engine = LateEngine if chosen.binding == LATE else PublishedEngine
    with without(part):
        return SimulationResults(scenario, chosen, engine(scenario, chosen, progress).run())
