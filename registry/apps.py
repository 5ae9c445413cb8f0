"""Django's configuration of the registry."""

from django.apps import AppConfig
from django.apps import apps as installed
from django.db.models.signals import post_migrate


class RegistryConfig(AppConfig):
    name = "registry"

    def ready(self) -> None:
        from django.contrib.auth.models import User

        from registry import models
        from registry.access.roles import BY_LABEL
        from registry.audit import signing, tracking
        from registry.webhooks.rows import Webhook

        def make_groups(sender, using, apps=installed, **_) -> None:
            # Migrations may have been run up to one at which there are no groups yet.
            try:
                groups = apps.get_model("auth", "Group").objects.using(using)
            except LookupError:
                return
            for label in BY_LABEL:
                groups.get_or_create(name=label)

        post_migrate.connect(make_groups, sender=self, weak=False, dispatch_uid="roles")
        track = tracking.track
        track(models.Application, "application", *models.Application.SETTABLE, "state")
        track(models.ValidationSet, "validation_set", "digest", "size_bytes", "metric", "rows")
        variant = ("name", "digest", "size_bytes", "accuracy", "accuracy_source", "state", "pinned", "excluded")
        track(models.Variant, "variant", *variant)
        track(models.Node, "node", "name", "state", "cordoned_at", "cordoned_until", "cpu_devices", "credential_hash")
        track(models.Gateway, "gateway", "name", "state", "address", "credential_hash")
        track(models.ApiKey, "api_key", "name", "prefix", "key_hash", *models.ApiKey.LIMITS)
        track(models.ApiToken, "api_token", "name", "user", "role", "prefix", "token_hash", "expires")
        track(
            models.JoinToken, "join_token", "name", "auto_approve", "kind", "expires", "uses", "own_box", "token_hash"
        )
        track(Webhook, "webhook", "name", "url", "events", "enabled")
        track(User, "account", "username", "is_active", "is_superuser", "password")
        tracking.track_groups(User.groups.through)
        signing.connect()
