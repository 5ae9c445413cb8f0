"""Columns of a kind of their own."""

from __future__ import annotations

import functools
import json
from typing import Any

from django.db import models

#: characters of text from which on it is decoded once, and how many are kept
LONG, KEPT = 4096, 8


class SharedJSONField(models.JSONField):
    """JSON that comes along with each joined row.

    Rows share long values, decoded once: they must never be changed in place.
    """

    def from_db_value(self, value, expression, connection) -> Any:
        if isinstance(value, str) and len(value) >= LONG:
            return _decoded(value)
        return super().from_db_value(value, expression, connection)

    def deconstruct(self):
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs


@functools.lru_cache(KEPT)
def _decoded(text: str) -> Any:
    return json.loads(text)
