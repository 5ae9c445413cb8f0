"""Where pages and the REST API live."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("api/v1/", include("registry.api.urls")),
    path("api/v1/", include("scheduler.api.urls")),
    path("admin/", admin.site.urls),
    path("", include("appliance.health")),
    path("", include("console.urls")),
]

handler404 = "registry.api.problems.page_not_found"
handler500 = "registry.api.problems.server_error"
