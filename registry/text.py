"""Texts that members report, as they can be stored."""

from __future__ import annotations

#: characters of a text that says why
MAX_TEXT = 2_000


def storable(text: str, limit: int = MAX_TEXT) -> str:
    """``text``, cut, without NUL, which PostgreSQL does not store."""
    return text.replace("\0", "")[:limit]
