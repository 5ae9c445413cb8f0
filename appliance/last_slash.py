"""Redirects of pages to their address with the last slash."""

from __future__ import annotations

from django.http import HttpResponsePermanentRedirect
from django.middleware.common import CommonMiddleware


class _SameMethodRedirect(HttpResponsePermanentRedirect):
    """Redirect with 308: clients repeat method and body, unlike after 301."""

    status_code = 308


class LastSlash(CommonMiddleware):
    """Django's middleware with redirects that keep the method."""

    response_redirect_class = _SameMethodRedirect
