"""The audit log: who changed what, by every way, and no secret in it."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client as Browser
from django.test import TestCase
from django.utils import timezone
from rest_framework.test import APIClient

from appliance.local import firststart
from registry import clock, models, services
from registry import uploads as incoming
from registry.access import table
from registry.access.roles import role_of
from registry.audit import origins, recording
from registry.models import AuditEntry, hash_secret
from scheduler.history import marking
from scheduler.history.models import Mark
from scheduler.models import WhatIf
from tests.accounts import bearer
from tests.registry.conftest import problem


def entries(**wanted) -> list[AuditEntry]:
    return list(AuditEntry.objects.filter(**wanted).order_by("id"))


def test_a_change_over_rest_is_recorded_with_token_address_before_and_after(client, application):
    AuditEntry.objects.all().delete()
    client.patch("/api/v1/applications/tiny/", {"slo_ms": 250, "description": "new"}, REMOTE_ADDR="192.0.2.9")
    (entry,) = entries(kind="application")
    assert (entry.actor, entry.action, entry.ref) == ("operator", "changed", "tiny")
    assert entry.origin.startswith("REST, token token-") and entry.address == "192.0.2.9"
    assert entry.before == {"slo_ms": 100, "description": ""}
    assert entry.after == {"slo_ms": 250, "description": "new"}
    client.patch("/api/v1/applications/tiny/", {"slo_ms": 250})
    assert len(entries(kind="application")) == 1, "nothing changed"


@pytest.mark.django_db(transaction=True)
def test_every_call_that_changes_something_leaves_an_entry(operator, application, variant, device, clean_redis):
    variant(), device("box/cpu0"), device("box/cpu1")
    models.Device.objects.filter(ref="box/cpu1").update(detail=models.Device.GONE)
    client, signature = APIClient(), application.signature
    client.credentials(HTTP_AUTHORIZATION=bearer(operator))
    models.Gateway.objects.create(name="edge")
    models.Node.objects.update(division={"cores": [0, 1], "divided": "2x1", "ordered": False, "problem": ""})
    claimant = models.JoinToken.objects.create(name="claimant", token_hash="c" * 64)
    note = marking.mark(Mark.Kind.NOTE, "moved")
    job = models.ProfileJob.objects.create(variant=models.Variant.objects.get(), device_type="another", state="queued")
    imagined = WhatIf.objects.create(by="somebody", changes={})
    coming = incoming.Upload("tiny", "somebody", 2**24)
    incoming.moved(coming)
    calls = {
        ("POST", "repair-ignore"): ("/api/v1/repairs/waiting:gateway:edge/ignore/", {}),
        ("DELETE", "repair-ignore"): ("/api/v1/repairs/waiting:gateway:edge/ignore/", None),
        ("DELETE", "device"): ("/api/v1/devices/box/cpu1/", None),
        ("POST", "applications"): ("/api/v1/applications/", {"name": "b", "slo_ms": 9, "signature": signature}),
        ("PATCH", "application"): ("/api/v1/applications/tiny/", {"weight": 2}),
        ("PATCH", "variant"): ("/api/v1/applications/tiny/variants/v/", {"pinned": True}),
        ("POST", "variant-profile"): ("/api/v1/applications/tiny/variants/v/profile/", {}),
        ("POST", "node-revoke"): ("/api/v1/nodes/box/revoke/", {}),
        ("POST", "node-approve"): ("/api/v1/nodes/box/approve/", {}),
        ("POST", "node-cordon"): ("/api/v1/nodes/box/cordon/", {}),
        ("DELETE", "node-cordon"): ("/api/v1/nodes/box/cordon/", {}),
        ("POST", "node-division"): ("/api/v1/nodes/box/division/", {"cpu_devices": "1x2"}),
        ("DELETE", "node-division"): ("/api/v1/nodes/box/division/", None),
        ("POST", "gateway-approve"): ("/api/v1/gateways/edge/approve/", {}),
        ("POST", "gateway-revoke"): ("/api/v1/gateways/edge/revoke/", {}),
        ("POST", "node-claim"): ("/api/v1/nodes/box/claim/", {}),
        ("DELETE", "node-claim"): ("/api/v1/nodes/box/claim/", {}),
        ("POST", "gateway-claim"): ("/api/v1/gateways/edge/claim/", {}),
        ("DELETE", "gateway-claim"): ("/api/v1/gateways/edge/claim/", {}),
        ("DELETE", "node"): ("/api/v1/nodes/box/", None),
        ("DELETE", "gateway"): ("/api/v1/gateways/edge/", None),
        ("POST", "api-keys"): ("/api/v1/api-keys/", {"name": "k"}),
        ("PATCH", "api-key"): ("/api/v1/api-keys/k/", {"rate": 5}),
        ("DELETE", "api-key"): ("/api/v1/api-keys/k/", None),
        ("POST", "api-tokens"): ("/api/v1/api-tokens/", {"name": "t", "role": "viewer"}),
        ("DELETE", "api-token"): ("/api/v1/api-tokens/t/", None),
        ("POST", "join-tokens"): ("/api/v1/join-tokens/", {"name": "j"}),
        ("DELETE", "join-token"): ("/api/v1/join-tokens/j/", None),
        ("POST", "join-commands"): ("/api/v1/join-commands/", {"role": "node", "control": "http://127.0.0.1:1"}),
        ("POST", "webhooks"): (
            "/api/v1/webhooks/",
            {"name": "w", "url": "https://hooks.example/", "events": ["repair"]},
        ),
        ("PATCH", "webhook"): ("/api/v1/webhooks/w/", {"enabled": False}),
        ("DELETE", "webhook"): ("/api/v1/webhooks/w/", None),
        ("DELETE", "what-if"): (f"/api/v1/what-ifs/{imagined.pk}/", None),
        ("DELETE", "upload"): (f"/api/v1/uploads/{coming.key}/", None),
        ("POST", "marks"): ("/api/v1/marks/", {"text": "new fans"}),
        ("DELETE", "mark"): (f"/api/v1/marks/{note.pk}/", None),
        ("DELETE", "profile-job"): (f"/api/v1/profile-jobs/{job.pk}/", None),
        ("PATCH", "control"): ("/api/v1/control/", {"stack": "proteus"}),
        ("POST", "plan-current"): ("/api/v1/plan/", {}),
        ("DELETE", "variant"): ("/api/v1/applications/tiny/variants/v/", None),
        ("DELETE", "application"): ("/api/v1/applications/tiny/", None),
    }
    uploads = {("POST", "variants"), ("PUT", "validation-set"), ("DELETE", "validation-set")}
    # These ask and change nothing; what is applied of a what-if is ordered by the calls above, and recorded with them.
    asking = {("POST", "application-try"), ("POST", "what-ifs"), ("POST", "what-if-apply"), ("POST", "webhook-test")}
    changing = {(m, name) for name, methods in table.REST.items() for m in methods if m != "GET"}
    assert changing == calls.keys() | uploads | asking, "a new call needs a line here"
    for (method, name), (path, body) in calls.items():
        if name.endswith("-claim"):
            waiting = {"claim_channel": "c", "claim_s": clock.steady(), "claim_with": claimant}
            models.Node.objects.update(channel="", **waiting)
            models.Gateway.objects.update(channel="", **waiting)
        before = AuditEntry.objects.count()
        answer = client.generic(method, path, json.dumps(body or {}), "application/json")
        assert answer.status_code < 300, f"{method} {name}: {answer.content}"
        assert AuditEntry.objects.count() > before, f"{method} {name} left no entry"
    assert {entry.actor for entry in entries(origin__startswith="REST")} == {"operator"}


def test_uploads_are_recorded(upload, upload_validation, client):
    from tests.registry.graphs import good

    assert upload(good()).status_code == 201
    (made,) = entries(kind="variant")
    assert (made.action, made.ref, made.after["accuracy"]) == ("created", "tiny/v", 90)


def test_secrets_are_in_no_entry(client, operator):
    secrets = [
        client.post("/api/v1/api-keys/", {"name": "k"}).json()["key"],
        client.post("/api/v1/join-tokens/", {"name": "j"}).json()["token"],
        client.post("/api/v1/api-tokens/", {"name": "t", "role": "viewer"}).json()["token"],
    ]
    operator.set_password("a long passphrase")
    operator.save()
    hidden = [*secrets, *(hash_secret(secret) for secret in secrets), operator.password]
    written = json.dumps([[e.before, e.after, e.ref] for e in AuditEntry.objects.all()])
    assert not [secret for secret in hidden if secret in written]
    changed = entries(kind="account", action="changed")[-1]
    assert (changed.before, changed.after) == ({"password": "(secret)"}, {"password": "(new secret)"})


def test_the_systems_own_changes_are_the_systems(application, variant):
    variant(state="loading")
    services.answers("tiny")
    entry = entries(kind="variant", action="changed")[0]
    assert (entry.actor, entry.origin, entry.after) == ("system", "appliance", {"state": "ready"})


@pytest.mark.parametrize(
    "arguments, actor, way",
    [
        (["manage.py", "up"], "system", "start"),
        (["/opt/nereus/manage.py", "rotate", "password"], None, "command rotate"),
        (["/opt/nereus/appliance/local/lean_celery.py", "worker"], "system", "appliance"),
    ],
)
def test_a_commands_changes_are_its_users(arguments, actor, way, monkeypatch):
    monkeypatch.setattr("sys.argv", arguments)
    found = origins.origin()
    assert found.way == way and (found.actor == actor if actor else found.actor != "system")


def test_the_first_start_is_recorded(transactional_db, monkeypatch):
    monkeypatch.setattr("sys.argv", ["manage.py", "prepare"])
    (settings.NEREUS.home / "credentials.json").unlink(missing_ok=True)
    firststart.prepare()
    kinds = {entry.kind for entry in entries(actor="system", origin="start", action="created")}
    assert kinds == {"account", "api_key", "api_token", "join_token"}
    count = AuditEntry.objects.count()
    assert firststart.prepare() == []
    assert AuditEntry.objects.count() == count, "the next start changes nothing"
    (settings.NEREUS.home / "credentials.json").unlink()


def test_roles_and_sign_ins_are_recorded(db, operator):
    browser = Browser()
    User.objects.filter(pk=operator.pk).update(is_superuser=True)
    operator.set_password("a long passphrase")
    operator.save()
    browser.post("/login/", {"username": "operator", "password": "a long passphrase"})
    (entry,) = entries(action="signed in")
    assert (entry.actor, entry.origin, entry.address) == ("operator", "console", "127.0.0.1")
    page = browser.get("/admin/auth/user/add/")
    assert page.status_code == 200 and b"Single Sign-On" not in page.content
    viewer, owner = (Group.objects.get(name=name) for name in ("viewer", "model owner"))
    new = {"username": "new", "password1": "xkcd-936-horse", "password2": "xkcd-936-horse"}
    answer = browser.post("/admin/auth/user/add/", new)
    assert answer.status_code == 200 and not User.objects.filter(username="new"), "an account needs a role"
    browser.post("/admin/auth/user/add/", {**new, "groups": [viewer.pk]})
    made = User.objects.get(username="new")
    assert made.has_usable_password() and role_of(made).label == "viewer"
    address = f"/admin/auth/user/{made.pk}/change/"
    page = browser.get(address).content.decode()
    assert page.count('type="checkbox" name="groups"') == 3
    answer = browser.post(address, {"username": "new", "groups": [owner.pk], "is_active": "on"})
    assert answer.status_code == 302, answer.content[:2000]
    changes = [(e.actor, e.origin, e.after) for e in entries(ref="new", action="changed") if "roles" in e.after]
    # Roles are removed and added one after the other.
    assert {role for _, _, after in changes for role in after["roles"]} == {"viewer", "model owner"}
    assert changes[-1] == ("operator", "admin site", {"roles": ["model owner"]})


def test_entries_are_found_by_object_account_action_and_time(client, application):
    client.patch("/api/v1/applications/tiny/", {"slo_ms": 250})
    AuditEntry.objects.filter(ref="tiny").update(at=timezone.now() - timedelta(days=3))
    day = (timezone.now() - timedelta(days=1)).date().isoformat()

    def refs(query: str) -> set[str]:
        return {entry["ref"] for entry in client.get(f"/api/v1/audit/?{query}").json()["results"]}

    assert refs("kind=application") == {"tiny"} and refs("ref=TIN") == {"tiny"}
    assert "tiny" not in refs(f"since={day}") and refs(f"until={day}") == {"tiny"}
    assert refs("actor=nobody") == set()
    recording.record("deleted", "device", "gone")
    assert refs("action=deleted") == {"gone"} and refs("action=deleted&kind=application") == set()
    assert "tiny" in refs("action=changed&ref=tiny&actor=operator") and "gone" not in refs("action=changed")
    assert "2030-01-31" in problem(client.get("/api/v1/audit/?since=yesterday"), 400)["since"]


@pytest.mark.parametrize("moment", ["0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00"])
def test_a_time_that_is_of_no_year_in_utc_is_none(moment, client, operator):
    assert "no date or time" in problem(client.get("/api/v1/audit/", {"since": moment}), 400)["since"]
    browser = Browser()
    browser.force_login(operator)
    assert b"no date or time" in browser.get("/audit/", {"until": moment}).content


def test_what_people_changed_is_found_apart_from_the_rest(client, application):
    AuditEntry.objects.all().delete()
    for actor, action in (("system", "changed"), ("node box", "created"), ("ada", "signed in"), ("ada", "deleted")):
        AuditEntry.objects.create(actor=actor, origin="x", action=action, kind="api_key", ref="gate")
    (entry,) = client.get("/api/v1/audit/?only=people").json()["results"]
    assert (entry["actor"], entry["action"]) == ("ada", "deleted")
    assert problem(client.get("/api/v1/audit/?only=friends"), 400).keys() == {"only"}
    browser = Browser()
    browser.force_login(User.objects.get(username="operator"))
    # From the overview and from the keys one click leads there.
    overview = browser.get("/").content.decode()
    assert "ada deleted api key <strong>gate</strong>" in overview and 'href="/audit/?only=people"' in overview
    assert 'href="/audit/?kind=api_key"' in browser.get("/keys/").content.decode()
    page = browser.get("/audit/?only=people").content.decode()
    assert page.count('data-testid="entry-') == 1 and 'href="?kind=api_key&amp;ref=gate"' in page


def test_old_entries_go_by_a_clock_that_nobody_set_for_a_day(db, application, nereus, later, monkeypatch):
    def pass_(seconds: float, by_the_wall: float) -> None:
        now, wall = timezone.now, clock.wall
        later(seconds)
        monkeypatch.setattr(clock, "wall", lambda: wall() + by_the_wall)
        monkeypatch.setattr(timezone, "now", lambda: now() + timedelta(seconds=by_the_wall))

    nereus(audit_days=10)
    monkeypatch.setattr(recording, "_settled", clock.Settled())
    AuditEntry.objects.update(at=timezone.now() - timedelta(days=11))
    recording.record("changed", "application", "young")
    assert recording.prune() == 0, "the clock may have been set just before"
    pass_(recording.SETTLED_S, recording.SETTLED_S)
    assert recording.prune() == 1
    assert [entry.ref for entry in entries()] == ["young"]
    pass_(10, 1e9)
    assert recording.prune() == 0
    pass_(recording.SETTLED_S / 2, recording.SETTLED_S / 2 - 1e9)
    pass_(recording.SETTLED_S / 2, recording.SETTLED_S / 2)
    assert recording.prune() == 0, "a clock that was wrong for half a day costs no entry"


def test_a_change_that_is_rolled_back_leaves_no_entry(db, application):
    from django.db import transaction

    AuditEntry.objects.all().delete()
    with TestCase.captureOnCommitCallbacks(execute=True), pytest.raises(RuntimeError), transaction.atomic():
        models.Application.objects.filter(name="tiny").update(slo_ms=1)
        raise RuntimeError
    assert entries() == []
