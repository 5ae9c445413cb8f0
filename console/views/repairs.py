"""Repairs, which need a person."""

from __future__ import annotations

from collections.abc import Iterable

from django.shortcuts import render
from django.urls import reverse

from console.access import found_repairs, role_in
from console.views.access import page
from registry.access.roles import AccessRole
from scheduler.repairs import listing
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
    role = role_in(request)
    found = found_repairs(request)
    ignored = [repair for repair in found if repair.visible(role) and repair.ignored_by]
    return render(
        request,
        "console/repairs.html",
        {
            "needed": [[row_of(repair, role) for repair in group] for group in alike(listing.needing(found, role))],
            "in_time": found.in_time,
            "ignored": [row_of(repair, role) for repair in ignored],
        },
    )


def alike(repairs: Iterable[Repair]) -> list[list[Repair]]:
    groups: dict[tuple[str, str, str], list[Repair]] = {}
    for repair in repairs:
        groups.setdefault((repair.kind, repair.severity, repair.action.text), []).append(repair)
    return list(groups.values())


def row_of(repair: Repair, role: AccessRole) -> dict[str, object]:
    if repair.application:
        more = reverse("console:application", kwargs={"name": repair.application})
    else:
        more = reverse(PAGES[repair.kind]) if repair.kind in PAGES else ""
    return {"repair": repair, "button": repair.action.permitted(role), "more": more}
