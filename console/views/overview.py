"""The live page."""

from django.shortcuts import render

from console.views.access import page


@page
def overview(request):
    """What needs a person, and a frame that is filled over the websocket."""
    return render(request, "console/overview.html")
