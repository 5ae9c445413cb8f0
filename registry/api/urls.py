"""Addresses of the registry's REST API, under ``/api/v1/``."""

from django.urls import path, re_path
from drf_spectacular.views import SpectacularAPIView

from registry.api.views import applications, audit, blobs, members, profiles, secrets, trying, variants

_LIST, _DETAIL = {"get": "list"}, {"get": "retrieve", "delete": "destroy"}
_CREATE, _DELETE = {**_LIST, "post": "create"}, {"delete": "destroy"}
_CHANGE = {**_DETAIL, "patch": "partial_update"}
_CLAIM = {"post": "accept_claim", "delete": "refuse_claim"}

urlpatterns = [
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("applications/", applications.Applications.as_view(_CREATE), name="applications"),
    path("applications/<str:name>/", applications.Applications.as_view(_CHANGE), name="application"),
    path("applications/<str:name>/validation-set/", applications.ValidationSetDetail.as_view(), name="validation-set"),
    path("applications/<str:name>/try/", trying.ApplicationTry.as_view(), name="application-try"),
    path("applications/<str:name>/variants/", variants.VariantList.as_view(), name="variants"),
    path("applications/<str:name>/variants/<str:variant>/", variants.VariantDetail.as_view(), name="variant"),
    path(
        "applications/<str:name>/variants/<str:variant>/profile/",
        profiles.VariantProfile.as_view(),
        name="variant-profile",
    ),
    path("profiles/", profiles.Profiles.as_view(_LIST), name="profiles"),
    path("profile-jobs/", profiles.ProfileJobs.as_view(_LIST), name="profile-jobs"),
    path("profile-jobs/<int:pk>/", profiles.ProfileJobs.as_view(_DETAIL), name="profile-job"),
    path("nodes/", members.Nodes.as_view(_LIST), name="nodes"),
    path("nodes/<str:name>/", members.Nodes.as_view(_DETAIL), name="node"),
    path("nodes/<str:name>/approve/", members.Nodes.as_view({"post": "approve"}), name="node-approve"),
    path("nodes/<str:name>/revoke/", members.Nodes.as_view({"post": "revoke"}), name="node-revoke"),
    path(
        "nodes/<str:name>/cordon/",
        members.Nodes.as_view({"post": "cordon", "delete": "uncordon"}),
        name="node-cordon",
    ),
    path(
        "nodes/<str:name>/division/",
        members.Nodes.as_view({"post": "divide", "delete": "divide_by_settings"}),
        name="node-division",
    ),
    path("nodes/<str:name>/claim/", members.Nodes.as_view(_CLAIM), name="node-claim"),
    path("gateways/", members.Gateways.as_view(_LIST), name="gateways"),
    path("gateways/<str:name>/", members.Gateways.as_view(_DETAIL), name="gateway"),
    path("gateways/<str:name>/approve/", members.Gateways.as_view({"post": "approve"}), name="gateway-approve"),
    path("gateways/<str:name>/revoke/", members.Gateways.as_view({"post": "revoke"}), name="gateway-revoke"),
    path("gateways/<str:name>/claim/", members.Gateways.as_view(_CLAIM), name="gateway-claim"),
    path("devices/", members.Devices.as_view(_LIST), name="devices"),
    path("devices/<path:ref>/", members.Devices.as_view(_DETAIL), name="device"),
    path("api-keys/", secrets.ApiKeys.as_view(_CREATE), name="api-keys"),
    path("api-keys/<str:name>/", secrets.ApiKeys.as_view(_CHANGE), name="api-key"),
    path("api-tokens/", secrets.ApiTokens.as_view(_CREATE), name="api-tokens"),
    path("api-tokens/<str:name>/", secrets.ApiTokens.as_view(_DELETE), name="api-token"),
    path("audit/", audit.Audit.as_view(_LIST), name="audit-list"),
    path("join-tokens/", secrets.JoinTokens.as_view(_CREATE), name="join-tokens"),
    path("join-commands/", secrets.JoinCommand.as_view(), name="join-commands"),
    path("join-tokens/<str:name>/", secrets.JoinTokens.as_view(_DELETE), name="join-token"),
    re_path(r"^blobs/(?P<digest>[0-9a-f]{64})/$", blobs.Blob.as_view(), name="blob"),
]
