"""Pages of the console. The browser makes changes through the REST API."""

from django.urls import path

from console.views import access, applications, audit, members, overview, plans, promises, repairs, secrets

app_name = "console"

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("login/", access.SignIn.as_view(), name="login"),
    path("logout/", access.SignOut.as_view(), name="logout"),
    path("applications/", applications.index, name="applications"),
    path("applications/<str:name>/", applications.detail, name="application"),
    path("applications/<str:name>/upload/", applications.upload, name="upload"),
    path("applications/<str:name>/compare/", applications.compare, name="compare"),
    path("plan/", plans.current, name="plan-current"),
    path("plans/", plans.index, name="plans"),
    path("plans/<int:version>/", plans.detail, name="plan"),
    path("promises/", promises.promises, name="promises"),
    path("what-if/", promises.what_if, name="what-if"),
    path("nodes/", members.nodes, name="nodes"),
    path("repairs/", repairs.index, name="repairs"),
    path("keys/", secrets.keys, name="keys"),
    path("access/", secrets.access, name="access"),
    path("audit/", audit.index, name="audit"),
]
