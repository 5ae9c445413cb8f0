"""Plans: decisions, their inputs and their reasons."""

from __future__ import annotations

from django.conf import settings
from django.http import Http404
from django.shortcuts import redirect, render

from console.plans import by_application, by_device, measured, runs
from console.views.access import error_page, page
from scheduler import retention, trail
from scheduler.control import choices
from scheduler.models import Plan
from scheduler.plans import left_out, left_out_by
from workers.dispatch import stacks

PAGE = 50
#: plans that a page of the history looks at: a long burst is one row
LOOKED_AT = 400


@page
def index(request):
    """The history of plans: ``?before=VERSION`` goes on, ``?all=1`` shows every plan."""
    plans = Plan.objects.defer("problem", "inputs", "allocation", "wire", "reasons")
    before = request.GET.get("before", "")
    if before:
        if not before.isascii() or not before.isdigit() or len(before) > 18:
            raise Http404("before must be a plan's version")
        plans = plans.filter(pk__lt=int(before))
    each = request.GET.get("all") == "1"
    looked_at = PAGE if each else LOOKED_AT
    found = list(plans[: looked_at + 1])
    grouped = [[plan] for plan in found[:looked_at]] if each else runs(found[:looked_at])
    shown = grouped[:PAGE]
    last = shown[-1][-1].pk if shown else None
    missing = left_out_by(run[0].pk for run in shown)
    return render(
        request,
        "console/plans.html",
        {
            "rows": [_row(run, sum(missing.get(run[0].pk, {}).values())) for run in shown],
            "older": last if found and last != found[-1].pk else None,
            "first_page": not before,
            "each": each,
            "control": _control(),
        },
    )


def _row(run: list[Plan], missing: float) -> dict[str, object]:
    """The newest plan of a run, and the others in brief."""
    return {
        "plan": run[0],
        "left_out": missing,
        "count": len(run),
        "first": run[-1],
        # A plan that changed nothing waits for the loads of the one before.
        "moves": sum(plan.moves for plan in run if plan.changed),
        "quiet": len(run) > 1 and not any(plan.changed for plan in run),
    }


def _control() -> dict[str, object]:
    return {
        "current": choices.current(),
        "default": stacks.STACKS[choices.default()],
        "chosen": choices.chosen(),
        "stacks": [stacks.STACKS[name] for name in stacks.LIVE],
    }


@page
def detail(request, version: int):
    if version >= 2**63:
        raise Http404("no such plan")
    plan = Plan.objects.filter(pk=version).first()
    if plan is None:
        return gone(request, version)
    newest = Plan.objects.values_list("pk", flat=True).first()
    before = trail.before(plan)
    return render(
        request,
        "console/plan.html",
        {
            "plan": plan,
            "is_current": plan.pk == newest,
            "devices": by_device(plan),
            "applications": by_application(plan),
            "left_out": left_out(plan),
            "inputs": plan.inputs,
            "measured": measured(plan),
            "measured_kept": retention.KEEP_PROBLEMS,
            "solve_ms": plan.solve_s * 1000,
            "gap_percent": plan.gap * 100,
            "trail": trail.trail(plan, before),
            "previous": before.pk if before else None,
            "next": Plan.objects.filter(pk__gt=version).order_by("pk").values_list("pk", flat=True).first(),
        },
    )


def gone(request, version: int):
    oldest = Plan.objects.order_by("pk").only("created").first()
    if oldest is None or version > oldest.pk:
        raise Http404("no such plan")
    more = {"version": version, "oldest": oldest, "keep": settings.NEREUS.keep_plans}
    return error_page(request, 404, f"Plan {version}", "plan_gone", **more)


@page
def current(request):
    newest = Plan.objects.values_list("pk", flat=True).first()
    return redirect("console:plans") if newest is None else redirect("console:plan", version=newest)
