"""Signing in is locked by account and address, and slowed by address and for strangers; tokens are hashed."""

from __future__ import annotations

import importlib
from datetime import timedelta

import pytest
from axes.models import AccessAttempt
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from django.db import connection
from django.test import Client as Browser
from django.utils import timezone
from rest_framework.test import APIClient

from registry import models
from registry.models import AuditEntry, hash_secret
from tests.accounts import account, bearer
from tests.registry.conftest import problem

PASSWORD = "a long passphrase"


@pytest.fixture(autouse=True)
def fresh(db):
    cache.clear()
    yield
    cache.clear()


def sign_in(address: str, password: str = "wrong", name: str = "only"):
    return Browser(REMOTE_ADDR=address).post("/login/", {"username": name, "password": password})


def test_wrong_passwords_lock_the_account_for_their_address_alone():
    account("only", password=PASSWORD)
    statuses = [sign_in("192.0.2.1").status_code for _ in range(6)]
    assert statuses == [200] * 4 + [429] * 2
    locked = sign_in("192.0.2.1", PASSWORD)
    assert locked.status_code == 429 and b"15 minutes" in locked.content and locked["Retry-After"] == "901"
    assert sign_in("192.0.2.2", PASSWORD).status_code == 302, "from elsewhere the right password works"
    (entry,) = AuditEntry.objects.filter(action="locked out")
    assert entry.address == "192.0.2.1"
    assert AccessAttempt.objects.get().failures_since_start == 5, "what is refused unread leaves no trace to be stored"


def test_a_name_that_no_account_can_have_is_not_stored():
    refused = sign_in("192.0.2.1", name="a" * 300)
    assert refused.status_code == 200 and b"at most 150 characters" in refused.content
    assert not AccessAttempt.objects.exists()


def test_an_address_has_ten_attempts_a_minute_whatever_the_name():
    account("only", password=PASSWORD)
    statuses = [sign_in("192.0.2.1", name=f"name{i}").status_code for i in range(12)]
    assert statuses == [200] * 10 + [429] * 2
    slowed = sign_in("192.0.2.1", PASSWORD)
    assert slowed.status_code == 429 and b"Too many attempts" in slowed.content and int(slowed["Retry-After"]) <= 61


def test_an_account_that_is_signed_in_has_no_more_attempts_at_others():
    account("viewer", "viewer", password=PASSWORD)
    browser = Browser(REMOTE_ADDR="192.0.2.1")
    assert browser.post("/login/", {"username": "viewer", "password": PASSWORD}).status_code == 302
    guesses = [browser.post("/login/", {"username": f"name{i}", "password": "wrong"}).status_code for i in range(12)]
    assert guesses == [200] * 9 + [429] * 3


def test_strangers_share_their_attempts_and_cannot_keep_an_operator_out():
    account("only", password=PASSWORD)
    assert sign_in("198.51.100.1", PASSWORD).status_code == 302
    statuses = [sign_in(f"192.0.2.{i}", name=f"n{i}").status_code for i in range(40)]
    assert statuses.count(200) <= 30 and statuses[-1] == 429, "slow hashes for strangers are bounded together"
    assert sign_in("203.0.113.9", PASSWORD).status_code == 429
    assert sign_in("198.51.100.1", PASSWORD).status_code == 302, "where the operator signed in before"
    assert sign_in("127.0.0.1", PASSWORD).status_code == 302, "on this box"


def test_forwarding_headers_choose_no_address():
    account("only", password=PASSWORD)
    browser = Browser(REMOTE_ADDR="192.0.2.1")
    form = {"username": "only", "password": "wrong"}
    statuses = [browser.post("/login/", form, headers={"x-forwarded-for": f"10.0.0.{i}"}).status_code for i in range(7)]
    assert statuses[-1] == 429


