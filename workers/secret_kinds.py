"""Secrets of people and programs, whose first letters say what they are for.

They say it to people and to scanners of leaked secrets; nothing is permitted by them.
"""

from __future__ import annotations

import secrets

#: first letters by kind; secrets from earlier releases have none
PREFIXES = {"api_key": "nk_", "api_token": "nt_", "join_token": "nj_"}
#: what each kind is for, in errors about another one
USES = {
    "api_key": "an API key, which is for queries (V2 over HTTP and gRPC)",
    "api_token": "an API token, which is for REST (/api/v1/)",
    "join_token": "a join token, which admits nodes and gateways",
}


def new_secret(kind: str = "") -> str:
    """256 random bits, URL-safe, behind the letters of their kind, if it has some."""
    return PREFIXES.get(kind, "") + secrets.token_urlsafe(32)


def kind_of(secret: str) -> str:
    """The kind that a secret's first letters name; empty: none."""
    return next((kind for kind, prefix in PREFIXES.items() if secret.startswith(prefix)), "")
