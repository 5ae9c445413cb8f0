"""Which batch policy and which router belong to a strategy, where nobody names others."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.allocation import strategies
from workers.batching import policies
from workers.gateway import routing as routers

from .ablations import BINDINGS
from .tables import ScenarioError, hint


@dataclass(frozen=True)
class Stack:
    """Names of an allocation strategy, a batch policy and a router."""

    strategy: str
    batching: str
    routing: str


#: batching and routing of the published systems; a strategy that is not listed runs with what the live system runs
OWN = {
    "proteus": ("proteus", "shares"),
    "clipper-ht": ("clipper", "shares"),
    "clipper-ha": ("clipper", "shares"),
    "sommelier": ("proteus", "shares"),
    # INFaaS sends a query to the least loaded worker that runs the instance, and its batches wait for nobody.
    "infaas-accuracy": ("nexus", "least-completion"),
    "proteus-wo-ms": ("proteus", "shares"),
    "proteus-wo-mp": ("proteus", "shares"),
    # A fixed batch is as large as the plan allows, which is one row here.
    "proteus-wo-ab": ("fixed", "shares"),
    "proteus-wo-qa": ("proteus", "uniform"),
}
LIVE = ("nereus", routers.LATE_BINDING)
EARLY = "least-completion"


def routings() -> list[str]:
    """All that a simulation may route by: what can be had live, and late binding with parts taken away."""
    return list(dict.fromkeys([*routers.names(), *BINDINGS]))


def choose(strategy: str | None = None, batching: str | None = None, routing: str | None = None) -> Stack:
    """The stack with these names; what is None comes from the strategy, and the strategy from the live default.

    Raises:
        ScenarioError: a name that is not known.
    """
    known_strategies = strategies.names()
    if strategy is None:
        strategy = "nereus" if "nereus" in known_strategies else "proteus"
    own_batching, own_routing = OWN.get(strategy, LIVE)
    if own_routing == routers.LATE_BINDING and batching not in (None, own_batching):
        # Other policies form their batches in the devices' queues.
        own_routing = EARLY
    stack = Stack(
        strategy,
        own_batching if batching is None else batching,
        own_routing if routing is None else routing,
    )
    faults = [
        f"{field}: must be one of {', '.join(known)}, not {value!r}{hint(value, known)}"
        for field, value, known in (
            ("strategy", stack.strategy, known_strategies),
            ("batching", stack.batching, policies.names()),
            ("routing", stack.routing, routings()),
        )
        if value not in known
    ]
    if stack.routing in BINDINGS and stack.batching != "nereus":
        faults.append(f"batching: with routing {stack.routing} it must be nereus, which forms batches there")
    if faults:
        raise ScenarioError(faults)
    return stack
