"""Webhooks over REST."""

from __future__ import annotations

from django.db import IntegrityError, transaction
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.response import Response

from registry import events
from registry.api.serializers.fields import OneOfField, StrictMixin
from registry.api.views.base import View
from registry.audit.recording import record
from registry.errors import Conflict
from registry.models import name_validator
from registry.webhooks.rows import MOST, Webhook
from registry.webhooks.targets import ForbiddenTarget, parsed
from scheduler import webhooks


class RetrySerializer(serializers.Serializer):
    event = serializers.CharField()
    tries = serializers.IntegerField(help_text="That failed.")
    again = serializers.DateTimeField(help_text="When the next try is due.")


class WebhookSerializer(StrictMixin, serializers.ModelSerializer):
    """An address that gets signed events, and how its latest delivery went."""

    url = serializers.CharField(
        max_length=500, help_text="https://HOST/PATH with a public address; others need NEREUS_WEBHOOK_NETWORKS."
    )
    events = serializers.ListField(child=OneOfField(Webhook.Event.choices), min_length=1, max_length=len(Webhook.Event))
    failures = serializers.IntegerField(read_only=True, help_text="Deliveries that failed in a row.")
    retries = serializers.SerializerMethodField(help_text="Deliveries that are tried again, the next first.")

    class Meta:
        model = Webhook
        fields = ["name", "url", "events", "enabled", "created", "tried", "status", "error", "failures", "retries"]
        read_only_fields = ["created", "tried", "status", "error", "failures"]
        # A name that is taken is a conflict.
        extra_kwargs = {"name": {"validators": [name_validator]}}

    @extend_schema_field(RetrySerializer(many=True))
    def get_retries(self, row: Webhook) -> list[dict]:
        return RetrySerializer(webhooks.retries(row.pk), many=True).data

    def validate_url(self, url: str) -> str:
        try:
            parsed(url)
        except ForbiddenTarget as error:
            raise serializers.ValidationError(str(error)) from None
        return url

    def validate_events(self, wanted: list[str]) -> list[str]:
        return sorted(set(wanted))


class ChangedWebhookSerializer(WebhookSerializer):
    class Meta(WebhookSerializer.Meta):
        read_only_fields = ["name", *WebhookSerializer.Meta.read_only_fields]


class NewWebhookSerializer(WebhookSerializer):
    secret = serializers.CharField(read_only=True, help_text="Key of Nereus-Signature; shown in this answer alone.")

    class Meta(WebhookSerializer.Meta):
        fields = [*WebhookSerializer.Meta.fields, "secret"]


class DeliveredSerializer(serializers.Serializer):
    status = serializers.IntegerField(allow_null=True, help_text="HTTP's; null: there was no answer.")
    error = serializers.CharField(help_text="Empty: it was taken.")
    took_ms = serializers.FloatField()


class WebhookList(View):
    """All webhooks, without their secrets."""

    queryset = Webhook.objects.all()
    serializer_class = WebhookSerializer

    @extend_schema(operation_id="webhooks_list", responses=WebhookSerializer(many=True))
    def get(self, request):
        return self.listed(self.get_queryset(), WebhookSerializer)

    @extend_schema(operation_id="webhooks_create", responses={201: NewWebhookSerializer})
    def post(self, request):
        """Create a webhook.

        The key of its signatures is shown in this answer and never again.
        """
        fields = self.checked(WebhookSerializer)
        try:
            with transaction.atomic():
                if Webhook.objects.count() >= MOST:
                    raise Conflict(f"there are {MOST} webhooks, the most at once; delete one first")
                row = Webhook.objects.create(**fields)
                events.changed("webhook", row.name)
        except IntegrityError:
            raise Conflict(f"the name {fields['name']!r} is taken", "name") from None
        headers = {"Cache-Control": "no-store"}
        return Response(NewWebhookSerializer(row).data, status.HTTP_201_CREATED, headers=headers)


class WebhookDetail(View):
    queryset = Webhook.objects.all()
    serializer_class = WebhookSerializer
    lookup_field = "name"

    @extend_schema(operation_id="webhooks_get")
    def get(self, request, name):
        return Response(WebhookSerializer(self.get_object()).data)

    @extend_schema(operation_id="webhooks_change", request=ChangedWebhookSerializer)
    def patch(self, request, name):
        """Change a webhook's address or events, or switch it off or on."""
        row = self.get_object()
        fields = self.checked(ChangedWebhookSerializer, row, partial=True)
        with transaction.atomic():
            if fields and Webhook.objects.filter(pk=row.pk).update(**fields):
                events.changed("webhook", row.name)
        row.refresh_from_db()
        return Response(WebhookSerializer(row).data)

    @extend_schema(operation_id="webhooks_delete", responses={204: OpenApiResponse(description="Gone.")})
    def delete(self, request, name):
        """Delete a webhook; deliveries that wait are dropped."""
        row = self.get_object()
        with transaction.atomic():
            row.delete()
            events.changed("webhook", name)
        return Response(status=status.HTTP_204_NO_CONTENT)


class WebhookTest(View):
    queryset = Webhook.objects.all()
    serializer_class = DeliveredSerializer
    lookup_field = "name"

    @extend_schema(operation_id="webhooks_test", request=None, responses=DeliveredSerializer)
    def post(self, request, name):
        """Deliver a test event once, now, even where the webhook is switched off."""
        hook = self.get_object()
        delivered = webhooks.test(hook)
        record("tested", "webhook", hook.name, after={"status": delivered.status, "error": delivered.error[:300]})
        return Response(DeliveredSerializer(delivered).data)
