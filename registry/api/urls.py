"""Addresses of the registry's REST API, under ``/api/v1/``."""

from django.urls import path, re_path
from drf_spectacular.views import SpectacularAPIView

from registry.api.views import applications, audit, blobs, members, profiles, secrets, trying, variants

urlpatterns = [
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("applications/", applications.ApplicationList.as_view(), name="applications"),
    path("applications/<str:name>/", applications.ApplicationDetail.as_view(), name="application"),
    path("applications/<str:name>/validation-set/", applications.ValidationSetDetail.as_view(), name="validation-set"),
    path("applications/<str:name>/try/", trying.ApplicationTry.as_view(), name="application-try"),
    path("applications/<str:name>/variants/", variants.VariantList.as_view(), name="variants"),
    path("applications/<str:name>/variants/<str:variant>/", variants.VariantDetail.as_view(), name="variant"),
    path(
        "applications/<str:name>/variants/<str:variant>/profile/",
        profiles.VariantProfile.as_view(),
        name="variant-profile",
    ),
    path("profiles/", profiles.ProfileList.as_view(), name="profiles"),
    path("profile-jobs/", profiles.ProfileJobList.as_view(), name="profile-jobs"),
    path("profile-jobs/<int:pk>/", profiles.ProfileJobDetail.as_view(), name="profile-job"),
    path("nodes/", members.NodeList.as_view(), name="nodes"),
    path("nodes/<str:name>/", members.NodeDetail.as_view(), name="node"),
    path("nodes/<str:name>/approve/", members.NodeApprove.as_view(), name="node-approve"),
    path("nodes/<str:name>/revoke/", members.NodeRevoke.as_view(), name="node-revoke"),
    path("nodes/<str:name>/cordon/", members.NodeCordon.as_view(), name="node-cordon"),
    path("nodes/<str:name>/division/", members.NodeDivision.as_view(), name="node-division"),
    path("nodes/<str:name>/claim/", members.NodeClaim.as_view(), name="node-claim"),
    path("gateways/", members.GatewayList.as_view(), name="gateways"),
    path("gateways/<str:name>/", members.GatewayDetail.as_view(), name="gateway"),
    path("gateways/<str:name>/approve/", members.GatewayApprove.as_view(), name="gateway-approve"),
    path("gateways/<str:name>/revoke/", members.GatewayRevoke.as_view(), name="gateway-revoke"),
    path("gateways/<str:name>/claim/", members.GatewayClaim.as_view(), name="gateway-claim"),
    path("devices/", members.DeviceList.as_view(), name="devices"),
    path("devices/<path:ref>/", members.DeviceDetail.as_view(), name="device"),
    path("api-keys/", secrets.ApiKeyList.as_view(), name="api-keys"),
    path("api-keys/<str:name>/", secrets.ApiKeyDetail.as_view(), name="api-key"),
    path("api-tokens/", secrets.ApiTokenList.as_view(), name="api-tokens"),
    path("api-tokens/<str:name>/", secrets.ApiTokenDetail.as_view(), name="api-token"),
    path("audit/", audit.AuditList.as_view(), name="audit-list"),
    path("join-tokens/", secrets.JoinTokenList.as_view(), name="join-tokens"),
    path("join-commands/", secrets.JoinCommand.as_view(), name="join-commands"),
    path("join-tokens/<str:name>/", secrets.JoinTokenDetail.as_view(), name="join-token"),
    re_path(r"^blobs/(?P<digest>[0-9a-f]{64})/$", blobs.Blob.as_view(), name="blob"),
]
