"""The live page."""

from django.conf import settings
from django.shortcuts import render

from console.views.access import page
from registry.inspection import sandbox


@page
def overview(request):
    """A frame, filled over the websocket, with the one warning that cannot change while this process runs."""
    return render(request, "console/overview.html", {"isolation": sandbox.warning(settings.NEREUS)})