def test_unknown_tokens_are_slowed_by_address():
    client = APIClient(REMOTE_ADDR="192.0.2.1")
    client.credentials(HTTP_AUTHORIZATION="Bearer nonsense")
    answers = [client.get("/api/v1/applications/") for _ in range(125)]
    assert {answer.status_code for answer in answers[:120]} == {401}
    problem(answers[-1], 429)
    assert int(answers[-1]["Retry-After"]) <= 61
    client.credentials(HTTP_AUTHORIZATION=bearer(account("operator")))
    assert client.get("/api/v1/applications/").status_code == 200, "a known token is no stranger's"


def test_an_account_has_a_rate_over_all_its_tokens(monkeypatch):
    from registry.access.throttles import AccountThrottle

    monkeypatch.setattr(AccountThrottle, "rate", "3/min")
    user, client = account("operator"), APIClient()
    for status in (200, 200, 200, 429):
        client.credentials(HTTP_AUTHORIZATION=bearer(user))
        assert client.get("/api/v1/applications/").status_code == status


def test_a_token_is_kept_as_a_hash_and_shown_once():
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=bearer(account("operator")))
    made = client.post("/api/v1/api-tokens/", {"name": "ci", "role": "model owner"})
    assert made.status_code == 201 and made["Cache-Control"] == "no-store"
    token = made.json()["token"]
    assert models.ApiToken.objects.get(name="ci").token_hash == hash_secret(token)
    listed = client.get("/api/v1/api-tokens/").content.decode()
    assert token not in listed and hash_secret(token) not in listed and '"ci"' in listed
    own = APIClient()
    own.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
    assert own.get("/api/v1/applications/").status_code == 200
    assert models.ApiToken.objects.get(name="ci").last_used is not None
    problem(own.get("/api/v1/api-keys/"), 403)
    assert (
        "viewer, model owner, operator"
        in problem(client.post("/api/v1/api-tokens/", {"name": "x", "role": "king"}), 400)["role"]
    )
    assert client.delete("/api/v1/api-tokens/ci/").status_code == 204
    problem(own.get("/api/v1/applications/"), 401)


def test_a_token_ends_with_its_time_its_account_and_its_accounts_role():
    user, client = account("operator"), APIClient()
    client.credentials(HTTP_AUTHORIZATION=bearer(user))
    past = (timezone.now() - timedelta(days=1)).isoformat()
    refused = client.post("/api/v1/api-tokens/", {"name": "x", "role": "viewer", "expires": past})
    assert "in the future" in problem(refused, 400)["expires"]
    user.groups.set([Group.objects.get(name="viewer")])
    problem(client.post("/api/v1/api-keys/", {"name": "k"}), 403)
    assert client.get("/api/v1/applications/").status_code == 200
    models.ApiToken.objects.update(expires=timezone.now())
    assert "expired" in client.get("/api/v1/applications/").json()["detail"]
    models.ApiToken.objects.update(expires=None)
    User.objects.update(is_active=False)
    problem(client.get("/api/v1/applications/"), 401)


def test_plain_tokens_and_staff_of_the_release_before_go_on():
    """The migration's own functions, on tables as that release left them."""
    migration = importlib.import_module("registry.migrations.0002_release_0_3_0")
    staff = User.objects.create_user("staff", is_staff=True)
    User.objects.create_user("other")
    with connection.schema_editor(atomic=False) if connection.vendor != "sqlite" else connection.cursor() as at:
        at.execute("CREATE TABLE authtoken_token (key varchar(40) PRIMARY KEY, user_id integer, created timestamp)")
        at.execute(f"INSERT INTO authtoken_token VALUES ('{'a1' * 20}', {staff.pk}, '2026-01-01')")

    class Editor:
        def __init__(self):
            self.connection = connection

        def execute(self, sql):
            with connection.cursor() as cursor:
                cursor.execute(sql)

    migration._make_operators(apps, Editor())
    migration._hash_tokens(apps, Editor())
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {'a1' * 20}")
    assert client.get("/api/v1/api-keys/").status_code == 200
    assert [user.username for user in Group.objects.get(name="operator").user_set.all()] == ["staff"]
    assert "authtoken_token" not in connection.introspection.table_names()
    migration._hash_tokens(apps, Editor())
