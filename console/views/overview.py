"""The live page."""

from django.shortcuts import render

from console.views.access import page


@page
def overview(request):
    """A frame; everything in it comes over the websocket."""
    return render(request, "console/overview.html")
