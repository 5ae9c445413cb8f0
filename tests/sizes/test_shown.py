"""Measurements by size class, as operators and scripts find them."""

from __future__ import annotations

import re

import pytest

from registry.models import ProfileLatency
from tests.console.conftest import add_variant

pytestmark = pytest.mark.django_db


@pytest.fixture
def variant(application):
    """A variant that is profiled for any size in batches of 1 to 8, and up to 128 in 1 and 16."""
    application.sizes = [128, 512]
    application.save()
    made = add_variant(application, "texts", 95.0)
    for batch in (1, 16):
        ProfileLatency.objects.create(
            profile=made.profiles.get(), size=128, batch=batch, p50_ms=batch, p95_ms=2 * batch, mean_ms=batch, samples=9
        )
    return made


def table(html: str) -> list[list[str]]:
    found = re.search(r'data-testid="sizes-texts">.*?</figure>', html, re.S)
    assert found, "no table"
    rows = re.findall(r"<tr>(.*?)</tr>", found[0])
    return [[re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]


def test_a_variants_latencies_stand_in_columns_by_class(staff, variant):
    html = staff.get("/applications/digits/").content.decode()
    assert table(html) == [
        ["Batch", "up to 128", "up to 512"],
        ["1", "1.00 ms · 2.00 ms", "8.00 ms · 10 ms"],
        ["2", "–", "13 ms · 16 ms"],
        ["4", "–", "24 ms · 30 ms"],
        ["8", "–", "56 ms · 70 ms"],
        ["16", "16 ms · 32 ms", "–"],
    ]


def test_a_variant_of_one_class_has_no_table(staff, variant):
    ProfileLatency.objects.filter(size=128).delete()
    assert "sizes-texts" not in staff.get("/applications/digits/").content.decode()


def test_scripts_read_the_class_of_each_latency(staff, variant):
    (profile,) = staff.get("/api/v1/profiles/?application=digits").json()["results"]
    found = [(point["size"], point["batch"]) for point in profile["latencies"]]
    assert found == [(0, 1), (0, 2), (0, 4), (0, 8), (128, 1), (128, 16)]
