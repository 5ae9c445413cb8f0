"""One application under the plan in force: what it gets, and why not more."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.models import Plan

from .sides import PlanSide, side
from .words import listed, rate

#: variants that the sentence names
MOST_NAMED = 4


@dataclass(frozen=True)
class ApplicationTrail:
    """An application under a plan.

    Attributes:
        version: the plan.
        sentence: what serves the application, and how accurately.
        reasons: why not more, each with a remedy where there is one; empty: nothing is missing.
    """

    version: int
    sentence: str
    reasons: list[str]


def application_trail(application: str) -> ApplicationTrail | None:
    """An application under the plan in force; None: no plan, or without its inputs."""
    plan = Plan.objects.defer("problem", "wire").first()
    if plan is None or not plan.inputs:
        return None
    now = side(plan.stack, plan.inputs, plan.allocation)
    about = f"{application}: "
    reasons = [line.removeprefix(about) for line in plan.reasons if line.startswith(about)]
    return ApplicationTrail(plan.pk, _sentence(now, application), [line[:1].upper() + line[1:] for line in reasons])


def _sentence(now: PlanSide, application: str) -> str:
    if application not in now.demand:
        return "It is not planned for: that takes a variant that was profiled on a device type here. Upload one."
    demand, accuracy = now.demand[application], now.accuracy.get(application)
    if accuracy is None:
        return f"None of {rate(demand)} is served."
    shares = sorted(now.shares().items(), key=lambda pair: -pair[1])
    mine = [(id_, part) for id_, part in shares if now.owners.get(id_) == application]
    names = [f"{now.labels[id_].partition('/')[2]} ({part:.0%})" for id_, part in mine]
    served = demand - now.left_out.get(application, 0.0)
    of = f"all of {rate(demand)}" if application not in now.left_out else f"{served:,.1f} of {rate(demand)}"
    return f"Planned for {of}, answered by {listed(names, MOST_NAMED)} with {accuracy:.1f}% of the best accuracy."
