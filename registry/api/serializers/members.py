"""Nodes, gateways, devices and join tokens as JSON, and accepted input."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from registry import models, reach
from registry.api.serializers.fields import CountLimitField, ExpiryField, OneOfField, StrictMixin
from registry.dividing import MOST_CHARACTERS
from registry.joining import LONGEST, SHORTEST

#: seconds that a cordon may last that ends by itself: a week
MAX_CORDON_S = 7 * 86400


class UnreachedSerializer(serializers.Serializer):
    gateway = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True, help_text="Null: unknown.")


class DeviceSerializer(serializers.ModelSerializer):
    node = serializers.SlugRelatedField("name", read_only=True)
    gateways = serializers.SerializerMethodField(help_text="Names of the gateways that reach it.")
    unreached_by = serializers.SerializerMethodField(
        help_text="Gateways whose cores report that they do not reach it, with the time since when."
    )
    unreached_since = serializers.DateTimeField(
        read_only=True,
        allow_null=True,
        help_text="Time since which no gateway's core reaches it, so that plans leave it out; null: one does.",
    )
    unreachable = serializers.SerializerMethodField(
        help_text="Reason why no gateway reaches it, so that plans leave it out, and the remedy; empty: one does."
    )

    class Meta:
        model = models.Device
        fields = ["ref", "node", "kind", "type", "description", "cores", "memory_bytes", "endpoint", "gateways"]
        fields += ["unreached_by", "unreached_since", "unreachable", "state", "detail", "phase", "warm"]
        fields += ["plan_version", "changed"]

    def get_gateways(self, device: models.Device) -> list[str]:
        return reach.reaching(device, self.context["gateways"])

    @extend_schema_field(UnreachedSerializer(many=True))
    def get_unreached_by(self, device: models.Device) -> list[dict[str, Any]]:
        return UnreachedSerializer(reach.unreached_by(device, self.context["gateways"]), many=True).data

    def get_unreachable(self, device: models.Device) -> str:
        return reach.why_unreachable(device, self.context["gateways"])


class ClaimSerializer(serializers.Serializer):
    join_token = serializers.CharField(source="claim_with.name", default=None, allow_null=True)
    address = serializers.CharField(source="claim_address")
    since = serializers.DateTimeField(source="claimed_at")


class CertificateSerializer(serializers.Serializer):
    key = serializers.CharField(source="key_hash", help_text="sha256 of its public key (SubjectPublicKeyInfo).")
    until = serializers.DateTimeField(source="certificate_until", help_text="It is renewed automatically before.")
    lapsed = serializers.BooleanField(
        source="certificate_lapsed", help_text="It ended while the member was away; other members refuse it."
    )


class MemberMixin(serializers.Serializer):
    #: fields that follow those of each kind
    STANDING = ("last_seen", "release", "last_words", "behind_since", "certificate", "claim", "created")

    connected = serializers.BooleanField(read_only=True)
    state = serializers.CharField(read_only=True, help_text="pending, approved or revoked")
    certificate = serializers.SerializerMethodField()
    claim = serializers.SerializerMethodField()

    @extend_schema_field(CertificateSerializer(allow_null=True))
    def get_certificate(self, member: models.Member) -> dict[str, Any] | None:
        return CertificateSerializer(member).data if member.key_hash else None

    @extend_schema_field(ClaimSerializer(allow_null=True))
    def get_claim(self, member: models.Member) -> dict[str, Any] | None:
        return ClaimSerializer(member).data if member.claimed else None


class RevocationSerializer(StrictMixin, serializers.Serializer):
    force = serializers.BooleanField(
        required=False, help_text="Also where only this node has usable devices for an application, whose queries fail."
    )


class CordonSerializer(RevocationSerializer):
    seconds = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_CORDON_S,
        help_text="The node is uncordoned automatically after that, at the latest; without it, by an operator only.",
    )


class DivisionSerializer(StrictMixin, serializers.Serializer):
    cpu_devices = serializers.CharField(
        max_length=MOST_CHARACTERS,
        help_text="As NEREUS_CPU_DEVICES: auto, none, 2x1 (count x cores), or lists such as 0-1;2,3.",
    )


class DivisionReportSerializer(serializers.Serializer):
    cores = serializers.ListField(child=serializers.IntegerField(), help_text="CPU cores that it may divide.")
    divided = serializers.CharField(help_text="The present division, in the form of NEREUS_CPU_DEVICES.")
    ordered = serializers.BooleanField(
        help_text="Whether the division was ordered here; else the box's settings say so."
    )
    problem = serializers.CharField(help_text="Reason why the newest order cannot be followed; empty: it is.")


class NodeSerializer(MemberMixin, serializers.ModelSerializer):
    """A node. Its credential is nobody's to see."""

    devices = serializers.SlugRelatedField("ref", many=True, read_only=True)
    drained = serializers.BooleanField(
        read_only=True, help_text="Whether it is cordoned and no query is left on its devices."
    )

    cpu_devices = serializers.CharField(
        read_only=True, help_text="The division of its cores that was ordered; empty: as its settings say."
    )
    division = serializers.SerializerMethodField(help_text="Null: the node has not reported it.")

    @extend_schema_field(DivisionReportSerializer(allow_null=True))
    def get_division(self, node: models.Node) -> dict[str, Any] | None:
        return DivisionReportSerializer(node.division).data if node.division else None

    class Meta:
        model = models.Node
        fields = ["name", "state", "connected", "cordoned_at", "cordoned_until", "drained", "cpu_devices", "division"]
        fields += [*MemberMixin.STANDING, "devices"]


