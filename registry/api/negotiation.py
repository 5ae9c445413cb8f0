"""Content negotiation whose errors name the parameter or header that is wrong."""

from __future__ import annotations

from collections.abc import Sequence

from rest_framework.exceptions import NotAcceptable, NotFound
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class ClearNegotiation(DefaultContentNegotiation):
    """The REST framework's negotiation with errors that say what there is."""

    def select_renderer(self, request: Request, renderers: Sequence[BaseRenderer], format_suffix: str | None = None):
        """Return a renderer and its media type. Raises NotFound, NotAcceptable."""
        try:
            return super().select_renderer(request, renderers, format_suffix)
        except NotAcceptable:
            kinds = ", ".join(renderer.media_type for renderer in renderers)
            raise NotAcceptable(f"Accept: names no type that this address answers with; it has {kinds}.") from None

    def filter_renderers(self, renderers: Sequence[BaseRenderer], format: str) -> list[BaseRenderer]:
        """Return the renderers of a format. Raises NotFound."""
        found = [renderer for renderer in renderers if renderer.format == format]
        if not found:
            formats = ", ".join(sorted({renderer.format for renderer in renderers}))
            raise NotFound(f"format: {format[:60]!r} is not a format of this address; it has {formats}.")
        return found
