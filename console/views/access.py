"""Signing in and out, and pages by role."""

from __future__ import annotations

import functools
import secrets
import sys

from django.contrib.auth.forms import AuthenticationForm, UsernameField
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView, LogoutView, redirect_to_login
from django.core.exceptions import DisallowedHost, PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse, reverse_lazy
from django.views.decorators.cache import never_cache
from django.views.defaults import bad_request as django_bad_request
from django.views.defaults import page_not_found as django_not_found

from registry.access import table
from registry.access.roles import AccessRole, role_of
from registry.access.throttles import sign_in_wait_s
from registry.api import problems
from workers import log

logger = log.get("console")

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
    """Make a view a page for the roles of its entry in the access table.

    Callers without a role are sent to the sign-in page and come back afterwards; others read that their role does not
    permit it.
    """

    @never_cache
    @functools.wraps(view)
    def guarded(request, *args, **kwargs):
        role = role_of(request.user)
        if role == AccessRole.ANYONE:
            return _protect(redirect_to_login(request.get_full_path(), reverse("console:login")))
        if not table.permits(role, request.resolver_match.view_name, request.method):
            return refused(request)
        return _protect(view(request, *args, **kwargs))

    return guarded


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if request.path.startswith("/api/"):
        return problems.render_error(exception)
    if isinstance(exception, DisallowedHost):
        return _protect(HttpResponse(problems.UNKNOWN_HOST, status=400, content_type="text/plain; charset=utf-8"))
    return _protect(django_bad_request(request, exception))


def refused(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    if request.path.startswith("/api/"):
        return problems.render_error(PermissionDenied())
    return error_page(request, 403, "Not permitted", "refused")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if request.path.startswith("/api/"):
        return problems.render_error(Http404())
    if role_of(getattr(request, "user", None)) == AccessRole.ANYONE:
        return _protect(django_not_found(request, exception))
    return error_page(request, 404, "Not found", "not_found")


def form_refused(request: HttpRequest, reason: str = "") -> HttpResponse:
    return error_page(request, 403, "Not accepted", "form_refused")


def server_error(request: HttpRequest) -> HttpResponse:
    """``handler500``: a problem under the API, a page elsewhere.

    The page names an incident, which is in the log with its traceback. It is bare where the frame cannot be drawn
    either, such as without a database.
    """
    if request.path.startswith("/api/"):
        return problems.render_error(sys.exc_info()[1])
    incident = secrets.token_hex(4)
    logger.error("page_failed", incident=incident, path=request.path, exc_info=sys.exc_info()[1])
    try:
        return error_page(request, 500, "This page failed", "failed", incident=incident)
    except Exception:
        return _protect(
            HttpResponse(render_to_string("console/errors/failed.html", {"incident": incident}), status=500)
        )


def error_page(request: HttpRequest, status: int, title: str, name: str, **more: object) -> HttpResponse:
    context = {"title": title, "says": f"console/errors/{name}.html", **more}
    return _protect(render(request, "console/error.html", context, status=status))


class SignInForm(AuthenticationForm):
    """Longer names than accounts have would be stored with the failed attempts."""

    username = UsernameField(max_length=User._meta.get_field("username").max_length)


class SignIn(LoginView):
    template_name = "console/login.html"
    authentication_form = SignInForm
    next_page = reverse_lazy("console:overview")

    def dispatch(self, request, *args, **kwargs):
        return _protect(super().dispatch(request, *args, **kwargs))

    def post(self, request, *args, **kwargs):
        wait_s = sign_in_wait_s(request)
        if wait_s is not None:
            return _slowed(request, f"Too many attempts to sign in. Try again in {int(wait_s) + 1} s.", wait_s)
        return super().post(request, *args, **kwargs)


def locked_out(request: HttpRequest, credentials: dict | None = None, *args, **kwargs) -> HttpResponse:
    from django.conf import settings

    wait_s = settings.AXES_COOLOFF_TIME.total_seconds()
    detail = (
        f"Too many wrong passwords for this account from this address. Try again in {wait_s / 60:.0f} minutes, or "
        "from another address."
    )
    return _slowed(request, detail, wait_s)


def _slowed(request: HttpRequest, detail: str, wait_s: float) -> HttpResponse:
    context = {"form": SignInForm(request), "slowed": detail, "next": request.POST.get("next", "")}
    response = _protect(render(request, "console/login.html", context, status=429))
    response["Retry-After"] = str(int(wait_s) + 1)
    return response


class SignOut(LogoutView):
    next_page = reverse_lazy("console:login")
