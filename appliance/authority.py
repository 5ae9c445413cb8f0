"""The public page with the certificate authority that other boxes trust."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import path

from registry.api import problems
from workers.trust import control_plane, server
from workers.trust.authority import CertificateError


def authority(request: HttpRequest) -> HttpResponse:
    """The authority as PEM, then by which earlier one it is certified."""
    try:
        shown = server.shown_authority(settings.NEREUS) if settings.NEREUS.tls_used else b""
    except (CertificateError, OSError):
        shown = b""
    if not shown:
        return problems.render(404, "This console has no certificate whose authority it could show.")
    return HttpResponse(shown, content_type="application/x-pem-file")


urlpatterns = [path(control_plane.PATH.removeprefix("/"), authority, name="authority")]
