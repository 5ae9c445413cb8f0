"""Nodes, gateways and devices."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
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
from registry.api.views.base import Resource
from registry.models import Device, Gateway, Member, Node

_DELETED = "Delete a member. Refused (409) while it is connected."


class _Members(Resource):
    lookup_field = "name"

    def perform_destroy(self, instance):
        members.delete_member(instance)

    def _changed(self, member: Member) -> Response:
        return Response(self.serializer_class(member).data)

    @extend_schema(request=None)
    def approve(self, request, name):
        """Admit a member."""
        return self._changed(members.set_state(self.get_object(), Member.State.APPROVED))

    @extend_schema(request=None)
    def revoke(self, request, name):
        """Turn a member away until it is approved again."""
        return self._changed(members.set_state(self.get_object(), Member.State.REVOKED))

    @extend_schema(request=None)
    def accept_claim(self, request, name):
        """Accept a claim on this member's name.

        The claimant becomes this member, and its previous credential is revoked.
        """
        return self._changed(members.accept_claim(self.get_object()))

    @extend_schema(request=None)
    def refuse_claim(self, request, name):
        """Refuse a claim: the claimant is turned away, and the member stays as it is."""
        return self._changed(members.refuse_claim(self.get_object()))


class Nodes(_Members):
    descriptions = {"list": "All nodes.", "retrieve": "One node.", "destroy": _DELETED}
    queryset = Node.objects.select_related("claim_with").prefetch_related("devices")
    serializer_class = NodeSerializer

    @extend_schema(request=RevocationSerializer)
    def revoke(self, request, name):
        """Turn a node away until it is approved again.

        Refused (409) where no other node has a usable device for some application, unless `force` is true.
        """
        return self._changed(members.revoke(self.get_object(), **self.checked(RevocationSerializer)))

    @extend_schema(request=CordonSerializer)
    def cordon(self, request, name):
        """Cordon a node: plans leave its devices out.

        `drained` says when no query is left on them. Refused (409) where no other node has a usable device for some
        application, unless `force` is true.
        """
        return self._changed(members.cordon(self.get_object(), **self.checked(CordonSerializer)))

    @extend_schema(request=None)
    def uncordon(self, request, name):
        """Uncordon a node: plans use its devices again."""
        return self._changed(members.uncordon(self.get_object()))

    @extend_schema(request=DivisionSerializer)
    def divide(self, request, name):
        """Divide the node's cores, now and after restarts.

        New devices start alongside the present ones, which serve until the new ones do; the `phase` of each device says
        how far that is.
        """
        wanted = self.checked(DivisionSerializer)["cpu_devices"].strip()
        return self._changed(dividing.divide(self.get_object(), wanted))

    @extend_schema(request=None)
    def divide_by_settings(self, request, name):
        """Divide the node's cores as the box's settings say."""
        return self._changed(dividing.divide(self.get_object(), ""))


class Gateways(_Members):
    descriptions = {"list": "All gateways.", "retrieve": "One gateway.", "destroy": _DELETED}
    queryset = Gateway.objects.select_related("claim_with")
    serializer_class = GatewaySerializer


class Devices(Resource):
    descriptions = {
        "list": "All devices.",
        "retrieve": "One device, by NODE/DEVICE.",
        "destroy": "Delete a device. Refused (409) while its node has it.",
    }
    queryset = Device.objects.select_related("node")
    serializer_class = DeviceSerializer
    lookup_field = "ref"

    def get_serializer_context(self):
        return {**super().get_serializer_context(), "gateways": reach.approved_gateways()}

    def perform_destroy(self, instance):
        members.forget_device(instance)
