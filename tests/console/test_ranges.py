"""An application's charts over a range of time, in a real browser."""

from __future__ import annotations

import re

import pytest

from registry import clock
from scheduler.history import marking, recording
from scheduler.history.models import Mark
from tests.history.test_recording import report
from tools.chromium import InThread, expect

pytestmark = [pytest.mark.wide, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


def shown(page: InThread, address: str) -> tuple[int, int]:
    pattern = re.compile(rf"{address}\?begin=(\d+)&end=(\d+)$")
    expect(page).to_have_url(pattern)
    begin, end = pattern.search(page.url).groups()
    return int(begin), int(end)


def test_dragging_over_a_chart_zooms_all_of_them_and_the_address_holds_the_range(page, cluster):
    end = int(clock.wall()) // 60 * 60
    for back in range(60, 660, 60):
        report(name="digits", variant="quick", at=end - back)
    recording.record()
    marking.mark(Mark.Kind.NOTE, "a fan was replaced", by="operator")
    page.goto("/applications/digits/?range=3600")
    chart = page.get_by_test_id("chart-variants")
    expect(chart).to_have_attribute("data-points", re.compile("[1-9]"))
    # Marks come by a request of their own.
    expect(page.get_by_test_id("marks")).to_contain_text("a fan was replaced")
    canvas = chart.locator("canvas")
    width = canvas.bounding_box()["width"]
    canvas.drag_to(canvas, source_position={"x": 0.6 * width, "y": 50}, target_position={"x": 0.9 * width, "y": 50})
    begin, zoomed_end = shown(page, "/applications/digits/")
    # The right half of the hour holds all answers, and less of it is shown than before.
    assert end - 3600 < begin < zoomed_end <= end + 120 and zoomed_end - begin < 1800
    expect(chart).to_have_attribute("data-points", re.compile("[1-9]"))
    expect(page.get_by_test_id("variant-shares")).to_contain_text("quick 100")
    expect(page.get_by_test_id("range-shown")).not_to_be_empty()
    # Back leads to the range before, and keys move it as well.
    page.go_back()
    expect(page).to_have_url(re.compile(r"\?range=3600$"))
    page.locator('#moves [aria-label="Zoom out"]').click()
    expect(page).to_have_url(re.compile(r"\?range=7200$"))
