"""Nodes, gateways and devices."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.response import Response

from registry import dividing, members, reach
from registry.api.serializers.members import (
    CordonSerializer,
    DeviceSerializer,
    DivisionSerializer,
    GatewaySerializer,
    NodeSerializer,
    RevocationSerializer,
)
from registry.api.views.base import DeleteMixin, DetailMixin, ListMixin, View
from registry.models import Device, Gateway, Member, Node


class _Nodes(View):
    queryset = Node.objects.select_related("claim_with").prefetch_related("devices")
    serializer_class = NodeSerializer
    lookup_field = "name"


class _Gateways(View):
    queryset = Gateway.objects.select_related("claim_with")
    serializer_class = GatewaySerializer
    lookup_field = "name"


_deleting = extend_schema_view(
    delete=extend_schema(description="Delete a member. Refused (409) while it is connected.")
)


class _Detail(DetailMixin, DeleteMixin):
    def perform_destroy(self, instance):
        members.delete_member(instance)


class _Approve:
    @extend_schema(request=None)
    def post(self, request, name):
        """Admit a member."""
        return Response(self.serializer_class(members.set_state(self.get_object(), Member.State.APPROVED)).data)


class _Revoke:
    @extend_schema(request=None)
    def post(self, request, name):
        """Turn a member away until it is approved again."""
        return Response(self.serializer_class(members.set_state(self.get_object(), Member.State.REVOKED)).data)


class _Claim:
    @extend_schema(request=None)
    def post(self, request, name):
        """Accept a claim on this member's name.

        The claimant becomes this member, and its previous credential is revoked.
        """
        return Response(self.serializer_class(members.accept_claim(self.get_object())).data)

    @extend_schema(request=None)
    def delete(self, request, name):
        """Refuse a claim: the claimant is turned away, and the member stays as it is."""
        return Response(self.serializer_class(members.refuse_claim(self.get_object())).data)


class NodeList(ListMixin, _Nodes):
    """All nodes."""


@_deleting
class NodeDetail(_Detail, _Nodes):
    """One node."""


class NodeApprove(_Approve, _Nodes):
    """Approving a node."""


class NodeRevoke(_Nodes):
    """Revoking a node."""

    @extend_schema(request=RevocationSerializer, responses=NodeSerializer)
    def post(self, request, name):
        """Turn a node away until it is approved again.

        Refused (409) where no other node has a usable device for some application, unless `force` is true.
        """
        wanted = self.checked(RevocationSerializer)
        return Response(NodeSerializer(members.revoke(self.get_object(), **wanted)).data)


class NodeCordon(_Nodes):
    """Whether plans leave a node's devices out."""

    @extend_schema(request=CordonSerializer, responses=NodeSerializer)
    def post(self, request, name):
        """Cordon a node: plans leave its devices out.

        `drained` says when no query is left on them. Refused (409) where no other node has a usable device for some
        application, unless `force` is true.
        """
        wanted = self.checked(CordonSerializer)
        return Response(NodeSerializer(members.cordon(self.get_object(), **wanted)).data)

    @extend_schema(request=None, responses=NodeSerializer)
    def delete(self, request, name):
        """Uncordon a node: plans use its devices again."""
        return Response(NodeSerializer(members.uncordon(self.get_object())).data)


class NodeDivision(_Nodes):
    """The division of a node's cores into devices."""

    @extend_schema(request=DivisionSerializer, responses=NodeSerializer)
    def post(self, request, name):
        """Divide the node's cores, now and after restarts.

        New devices start alongside the present ones, which serve until the new ones do; the `phase` of each device says
        how far that is.
        """
        wanted = self.checked(DivisionSerializer)["cpu_devices"].strip()
        return Response(NodeSerializer(dividing.divide(self.get_object(), wanted)).data)

    @extend_schema(request=None, responses=NodeSerializer)
    def delete(self, request, name):
        """Divide the node's cores as the box's settings say."""
        return Response(NodeSerializer(dividing.divide(self.get_object(), "")).data)


class NodeClaim(_Claim, _Nodes):
    """A claim on a node's name."""


class GatewayList(ListMixin, _Gateways):
    """All gateways."""


@_deleting
class GatewayDetail(_Detail, _Gateways):
    """One gateway."""


class GatewayApprove(_Approve, _Gateways):
    """Approving a gateway."""


class GatewayRevoke(_Revoke, _Gateways):
    """Revoking a gateway."""


class GatewayClaim(_Claim, _Gateways):
    """A claim on a gateway's name."""


class _Devices(View):
    queryset = Device.objects.select_related("node")
    serializer_class = DeviceSerializer
    lookup_field = "ref"

    def get_serializer_context(self):
        return {**super().get_serializer_context(), "gateways": reach.approved_gateways()}


class DeviceList(ListMixin, _Devices):
    """All devices."""


@extend_schema_view(delete=extend_schema(description="Delete a device. Refused (409) while its node has it."))
class DeviceDetail(DetailMixin, DeleteMixin, _Devices):
    """One device, by NODE/DEVICE."""

    def perform_destroy(self, instance):
        members.forget_device(instance)
