"""Accounts with roles, and their API tokens, in the test database."""

from __future__ import annotations

from django.contrib.auth.models import Group, User
from django.test import Client

from registry import members
from registry.models import ApiToken


def account(name: str, role: str | None = "operator", **more) -> User:
    user = User.objects.create_user(name, **more)
    if role is not None:
        user.groups.add(Group.objects.get_or_create(name=role)[0])
    return user


def signed_in(role: str = "operator") -> Client:
    client = Client()
    client.force_login(account(role.replace(" ", "-"), role))
    return client


def bearer(user: User, role: str = "operator", **more) -> str:
    _, token = members.create_api_token(f"token-{ApiToken.objects.count()}", user, role, **more)
    return f"Bearer {token}"
