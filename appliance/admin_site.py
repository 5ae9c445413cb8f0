"""The admin site, open to roles by the access table, and its accounts."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks
from django.http import HttpRequest, HttpResponse
from unfold.sites import UnfoldAdminSite

from registry.access import table
from registry.access.roles import AccessRole, role_of

#: the site's own scripts evaluate expressions in its markup, and it has inline styles and scripts
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "font-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'"
)


class ConsoleAdminConfig(SimpleAdminConfig):
    """Makes :class:`ConsoleAdmin` the site on which models are registered.

    They are registered where pages are served and checked: workers and commands, which have none, would spend a tenth
    of their start on it.
    """

    default_site = "appliance.admin_site.ConsoleAdmin"

    def ready(self) -> None:
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(check_site, checks.Tags.admin)


def check_site(app_configs, **kwargs) -> list[checks.CheckMessage]:
    """Django's check of registered models, whichever check comes first."""
    admin.autodiscover()
    return check_admin_app(app_configs, **kwargs)


class ConsoleAdmin(UnfoldAdminSite):
    """Opens to every account with a role. The console's sign-in page is the only one."""

    def has_permission(self, request: HttpRequest) -> bool:
        return role_of(request.user) > AccessRole.ANYONE

    def login(self, request: HttpRequest, extra_context=None) -> HttpResponse:
        from console.views.access import SignIn

        return SignIn.as_view(next_page="admin:index")(request)


class AdminGuard:
    """Django middleware that applies the access table to the admin site.

    It refuses addresses that the table does not open to the caller's role.
    """

    def __init__(self, get_response):
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not request.path.startswith("/admin/"):
            return self._get_response(request)
        response = self._get_response(request)
        response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        return response

    def process_view(self, request: HttpRequest, view, args, kwargs) -> HttpResponse | None:
        match = request.resolver_match
        # Unnamed addresses of the site redirect, or are not found, and show nothing.
        if match.app_name != "admin" or not match.url_name:
            return None
        if role_of(request.user) == AccessRole.ANYONE:
            # The site sends the caller to the sign-in page by itself.
            return None
        needed = table.least(match.view_name, request.method)
        if needed is None or role_of(request.user) < needed:
            from console.views.access import refused

            return refused(request)
        return None
