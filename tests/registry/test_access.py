"""Permissions, and secrets that are shown once or never."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import pytest
from django.urls import get_resolver
from django.utils import timezone
from rest_framework.test import APIClient

from registry import clock, members, models, storage
from registry.models import hash_secret
from tests.accounts import bearer
from tests.registry import graphs
from tests.registry.conftest import problem


@pytest.mark.parametrize("header", ["Bearer nonsense", "Bearer", "Bearer a b", "Token nonsense", "Bearer \xff"])
def test_a_bad_token_is_unauthorized(header, db):
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=header)
    response = client.get("/api/v1/applications/")
    problem(response, 401)
    assert response["WWW-Authenticate"].startswith("Bearer")


def test_the_frameworks_own_word_for_tokens_works_too(operator):
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=bearer(operator).replace("Bearer", "Token"))
    assert client.get("/api/v1/applications/").status_code == 200


def test_a_session_needs_its_csrf_token_to_change_things(operator):
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(operator)
    assert client.get("/api/v1/applications/").status_code == 200
    response = client.post("/api/v1/api-keys/", {"name": "k"})
    problem(response, 403)
    assert "CSRF" in response.json()["detail"]


def test_an_api_key_is_shown_once(client, announced):
    response = client.post("/api/v1/api-keys/", {"name": "line-3"})
    assert response.status_code == 201 and response["Cache-Control"] == "no-store"
    key = response.json()["key"]
    assert len(key) >= 40 and key.startswith(response.json()["prefix"])
    assert models.ApiKey.objects.get().key_hash == hash_secret(key)
    listed = client.get("/api/v1/api-keys/").content.decode()
    assert key not in listed and hash_secret(key) not in listed and "line-3" in listed
    assert "taken" in problem(client.post("/api/v1/api-keys/", {"name": "line-3"}), 409)["name"]
    assert "cannot be set" in problem(client.post("/api/v1/api-keys/", {"name": "x", "prefix": "mine"}), 400)["prefix"]
    assert client.delete("/api/v1/api-keys/line-3/").status_code == 204
    assert not models.ApiKey.objects.exists()
    assert announced == [("api_key", "line-3")] * 2


def test_a_join_token_is_shown_once(client):
    response = client.post("/api/v1/join-tokens/", {"name": "hall", "auto_approve": True})
    token = response.json()["token"]
    row = models.JoinToken.objects.get()
    assert response.status_code == 201 and row.auto_approve and row.token_hash == hash_secret(token)
    listed = client.get("/api/v1/join-tokens/").content.decode()
    assert token not in listed and hash_secret(token) not in listed
    assert (
        "boolean" in problem(client.post("/api/v1/join-tokens/", {"name": "b", "auto_approve": 7}), 400)["auto_approve"]
    )
    assert "63 letters" in problem(client.post("/api/v1/join-tokens/", {"name": "a b"}), 400)["name"]
    assert client.delete("/api/v1/join-tokens/hall/").status_code == 204
    problem(client.delete("/api/v1/join-tokens/hall/"), 404)


def test_a_join_token_has_limits(client):
    def problems(**limits) -> dict:
        return problem(client.post("/api/v1/join-tokens/", {"name": "x", **limits}, format="json"), 400)

    assert "any, node, gateway" in problems(kind="banana")["kind"]
    assert "greater than or equal to 1" in problems(uses=0)["uses"]
    assert "less than or equal to 1000000" in problems(uses=10**400)["uses"] or problems(uses=10**400)["uses"]
    assert "must be in the future" in problems(expires="2020-01-01T00:00Z")["expires"]
    assert "must be before the year 9999" in problems(expires="9999-12-31T23:59:59Z")["expires"]
    assert "cannot be set" in problems(own_box=True)["own_box"] and "cannot be set" in problems(used=7)["used"]
    limits = {"kind": "gateway", "uses": 3, "expires": "2999-01-01T00:00:00Z"}
    made = client.post("/api/v1/join-tokens/", {"name": "hall", **limits}, format="json").json()
    assert {name: made[name] for name in limits} == limits and (made["used"], made["own_box"]) == (0, False)
    (entry,) = models.AuditEntry.objects.filter(kind="join_token")
    assert (entry.after["kind"], entry.after["uses"]) == ("gateway", 3) and "2999" in str(entry.after["expires"])
    plain = client.post("/api/v1/join-tokens/", {"name": "plain"}).json()
    assert (plain["kind"], plain["uses"], plain["expires"], plain["auto_approve"]) == ("any", None, None, False)


@pytest.mark.parametrize(("kind", "model"), [("node", models.Node), ("gateway", models.Gateway)])
def test_a_claim_is_shown_and_decided(kind, model, client, announced):
    token = models.JoinToken.objects.create(name="hall", token_hash="h" * 64)
    box = model.objects.create(name="box", credential_hash=hash_secret("c"), state="approved")
    url = f"/api/v1/{kind}s/box/"
    assert client.get(url).json()["claim"] is None
    for call in (client.post, client.delete):
        response = call(url + "claim/")
        problem(response, 409)
        assert "nobody claims the name" in response.json()["detail"]

    def claim() -> None:
        waiting = {"claim_channel": "c", "claim_s": clock.steady(), "claimed_at": timezone.now()}
        model.objects.update(claim_with=token, claim_address="10.0.0.7", **waiting)

    claim()
    shown = client.get(url).json()["claim"]
    assert (shown["join_token"], shown["address"]) == ("hall", "10.0.0.7") and shown["since"]
    refused = client.delete(url + "claim/")
    assert refused.status_code == 200 and refused.json()["claim"] is None
    box.refresh_from_db()
    assert box.credential_hash and not box.channel
    claim()
    assert client.post(url + "claim/").status_code == 200
    box.refresh_from_db()
    assert (box.credential_hash, box.channel, box.joined_with) == ("", "c", token)
    assert announced == [(kind, "box")] * 2


@pytest.mark.parametrize(("kind", "model"), [("node", models.Node), ("gateway", models.Gateway)])
def test_a_members_certificate_is_shown_without_any_key(kind, model, client):
    until = timezone.now().replace(microsecond=0) + timedelta(days=30)
    box = model.objects.create(name="box", state="approved")
    url = f"/api/v1/{kind}s/box/"
    assert client.get(url).json()["certificate"] is None
    model.objects.update(key_hash="ab" * 32, certificate_until=until)
    shown = client.get(url).json()["certificate"]
    assert shown == {"key": "ab" * 32, "until": until.strftime("%Y-%m-%dT%H:%M:%SZ"), "lapsed": False}
    for body in ({"key_hash": "cd" * 32}, {"certificate": None}):
        assert client.patch(url, body).status_code in (400, 405)
    box.refresh_from_db()
    assert box.key_hash == "ab" * 32


def test_devices_show_which_gateways_reach_them(client, device):
    device("near/cpu0"), device("far/cpu0"), device("old/cpu0")
    models.Node.objects.filter(name="near").update(machine="a")
    models.Node.objects.filter(name="far").update(machine="b")

    def shown(ref: str) -> tuple[list[str], str]:
        answer = client.get(f"/api/v1/devices/{ref}/").json()
        return answer["gateways"], answer["unreachable"]

    assert shown("far/cpu0") == ([], ""), "before the first gateway nothing can be said"
    models.Gateway.objects.create(name="front", machine="a", state="approved")
    models.Gateway.objects.create(name="waiting", machine="b", state="pending")
    assert shown("near/cpu0") == (["front"], "")
    gateways, why = shown("far/cpu0")
    assert gateways == [] and why.startswith("not reachable from any gateway: ")
    assert "set NEREUS_EXECUTORS on node far, start a gateway on its box, or revoke the node" in why
    assert shown("old/cpu0") == (["front"], ""), "a node of an earlier release does not report its box"
    listed = {row["ref"]: bool(row["unreachable"]) for row in client.get("/api/v1/devices/").json()["results"]}
    assert listed == {"far/cpu0": True, "near/cpu0": False, "old/cpu0": False}
    models.Gateway.objects.filter(name="waiting").update(state="approved")
    assert shown("far/cpu0") == (["waiting"], "")


@pytest.mark.parametrize(("kind", "model"), [("node", models.Node), ("gateway", models.Gateway)])
def test_members_are_approved_revoked_and_forgotten(kind, model, client, announced):
    model.objects.create(name="box", credential_hash=hash_secret("c"), channel="specific.x")
    url = f"/api/v1/{kind}s/box/"
    assert client.get(url).json()["state"] == "pending"
    assert hash_secret("c") not in client.get(url).content.decode()
    assert client.post(url + "approve/").json()["state"] == "approved"
    assert client.post(url + "approve/").json()["state"] == "approved"
    assert announced == [(kind, "box")], "approving twice changes nothing"
    assert client.post(url + "revoke/").json()["state"] == "revoked"
    response = client.delete(url)
    problem(response, 409)
    assert "'box' is connected" in response.json()["detail"]
    model.objects.update(channel="")
    assert client.delete(url).status_code == 204
    assert not model.objects.exists()
    problem(client.post(url + "approve/"), 404)
    problem(client.get(url + "approve/"), 405)


def test_a_device_is_found_by_its_whole_name(client, device):
    device("box/cpu0")
    assert client.get("/api/v1/devices/box/cpu0/").json()["node"] == "box"
    assert client.get("/api/v1/devices/").json()["count"] == 1
    problem(client.get("/api/v1/devices/box/cpu1/"), 404)


@pytest.fixture
def blob(upload):
    return f"/api/v1/blobs/{upload(graphs.good()).json()['digest']}/"


def _as(credential: str) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {credential}")
    return client


def test_an_approved_node_fetches_files(blob, client):
    node = models.Node.objects.create(name="box", credential_hash=hash_secret("secret"), state="approved")
    for caller in (_as("secret"), client):
        # Never compressed: nodes go on from a byte.
        response = caller.get(blob, HTTP_ACCEPT="application/octet-stream", HTTP_ACCEPT_ENCODING="gzip")
        assert response.status_code == 200 and "Content-Encoding" not in response
        content = b"".join(response)
        assert content == graphs.good() and int(response["Content-Length"]) == len(content)
    problem(_as("other").get(blob), 401)
    problem(_as("").get(blob), 401)
    problem(APIClient().get(blob), 401)
    members.set_state(node, models.Node.State.REVOKED)
    problem(_as("secret").get(blob), 401)


def test_a_nodes_credential_opens_nothing_else(blob):
    models.Node.objects.create(name="box", credential_hash=hash_secret("secret"), state="approved")
    problem(_as("secret").get("/api/v1/applications/"), 401)


def test_a_node_without_a_credential_is_nobody(blob):
    models.Node.objects.create(name="box", credential_hash="", state="approved")
    problem(_as("").get(blob), 401)


def test_a_file_that_no_row_needs_is_not_served(client, store):
    data = b"left over"
    digest = hashlib.sha256(data).hexdigest()
    path = storage.path(digest)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    problem(client.get(f"/api/v1/blobs/{digest}/"), 404)


def test_a_digest_never_names_a_file_elsewhere():
    for bad in ("../../etc/passwd", "a" * 63, "A" * 64, "a" * 64 + "\n", ""):
        with pytest.raises(ValueError, match="not a sha256"):
            storage.path(bad)


def test_the_openapi_schema_is_made_without_a_complaint(client, capsys):
    from drf_spectacular.drainage import GENERATOR_STATS
    from drf_spectacular.generators import SchemaGenerator
    from drf_spectacular.validation import validate_schema

    import registry.api.urls

    with GENERATOR_STATS.silence():
        GENERATOR_STATS.reset()
        schema = SchemaGenerator(urlconf="registry.api.urls").get_schema(request=None, public=True)
        complaints = [*GENERATOR_STATS._error_cache, *GENERATOR_STATS._warn_cache]
    assert complaints == []
    validate_schema(schema)
    served = {pattern.name for pattern in registry.api.urls.urlpatterns} - {"schema"}
    assert len(schema["paths"]) == len(served)
    for methods in schema["paths"].values():
        for operation in methods.values():
            assert "application/problem+json" in operation["responses"]["default"]["content"]


def test_the_schema_is_served_as_yaml_and_json(client):
    assert get_resolver().resolve("/api/v1/schema/")
    yaml = client.get("/api/v1/schema/")
    assert yaml.status_code == 200 and b"openapi: 3" in yaml.content
    json = client.get("/api/v1/schema/", HTTP_ACCEPT="application/json")
    assert json.json()["info"]["title"] == "Nereus control API"
