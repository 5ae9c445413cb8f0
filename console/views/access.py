"""Who may see pages: active staff users, signed in with a session."""

from __future__ import annotations

import functools

from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView, redirect_to_login
from django.urls import reverse, reverse_lazy
from django.views.decorators.cache import never_cache

#: scripts and styles are files of this site alone; Chart.js draws on canvases, which need no more than this
CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "font-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ]
)


def _protect(response):
    response["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    return response


def page(view):
    """A page for staff: others are sent to the sign-in page and come back afterwards."""

    @never_cache
    @functools.wraps(view)
    def guarded(request, *args, **kwargs):
        if not (request.user.is_active and request.user.is_staff):
            return _protect(redirect_to_login(request.get_full_path(), reverse("console:login")))
        return _protect(view(request, *args, **kwargs))

    return guarded


class SignIn(LoginView):
    """The sign-in page; refuses accounts that are not staff."""

    template_name = "console/login.html"
    authentication_form = AdminAuthenticationForm
    next_page = reverse_lazy("console:overview")

    def dispatch(self, request, *args, **kwargs):
        return _protect(super().dispatch(request, *args, **kwargs))


class SignOut(LogoutView):
    """Ends the session (POST only) and shows the sign-in page."""

    next_page = reverse_lazy("console:login")