class GatewaySerializer(MemberMixin, serializers.ModelSerializer):
    """A gateway. Its credential is nobody's to see."""

    class Meta:
        model = models.Gateway
        fields = ["name", "address", "core_address", "state", "connected", *MemberMixin.STANDING]


class JoinTokenSerializer(StrictMixin, serializers.ModelSerializer):
    kind = OneOfField(
        models.JoinToken.Kind.choices, required=False, help_text="Members to admit: any, node or gateway."
    )
    expires = ExpiryField(allow_null=True, required=False)
    uses = CountLimitField(help_text="Members that it admits at most; null: any number.")
    own_box = serializers.BooleanField(
        read_only=True, help_text="Made by a start for the members of its own box; of no use elsewhere."
    )

    class Meta:
        model = models.JoinToken
        fields = ["name", "kind", "auto_approve", "expires", "uses", "used", "own_box", "created"]
        read_only_fields = ["used", "created"]
        extra_kwargs = {"name": {"validators": [models.name_validator]}}


class NewJoinTokenSerializer(JoinTokenSerializer):
    token = serializers.CharField(read_only=True)

    class Meta(JoinTokenSerializer.Meta):
        fields = [*JoinTokenSerializer.Meta.fields, "token"]


class JoinCommandSerializer(StrictMixin, serializers.Serializer):
    role = OneOfField(["node", "gateway"], help_text="Role of the other box.")
    minutes = serializers.IntegerField(
        required=False,
        min_value=int(SHORTEST.total_seconds() // 60),
        max_value=int(LONGEST.total_seconds() // 60),
        help_text="Until the token expires; 60 unless given.",
    )
    control = serializers.CharField(
        required=False, allow_blank=True, max_length=200, help_text="This console's URL for that box; empty: its own."
    )


class JoinLineSerializer(serializers.Serializer):
    command = serializers.CharField(help_text="Run it in a checkout of this release on that box.")
    token = serializers.CharField(help_text="The join token's name.")
    expires = serializers.DateTimeField()
    remarks = serializers.ListField(child=serializers.CharField())
    warning = serializers.CharField(help_text="Reason why that box may not reach or trust this console; empty: none.")
