"""Addresses of pages and of the REST API."""

from django.contrib import admin
from django.templatetags.static import static
from django.urls import include, path
from django.views.generic import RedirectView

admin.autodiscover()

urlpatterns = [
    path("api/v1/", include("registry.api.urls")),
    path("api/v1/", include("scheduler.api.urls")),
    path("admin/", admin.site.urls),
    # Browsers ask for it wherever a page names no icon of its own.
    path("favicon.ico", RedirectView.as_view(url=static("nereus/mark.svg")), name="favicon"),
    path("", include("appliance.health")),
    path("", include("appliance.authority")),
    path("", include("console.urls")),
]

handler400 = "console.views.access.bad_request"
handler403 = "console.views.access.refused"
handler404 = "console.views.access.not_found"
handler500 = "console.views.access.server_error"
