"""The pages of promises and what-ifs."""

import re

import pytest
from django.test import Client

from console import calibration
from scheduler import tasks
from scheduler.models import Promise
from tests.accounts import signed_in

from .test_keeping import past

pytestmark = pytest.mark.django_db(transaction=True)
State = Promise.State


@pytest.fixture
def viewer(db) -> Client:
    return signed_in("viewer")


def text(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", answer.content.decode())


def test_without_a_plan_the_pages_say_what_to_do(clean_redis, viewer):
    assert "Register an application" in text(viewer, "/what-if/")
    assert "No promise yet" in text(viewer, "/promises/")


def test_the_form_shows_what_there_is(cluster, viewer):
    page = text(viewer, "/what-if/")
    for name in ("what-if-demand-digits", "what-if-slo-digits", "what-if-cordon-left", "what-if-remove-right/cpu1"):
        assert f'data-testid="{name}"' in page
    assert 'value="300"' in page and "20.0 items/s" in page
    assert "disabled" in page.split('data-testid="what-if-ask"')[1][:40], "viewers cannot ask"


def test_promises_are_shown_with_how_they_fared(cluster, viewer):
    for accuracy in (98.0, 98.5, 99.5):
        past(state=State.COMPARED, observed={"digits": {"items": 200, "accuracy": accuracy, "violations": 0.0}})
    tasks.promise()
    page = text(viewer, "/promises/")
    assert "2 of 3; expected 90%" in page and "3 of 3; expected 90%" in page
    assert 'data-testid="calibration-accuracy" data-marks="3"' in page
    assert page.count('class="missed"') == 1
    assert viewer.get("/promises/?application=nobody").status_code == 200


def test_marks_stay_within_the_chart(cluster):
    for accuracy in (0.0, 50.0, 100.0):
        past(state=State.COMPARED, observed={"digits": {"items": 9, "accuracy": accuracy, "violations": 0.0}})
    for figure in ("accuracy", "violations"):
        marks = calibration.chart(list(Promise.objects.all()), "digits", figure)["marks"]
        assert len(marks) == 3
        for mark in marks:
            assert 0 <= mark["top"] <= mark["bottom"] <= calibration.HEIGHT
            assert 0 <= mark["y"] <= calibration.HEIGHT and 0 <= mark["x"] <= calibration.WIDTH
    assert calibration.chart([], "digits", "accuracy") == {"marks": []}
