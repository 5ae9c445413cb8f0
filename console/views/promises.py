"""Promises: expectations, the record of past promises, and what-ifs."""

from __future__ import annotations

from collections import Counter

from django.shortcuts import render

from console import calibration
from console.views.access import page
from registry.models import Application
from scheduler.models import Promise
from scheduler.promises import keeping, present
from scheduler.promises.changes import EXCLUDED, FREE, PINNED, node_of, variant_name
from scheduler.promises.intervals import FIGURES
from scheduler.promises.present import NothingToPromise

#: promises that the page looks at
LOOKED_AT = 200
VARIANT_CHOICES = ((FREE, "as plans choose"), (PINNED, "pinned: kept loaded"), (EXCLUDED, "excluded: never planned"))


@page
def promises(request):
    """The latest promise, and past ones; ``?application=NAME`` charts that one."""
    found = list(Promise.objects.all()[:LOOKED_AT])
    compared = [promise for promise in found if promise.state == Promise.State.COMPARED]
    rows = calibration.by_application(found)
    names = [row["name"] for row in rows]
    chosen = request.GET.get("application", "")
    chosen = chosen if chosen in names else (names[0] if names else "")
    return render(
        request,
        "console/promises.html",
        {
            "latest": found[0] if found else None,
            "rows": rows,
            "compared": len(compared),
            "void": sum(promise.state == Promise.State.VOID for promise in found),
            "held": keeping.calibration(compared)[keeping.ALL],
            "chosen": chosen,
            "charts": [(figure, calibration.chart(compared, chosen, figure)) for figure in FIGURES],
            "box": calibration,
        },
    )


@page
def what_if(request):
    try:
        plan, problem, _ = present.in_force()
    except NothingToPromise as reason:
        return render(request, "console/what_if.html", {"reason": str(reason)})
    arrived = present.recorded([a.id for a in problem.applications])
    exact = dict(Application.objects.values_list("name", "slo_ms"))
    kinds = Counter(device.type for device in problem.devices)
    more = {kind for variant in problem.variants for kind in variant.profiles}
    return render(
        request,
        "console/what_if.html",
        {
            "plan": plan,
            "applications": [
                {"name": a.id, "slo_ms": exact.get(a.id, a.slo_s * 1000), "rate": arrived.rate(a.id)}
                for a in problem.applications
            ],
            "variants": [
                {
                    "name": variant_name(variant),
                    "choice": PINNED if variant.pinned else EXCLUDED if variant.excluded else FREE,
                }
                for variant in problem.variants
            ],
            "variant_choices": VARIANT_CHOICES,
            "kinds": [(kind, kinds.get(kind, 0)) for kind in sorted(more | set(kinds))],
            "devices": [device.id for device in problem.devices],
            "nodes": sorted({node_of(device.id) for device in problem.devices}),
        },
    )
