"""The control plane's own API key, for queries that are tried in the console.

It follows from the secret key, so that nothing needs to keep it; operators limit it or let it expire like any other.
Deleted, it is made again when it is next needed.
"""

from __future__ import annotations

import hashlib
import hmac

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, Value
from django.db.models.functions import Concat

from registry import events, members
from registry.models import ApiKey, hash_secret

#: queries/s of the key, and how many may come at once
RATE, BURST = 5.0, 10
#: before the key's prefix, its name: no other key has its own prefix in its name
_NAME = "console-"


def ready() -> tuple[str, bool]:
    """The key, and whether it was just made, so that gateways do not know it yet."""
    key = _key()
    if ApiKey.objects.filter(key_hash=hash_secret(key)).exists():
        return key, False
    row = ApiKey(name=f"{_NAME}{key[:8]}", prefix=key[:8], key_hash=hash_secret(key), rate=RATE, burst=BURST)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            events.changed("api_key", row.name)
    except IntegrityError:
        pass  # another thread made it just now
    return key, True


def end_earlier() -> None:
    """Delete the keys that follow from earlier secret keys."""
    named = ApiKey.objects.filter(name=Concat(Value(_NAME), F("prefix")))
    for row in named.exclude(key_hash=hash_secret(_key())):
        members.delete_secret(row)


def _key() -> str:
    return hmac.new(settings.SECRET_KEY.encode(), b"nereus: key of the console's queries", hashlib.sha256).hexdigest()
