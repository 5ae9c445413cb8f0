"""The live page."""

from django.shortcuts import render

from console.access import role_in
from console.views.access import page
from console.views.repairs import row_of
from scheduler.repairs import listing

#: repairs that the page shows; the others are on their own page
SHOWN = 7


@page
def overview(request):
    """Repairs, and a frame that is filled over the websocket.

    Its look at repairs is the shared one, as its websocket's is: when that differs, the page reads this part again.
    """
    role = role_in(request)
    needed = [row_of(repair, role) for repair in listing.needing(listing.shared(), role)[:SHOWN]]
    return render(request, "console/overview.html", {"needed": needed})
