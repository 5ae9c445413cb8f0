"""A discrete-event simulator that runs the live system's strategies, batch policies and routers under a virtual clock.

The decisions are not written again here: what is simulated are the objects that serve live, with devices that take the
time that their profiles say.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from . import stacks
from .ablations import BINDINGS
from .controller import SimulationError
from .early import EarlyEngine
from .late import LateEngine
from .results import Results
from .scenario import Scenario, load
from .tables import ScenarioError

__all__ = ["Results", "Scenario", "ScenarioError", "SimulationError", "load", "simulate"]


def simulate(
    scenario: Scenario | Path | str,
    strategy: str | None = None,
    batching: str | None = None,
    routing: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> Results:
    """Run a scenario (or the file of one). What is not named comes from the scenario; else batching and routing come
    from the strategy, and the strategy is the live default. A named strategy implies its own batching and routing.

    Args:
        progress: told now and then which share of the queries has arrived.

    Raises:
        ScenarioError: the scenario or a name cannot be used.
        SimulationError: a strategy or a policy broke its contract.
    """
    if not isinstance(scenario, Scenario):
        scenario = load(scenario)
    if strategy is None:
        strategy = scenario.strategy
        batching = scenario.batching if batching is None else batching
        routing = scenario.routing if routing is None else routing
    stack = stacks.choose(strategy, batching, routing)
    engine = LateEngine if stack.routing in BINDINGS else EarlyEngine
    return Results(scenario, stack, engine(scenario, stack, progress).run())
