"""Plans, and demand that they cannot serve."""

from __future__ import annotations

import math
from collections.abc import Iterator

from django.conf import settings

from registry.models import Application, Variant
from scheduler import plans, words
from scheduler.control import requests
from scheduler.models import KnownRepair
from scheduler.repairs.capacity import fastest
from scheduler.repairs.facts import LONG_S, MINUTE_S, SHORT_S, Facts, RecentQueries
from scheduler.repairs.repair import Action, Repair, Severity

#: seconds after which refused demand is no burst any more
OVERLOAD_S = 60.0
#: share of an application's queries, and their number, from which late or refused ones need a person; and the share
#: below which they no longer do, so that bursts do not raise it again and again
RAISED_SHARE, RAISED_LEAST, OVER_SHARE = 0.05, 10, 0.01

_PLAN_NOW = {"label": "Plan now", "address": "plan-current"}


def silent_s() -> float:
    """Seconds without an attempt to plan after which planning is dead."""
    return max(60.0, 3 * settings.NEREUS.plan_period_s) + 4 * settings.NEREUS.solve_s


def failing(facts: Facts) -> Iterator[Repair]:
    _ = facts.recent  # tells whether Redis answers
    if not facts.redis:
        return  # no attempt can be asked for, and Redis is a repair of its own
    latest, limit = requests.plan_row(), silent_s()
    if latest.age_s > limit:
        known = math.isfinite(latest.age_s)
        yield Repair(
            key="planning:silent",
            severity=Severity.ERROR,
            title="No plans are made",
            effect=f"{_in_force(facts)}; changes of demand and devices have no effect.",
            action=Action(
                "Look for service_failed of planning and celery in logs/nereus.log, and restart the appliance if that "
                "does not show a cause."
            ),
            since=facts.plan.created if facts.plan is not None else None,
            lasting_s=0.0 if known else limit,
        )
    elif latest.error:
        yield Repair(
            key="planning:failing",
            severity=Severity.ERROR,
            title="Plans cannot be made",
            effect=f"{_in_force(facts)}. The error: {latest.error}",
            action=Action("Ask for a plan again; the log has the details (trigger, traceback).", **_PLAN_NOW),
            since=latest.failing_since,
            lasting_s=2 * settings.NEREUS.plan_period_s,
        )


def _in_force(facts: Facts) -> str:
    return f"Devices keep serving with plan {facts.plan.pk}" if facts.plan is not None else "No plan is in force"


def refused(facts: Facts) -> Iterator[Repair]:
    why = facts.plan.refused if facts.plan is not None else ""
    if why:
        yield Repair(
            key="planning:refused",
            severity=Severity.WARNING,
            title=f"Allocations of the stack {facts.plan.stack} are refused",
            effect=f"Plan {facts.plan.pk} stands in, with an accuracy of {facts.plan.accuracy:.1f}%. Refused: {why}",
            action=Action("Report the plan's page to the developers, or choose another stack on the page Plans."),
            lasting_s=OVERLOAD_S,
        )


def demand(facts: Facts) -> Iterator[Repair]:
    missing = plans.left_out(facts.plan) if facts.plan is not None else {}
    raised = set(KnownRepair.objects.filter(raised=True).values_list("key", flat=True))
    for application in facts.applications:
        name = application.name
        key, left_out = f"demand:{name}", missing.get(name, 0.0)
        recent = facts.recent.get(name, RecentQueries())
        if not left_out and not _many(facts, name, key in raised):
            continue
        late = not left_out and recent.refused < recent.late
        yield Repair(
            key=key,
            severity=Severity.ERROR,
            title=f"{name}: too many answers are late" if late else f"{name}: more demand than the devices can serve",
            effect=" ".join(_effects(facts, name, recent, left_out)),
            action=Action(
                "Add a device or a faster variant, allow a longer SLO, or limit API keys; weight and floor decide who "
                "is refused first."
            ),
            lasting_s=OVERLOAD_S,
            application=name,
        )


def _many(facts: Facts, name: str, raised: bool) -> bool:
    """Whether too many queries are late or refused, or still are since it was raised.

    Both windows must say so: the short one that it goes on, the long one that it is no burst.
    """
    recent = facts.recent.get(name, RecentQueries())
    short, long = (window.get(name, recent) for window in (facts.short, facts.long))
    if raised:
        return max(recent.share, short.share) >= OVER_SHARE
    return recent.violations + short.violations >= RAISED_LEAST and min(short.share, long.share) >= RAISED_SHARE


def _effects(facts: Facts, name: str, recent: RecentQueries, left_out: float) -> Iterator[str]:
    if recent.refused:
        yield (
            f"{words.rate(recent.refused / MINUTE_S)} of {words.rate(recent.arrived / MINUTE_S)} queries/s "
            f"({words.percent(min(1.0, recent.refused / max(1, recent.arrived)))}) were refused in the last minute."
        )
    for window, seconds in ((facts.short, SHORT_S), (facts.long, LONG_S)):
        if (seen := window.get(name, RecentQueries())).violations:
            yield (
                f"In the last {seconds // MINUTE_S} minutes {words.percent(seen.share)} of its queries were late, "
                f"refused or failed ({seen.late}, {seen.refused} and {seen.failed})."
            )
    if left_out:
        served = facts.plan.allocation.get("served", {}).get(name, 0.0)
        yield (
            f"The plan leaves out {words.rate(left_out)} of {words.rate(left_out + served)} items/s even at the "
            "lowest accuracy."
        )


def applications(facts: Facts) -> Iterator[Repair]:
    for application in facts.applications:
        mine = [variant for variant in facts.variants if variant.application_id == application.pk]
        if not mine:
            yield Repair(
                key=f"application:{application.name}",
                severity=Severity.WARNING,
                title=f"{application.name} has no variant",
                effect="All of its queries are refused.",
                action=Action("Upload an ONNX model on its page, or delete the application."),
                since=application.created,
                application=application.name,
            )
        elif facts.devices:
            yield from _too_slow(facts, application, mine)


def _too_slow(facts: Facts, application: Application, mine: list[Variant]) -> Iterator[Repair]:
    wanted = next((each for each in facts.problem.applications if each.id == application.name), None)
    if wanted is None or any(fastest(facts.problem, wanted, device) > 0 for device in facts.problem.devices):
        return
    seen = facts.recent.get(application.name, RecentQueries())
    measured = [variant for variant in facts.problem.variants if variant.application == application.name]
    slo, none = f"{application.slo_ms:g} ms", f"0 of {words.several(len(mine), 'variant')}"
    yield Repair(
        key=f"slo:{application.name}",
        severity=Severity.ERROR,
        title=f"{application.name}: no variant meets the SLO of {slo}",
        effect=f"{none} can answer within half of {slo}{_quickest(facts, measured)}. "
        f"{words.rate(seen.arrived / MINUTE_S)} queries/s arrive.",
        action=Action("Upload a faster variant, allow one that is excluded, or raise the SLO on its page."),
        application=application.name,
    )


def _quickest(facts: Facts, measured: list) -> str:
    latencies = [
        (profile.longest[0][1], variant.name)
        for variant in measured
        for profile in variant.profiles.values()
        if profile.longest
    ]
    if not latencies:
        return ""
    latency_s, name = min(latencies)
    return f", which is what a plan counts on; the quickest, {name}, takes {latency_s * 1000:.3g} ms"
