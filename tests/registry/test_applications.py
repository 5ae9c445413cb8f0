"""Applications over REST: rules of their fields, changes, and problems of every other kind of request."""

from __future__ import annotations

import copy

import pytest

from registry import models
from scheduler.control.wire import application_spec
from tests.registry.conftest import problem
from tests.registry.graphs import SIGNATURE

URL = "/api/v1/applications/"


def _body(**changes) -> dict:
    return {"name": "faces", "slo_ms": 50, "signature": copy.deepcopy(SIGNATURE), **changes}


def _tensor(**changes) -> dict:
    signature = copy.deepcopy(SIGNATURE)
    signature["inputs"][0].update(changes)
    return signature


def test_an_application_is_registered_and_announced(client, announced):
    response = client.post(URL, _body(late="serve", weight=2.5, description="Who is it?"))
    assert response.status_code == 201, response.content
    assert response["Location"].endswith("/api/v1/applications/faces/")
    answered = client.get(URL + "faces/").json()
    assert response.json() == answered
    assert (answered["late"], answered["weight"], answered["state"]) == ("serve", 2.5, "active")
    assert answered["signature"] == SIGNATURE
    assert client.get(URL).json()["count"] == 1
    assert announced == [("application", "faces")]


BAD = {
    "no name": ({"name": ""}, "name", "blank"),
    "name with a space": ({"name": "a b"}, "name", "must be 1 to 63 letters"),
    "name with a line end": ({"name": "a\nb"}, "name", "must be 1 to 63 letters"),
    "name too long": ({"name": "a" * 64}, "name", "63"),
    "SLO of zero": ({"slo_ms": 0}, "slo_ms", "greater than or equal to 1"),
    "SLO of an hour": ({"slo_ms": 3.6e6}, "slo_ms", "less than or equal to 600000"),
    "SLO beyond numbers": ({"slo_ms": "1e999"}, "slo_ms", "valid number"),
    "SLO in words": ({"slo_ms": "fast"}, "slo_ms", "valid number"),
    "late policy": ({"late": "never"}, "late", "is not one of shed, serve"),
    "non-finite numbers": ({"non_finite": "zero"}, "non_finite", "is not one of error, null"),
    "weight": ({"weight": 0}, "weight", "0.001"),
    "unknown field": ({"slo": 5}, "slo", "did you mean slo_ms?"),
    "field that cannot be set": ({"state": "draining"}, "state", "cannot be set"),
    "no signature": ({"signature": None}, "signature", "null"),
    "signature as text": ({"signature": "x"}, "signature", "must be an object"),
    "signature without outputs": (
        {"signature": {"inputs": SIGNATURE["inputs"]}},
        "signature.outputs",
        "1 to 1000 tensors",
    ),
    "no inputs": ({"signature": {**SIGNATURE, "inputs": []}}, "signature.inputs", "1 to 1000 tensors"),
    "too many inputs": (
        {"signature": {**SIGNATURE, "inputs": SIGNATURE["inputs"] * 1001}},
        "signature.inputs",
        "1 to 1000 tensors",
    ),
    "same name twice": (
        {"signature": {**SIGNATURE, "inputs": SIGNATURE["inputs"] * 2}},
        "signature.inputs.1.name",
        "there twice",
    ),
    "unknown part of a signature": ({"signature": {**SIGNATURE, "extra": []}}, "signature.extra", "is not known"),
    "unknown part of a tensor": ({"signature": _tensor(dtype="FP32")}, "signature.inputs.0.dtype", "is not known"),
    "tensor name": ({"signature": _tensor(name="")}, "signature.inputs.0.name", "1 to 200 printable"),
    "datatype": ({"signature": _tensor(datatype="float32")}, "signature.inputs.0.datatype", "is not one of BOOL"),
    "FP8": ({"signature": _tensor(datatype="FP8")}, "signature.inputs.0.datatype", "'FP8' is not one of"),
    "no batch dimension": ({"signature": _tensor(shape=[1, 4])}, "signature.inputs.0.shape", "must begin with -1"),
    "empty shape": ({"signature": _tensor(shape=[])}, "signature.inputs.0.shape", "1 to 8 dimensions"),
    "rank 9": ({"signature": _tensor(shape=[-1] * 9)}, "signature.inputs.0.shape", "1 to 8 dimensions"),
    "dimension 0": ({"signature": _tensor(shape=[-1, 0])}, "signature.inputs.0.shape", "-1 (any) or 1 and more"),
    "dimension in words": ({"signature": _tensor(shape=[-1, "n"])}, "signature.inputs.0.shape", "whole numbers"),
    "dimension true": ({"signature": _tensor(shape=[-1, True])}, "signature.inputs.0.shape", "whole numbers"),
    "a row of a TiB": (
        {"signature": _tensor(shape=[-1, 2**19, 2**19])},
        "signature.inputs.0.shape",
        "the limit is 67108864 bytes",
    ),
    "a row whose bytes have 8,000 digits": (
        {"signature": _tensor(shape=[-1, 10**4000, 10**4000])},
        "signature.inputs.0.shape",
        "a dimension of more than 67108864",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_field_is_named_with_its_limit(kind, client, announced):
    changes, field, text = BAD[kind]
    errors = problem(client.post(URL, _body(**changes)), 400)
    assert field in errors, errors
    assert text in errors[field]
    assert not models.Application.objects.exists() and announced == []


def test_every_wrong_field_is_reported_at_once(client):
    errors = problem(client.post(URL, {"name": "?", "slo_ms": -1, "signature": _tensor(shape=[2], datatype="X")}), 400)
    assert {"name", "slo_ms", "signature.inputs.0.shape", "signature.inputs.0.datatype"} <= set(errors)


UNREADABLE = {
    "broken": (b"{", 400, "JSON parse error"),
    "too deep to read": (b"[" * 100_000, 400, "JSON parse error"),
    "deep": (b'{"padding": ' + b"[" * 40 + b"]" * 40 + b"}", 400, "nested deeper than 32 levels"),
    "list": (b"[]", 400, "must be a JSON object, not an array"),
    "null": (b"null", 400, "must be a JSON object, not null"),
    "number": (b"1e3", 400, "must be a JSON object, not a number"),
    "NaN": (b'{"slo_ms": NaN}', 400, "JSON parse error"),
    "infinity": (b'{"slo_ms": 1e999}', 400, "out of range"),
    "not UTF-8": (b"\xff\xfe", 400, "JSON parse error"),
    "half a pair": (rb'{"name": "\ud800"}', 400, "JSON parse error"),
    "half a pair in a name": (rb'{"\uDFFF": {}}', 400, "JSON parse error"),
    "too large": (b'"' + b"a" * 2**20 + b'"', 413, "limit of 1048576 bytes"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_body_that_cannot_be_read_is_a_problem(kind, client):
    body, status, text = UNREADABLE[kind]
    response = client.post(URL, body, content_type="application/json")
    problem(response, status)
    assert text in response.json()["detail"]


@pytest.mark.parametrize("given", [5, "x", [[]], True, [None]])
def test_a_nested_value_that_must_be_an_object_is_reported(given, client, application):
    path = URL + "tiny/try/"
    assert "inputs.0" in problem(client.post(path, {"inputs": [given]}), 400)
    inputs = [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0, 0, 0, 0]}]
    assert "parameters" in problem(client.post(path, {"inputs": inputs, "parameters": given}), 400)


def test_other_requests_that_fail_are_problems_too(client, application):
    problem(client.get(URL + "nobody/"), 404)
    response = client.put(URL + "tiny/", {})
    problem(response, 405)
    assert "PATCH" in response["Allow"]
    problem(client.get(URL, HTTP_ACCEPT="text/html"), 406)
    assert "drain" in problem(client.delete(URL + "tiny/?drain=maybe"), 400)
    problem(client.get("/api/v1/blobs/" + "0" * 64 + "/"), 404)


def test_a_failure_of_ours_is_a_problem_without_details(client, monkeypatch):
    from registry import services

    monkeypatch.setattr(services, "create_application", lambda fields: 1 / 0)
    response = client.post(URL, _body())
    problem(response, 500)
    assert "division" not in response.content.decode()


def test_a_taken_name_is_a_conflict(client, application):
    assert "exists" in problem(client.post(URL, _body(name="tiny")), 409)["name"]


def test_changes_touch_only_what_they_name(client, application, announced):
    response = client.patch(URL + "tiny/", {"slo_ms": 40, "late": "serve"})
    assert response.status_code == 200, response.content
    assert (response.json()["slo_ms"], response.json()["late"], response.json()["weight"]) == (40, "serve", 1)
    assert announced == [("application", "tiny")]
    client.patch(URL + "tiny/", {"slo_ms": 40})
    assert announced == [("application", "tiny")], "a change to the same value is none"


def test_null_for_numbers_that_json_has_not_reaches_the_data_plane(client, application):
    assert application_spec(models.Application.objects.get(name="tiny")).non_finite == "error"
    assert client.patch(URL + "tiny/", {"non_finite": "null"}).json()["non_finite"] == "null"
    assert application_spec(models.Application.objects.get(name="tiny")).non_finite == "null"


def test_the_name_cannot_change(client, application):
    assert "cannot be changed" in problem(client.patch(URL + "tiny/", {"name": "other"}), 400)["name"]


def test_the_signature_can_change_until_there_are_variants(client, application, variant):
    assert client.patch(URL + "tiny/", {"signature": _tensor(shape=[-1, 9])}).status_code == 200
    variant()
    errors = problem(client.patch(URL + "tiny/", {"signature": SIGNATURE}), 409)
    assert "while the application has variants" in errors["signature"]
    assert client.patch(URL + "tiny/", {"signature": _tensor(shape=[-1, 9])}).status_code == 200, "no change at all"


def test_a_longer_slo_orders_profiles_that_reach_it(client, application, variant, device):
    device(type="cpu-a")
    variant()
    client.patch(URL + "tiny/", {"slo_ms": 90})
    assert not models.ProfileJob.objects.exists()
    client.patch(URL + "tiny/", {"slo_ms": 300})
    assert [job.device_type for job in models.ProfileJob.objects.all()] == ["cpu-a"]


def test_a_draining_application_takes_no_changes(client, application):
    models.Application.objects.update(state="draining")
    response = client.patch(URL + "tiny/", {"slo_ms": 40})
    problem(response, 409)
    assert "is being deleted" in response.json()["detail"]
    assert models.Application.objects.get().slo_ms == 100
