"""Redirects of pages to their address with the last slash."""

from __future__ import annotations

from django.http import HttpResponsePermanentRedirect
from django.middleware.common import CommonMiddleware


class _SameMethodRedirect(HttpResponsePermanentRedirect):
    """308: clients repeat method and body; after 301 they make a GET of a POST."""

    status_code = 308


class LastSlash(CommonMiddleware):
    """Django's middleware with redirects that keep the method."""

    response_redirect_class = _SameMethodRedirect
