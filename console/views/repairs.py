"""Repairs, which need a person."""

from __future__ import annotations

from django.shortcuts import render
from django.urls import reverse

from console.access import found_repairs, role_in
from console.views.access import page
from registry.access.roles import AccessRole
from scheduler.repairs.repair import Repair

#: the page that shows more of a repair, by its kind; those of an application lead to the application
PAGES = {
    "device": "console:nodes",
    "node": "console:nodes",
    "gateway": "console:nodes",
    "behind": "console:nodes",
    "waiting": "console:nodes",
    "planning": "console:plans",
    "api_key": "console:keys",
    "api_token": "console:access",
}


@page
def index(request):
    """Repairs that need a person, and those that are ignored."""
    role = role_in(request)
    rows = [row_of(repair, role) for repair in found_repairs(request) if repair.visible(role)]
    return render(
        request,
        "console/repairs.html",
        {
            "needed": [row for row in rows if not row["repair"].ignored_by],
            "ignored": [row for row in rows if row["repair"].ignored_by],
        },
    )


def row_of(repair: Repair, role: AccessRole) -> dict[str, object]:
    """A repair as templates show it."""
    if repair.application:
        more = reverse("console:application", kwargs={"name": repair.application})
    else:
        more = reverse(PAGES[repair.kind]) if repair.kind in PAGES else ""
    return {"repair": repair, "button": repair.action.permitted(role), "more": more}
