"""The live page."""

from __future__ import annotations

from collections.abc import Iterable

from django.shortcuts import render

from console.access import role_in
from console.views.access import page
from console.views.repairs import alike, row_of
from registry.audit.search import PEOPLE, search
from scheduler.repairs import listing
from scheduler.repairs.repair import Repair

#: repairs that the page shows; the others are on their own page
SHOWN = 7


@page
def overview(request):
    """Repairs, and a frame that is filled over the websocket.

    Its look at repairs is the shared one, as its websocket's is: when that differs, the page reads this part again.
    """
    role = role_in(request)
    look = listing.shared()
    lines = first_lines(listing.needing(look, role))
    needed = [{**row_of(repair, role), "alike": alike} for repair, alike in lines]
    return render(
        request,
        "console/overview.html",
        {
            "needed": needed,
            "in_time": look.in_time,
            "shown": sum(1 + alike for _, alike in lines),
            "last_change": search({"only": PEOPLE}).first(),
        },
    )


def first_lines(repairs: Iterable[Repair]) -> list[tuple[Repair, int]]:
    """The repairs that the page shows, in their order, each with how many are alike.

    One cause may trouble all applications: it gets one line, and other causes come before more of the same.
    """
    groups = alike(repairs)
    lines, more = [], []
    for first, *others in groups:
        # Each button acts on one of them.
        folded = not first.action.address
        lines.append((first, len(others) if folded else 0))
        more += [(other, 0) for other in others if not folded]
    shown = [*lines, *more][:SHOWN]
    order = {repair.key: at for at, repair in enumerate(each for group in groups for each in group)}
    return sorted(shown, key=lambda line: order[line[0].key])
