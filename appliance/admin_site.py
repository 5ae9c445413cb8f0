"""The admin site, open to roles as the access table has it, and accounts in it."""

from __future__ import annotations

from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest, HttpResponse
from unfold.sites import UnfoldAdminSite

from registry.access import table
from registry.access.roles import AccessRole, role_of

#: the site's own scripts evaluate expressions in its markup, and it has inline styles and scripts
CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "font-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ]
)


class ConsoleAdminConfig(AdminConfig):
    """Makes :class:`ConsoleAdmin` the site on which models are registered."""

    default_site = "appliance.admin_site.ConsoleAdmin"


class ConsoleAdmin(UnfoldAdminSite):
    """Opens to every account with a role. The console's sign-in page is the only one."""

    def has_permission(self, request: HttpRequest) -> bool:
        """Whether the account has a role."""
        return role_of(request.user) > AccessRole.ANYONE

    def login(self, request: HttpRequest, extra_context=None) -> HttpResponse:
        """The console's sign-in page, which leads back here."""
        from console.views.access import SignIn

        return SignIn.as_view(next_page="admin:index")(request)


class AdminGuard:
    """Django middleware: refuses addresses of the admin site that the access table does not open to the role."""

    def __init__(self, get_response):
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        if request.path.startswith("/admin/"):
            response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        return response

    def process_view(self, request: HttpRequest, view, args, kwargs) -> HttpResponse | None:
        """The page that says that the role does not permit it, where that is so."""
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
