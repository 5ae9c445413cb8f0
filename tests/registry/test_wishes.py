"""Operators' constraints on plans: floors and weights of applications, variants pinned or excluded."""

import numpy as np
import pytest
from django.db import IntegrityError, transaction

from registry import models
from tests.registry.conftest import npz, problem

URL = "/api/v1/applications/tiny/"


def test_a_floor_and_a_weight_are_set_and_announced(client, application, announced):
    assert client.get(URL).json()["floor"] == 0
    answered = client.patch(URL, {"floor": 0.4, "weight": 3}).json()
    assert (answered["floor"], answered["weight"]) == (0.4, 3)
    assert announced == [("application", "tiny")]


@pytest.mark.parametrize(
    ("body", "field", "text"),
    [
        ({"floor": -0.01}, "floor", "greater than or equal to 0"),
        ({"floor": 1.01}, "floor", "less than or equal to 1"),
        ({"floor": "half"}, "floor", "valid number"),
        ({"floor": "nan"}, "floor", "valid number"),
        ({"floor": None}, "floor", "null"),
        ({"floor": True}, "floor", "valid number"),
        ({"weight": 1001}, "weight", "less than or equal to 1000"),
        ({"weight": True}, "weight", "valid number"),
        ({"slo_ms": True}, "slo_ms", "valid number"),
    ],
)
def test_a_bad_wish_for_an_application_is_named_with_its_limit(body, field, text, client, application, announced):
    assert text in problem(client.patch(URL, body), 400)[field]
    application.refresh_from_db()
    assert (application.floor, application.weight, application.slo_ms) == (0, 1, 100)
    assert announced == []


def test_a_variant_is_pinned_and_released(client, variant, announced):
    variant("v")
    body = client.patch(URL + "variants/v/", {"pinned": True}).json()
    assert (body["pinned"], body["excluded"], body["accuracy"]) == (True, False, 90)
    client.patch(URL + "variants/v/", {"pinned": True})
    assert announced == [("variant", "tiny/v")], "a change to the same value is none"
    assert client.patch(URL + "variants/v/", {"pinned": False, "excluded": True}).json()["excluded"] is True
    assert len(announced) == 2


def test_several_wishes_come_with_one_request(client, variant, announced):
    variant("v")
    body = client.patch(URL + "variants/v/", {"excluded": True, "accuracy": 71}).json()
    assert (body["excluded"], body["accuracy"], body["accuracy_source"]) == (True, 71, "declared")
    assert announced == [("variant", "tiny/v")]


@pytest.mark.parametrize(
    ("body", "field", "text"),
    [
        ({"pinned": "perhaps"}, "pinned", "valid boolean"),
        ({"excluded": None}, "excluded", "null"),
        ({"pinned": True, "excluded": True}, "pinned", "excluded is true"),
        ({"pined": True}, "pined", "did you mean pinned?"),
        ({"accuracy": True}, "accuracy", "valid number"),
        ({"accuracy": "x"}, "accuracy", "valid number"),
        ({"accuracy": 101}, "accuracy", "less than or equal to 100"),
        ({"accuracy": 90, "name": "w"}, "name", "is not known"),
        ({}, "accuracy", "required"),
    ],
)
def test_a_bad_wish_for_a_variant_is_refused_by_name(body, field, text, client, variant, announced):
    variant("v")
    assert text in problem(client.patch(URL + "variants/v/", body), 400)[field]
    made = models.Variant.objects.get()
    assert (made.pinned, made.excluded, made.accuracy) == (False, False, 90)
    assert announced == []


@pytest.mark.parametrize(("has", "wants"), [("pinned", "excluded"), ("excluded", "pinned")])
def test_what_is_pinned_cannot_be_excluded_too(has, wants, client, variant):
    variant("v", **{has: True})
    assert f"is {has}" in problem(client.patch(URL + "variants/v/", {wants: True}), 409)[wants]
    assert client.patch(URL + "variants/v/", {wants: True, has: False}).status_code == 200
    with pytest.raises(IntegrityError), transaction.atomic():
        models.Variant.objects.update(pinned=True, excluded=True)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("row", [0, 300_000])
def test_a_validation_set_whose_inputs_are_not_finite_is_refused(value, row, upload_validation, files):
    x = np.zeros((300_001, 4), np.float32)
    x[row, 3] = value
    errors = problem(upload_validation(npz(x=x, labels=np.zeros(300_001, np.int64))), 400)
    assert "not finite" in errors["file.x"]
    assert files() == []
