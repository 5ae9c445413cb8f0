"""First start of an appliance: make tables, the admin user, tokens and keys."""

from __future__ import annotations

import secrets

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import transaction
from rest_framework.authtoken.models import Token

from appliance.secrets import credentials, save_credentials
from registry.models import ApiKey, Gateway, JoinToken, Node, hash_secret, new_secret

ADMIN = "admin"


def prepare() -> dict[str, str]:
    """Bring the database up to date and make sure that everything in ``credentials.json`` works.

    Returns the credentials (``console_user``, ``console_password``, ``api_token``, ``api_key``, and the local members'
    ``join_token``). A password that the operator changed in the console stays as it is.
    """
    call_command("migrate", interactive=False, verbosity=0)
    known = credentials(settings.NEREUS.home)
    user_name = known.get("console_user", ADMIN)
    # A secret that an operator deleted must not come back to life: a new one takes its place.
    later = get_user_model().objects.filter(username=user_name).exists()

    def keep(name: str, exists: bool) -> str | None:
        return known.get(name) if exists or not later else None

    values = {
        "console_user": user_name,
        "console_password": known.get("console_password") or secrets.token_urlsafe(12),
        "api_token": keep("api_token", Token.objects.filter(key=known.get("api_token", "")).exists())
        or secrets.token_hex(20),
        "api_key": keep("api_key", _there(ApiKey, "key_hash", known.get("api_key"))) or new_secret(),
        "join_token": keep("join_token", _there(JoinToken, "token_hash", known.get("join_token"))) or new_secret(),
    }
    if values != known:
        # Written before the database changes: a start that is cut off here is completed by the next.
        save_credentials(settings.NEREUS.home, values)
    with transaction.atomic():
        users = get_user_model().objects
        user = users.filter(username=values["console_user"]).first()
        if user is None:
            user = users.create_superuser(values["console_user"], password=values["console_password"])
        if not Token.objects.filter(key=values["api_token"]).exists():
            Token.objects.filter(user=user).delete()
            Token.objects.create(user=user, key=values["api_token"])
        ApiKey.objects.update_or_create(
            name="local",
            defaults={"prefix": values["api_key"][:8], "key_hash": hash_secret(values["api_key"])},
        )
        JoinToken.objects.update_or_create(
            name="local", defaults={"token_hash": hash_secret(values["join_token"]), "auto_approve": True}
        )
        # Connections of the last run are gone, however it ended.
        Node.objects.update(channel="")
        Gateway.objects.update(channel="")
    return values


def _there(model: type[ApiKey] | type[JoinToken], column: str, secret: str | None) -> bool:
    return secret is not None and model.objects.filter(**{column: hash_secret(secret)}).exists()
