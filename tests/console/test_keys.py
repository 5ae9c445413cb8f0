"""The Tab key alone reaches all that can be used, in the page's order and in sight, in a real browser."""

from __future__ import annotations

import pytest

from registry import models
from tests.console.conftest import add_plan, sign_in

pytestmark = [pytest.mark.wide, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]
#: the ten points of the console, by page
PATHS = (
    *("/", "/plans/", "/plan/", "/what-if/", "/nodes/", "/repairs/", "/promises/", "/keys/", "/access/", "/audit/"),
    *("/applications/", *(f"/applications/digits/{end}" for end in ("", "compare/", "upload/"))),
)
#: refreshing ends, all parts are opened, and elements for use are numbered in the page's order, one radio of a group
NUMBER = """() => { window.fetch = () => new Promise(() => {});
document.querySelectorAll("details").forEach((one) => { one.open = true; });
const usable = "a[href], button, input, select, textarea, summary, [tabindex], [contenteditable]";
const groups = new Set();
const stops = [...document.querySelectorAll(usable)].filter((one) => {
  if (one.tabIndex < 0 || one.disabled || one.type === "hidden" || !one.checkVisibility({ visibilityProperty: true }))
    return false;
  if (one.type !== "radio") return true;
  const first = !groups.has(one.name);
  groups.add(one.name);
  return first;
});
stops.forEach((one, index) => { one.dataset.stop = index; });
return stops.map((one) => one.outerHTML.slice(0, 120)); }"""
#: the focused stop, whether it shows that it has the focus, and whether it is in the window
LOOK = """() => { const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
const seen = style.outlineStyle !== "none" && style.outlineWidth !== "0px";
return [Number(one.dataset.stop ?? -1), seen, box.bottom > 0 && box.top < innerHeight]; }"""


@pytest.fixture
def operator(page, cluster):
    models.Node.objects.update(channel="")
    add_plan(cluster["best"])
    sign_in(page, "operator")
    return page


def missed(page, path: str) -> list[str]:
    """Elements for use that the Tab key does not reach, or not in sight."""
    page.goto(path)
    stops = page.evaluate(NUMBER)
    assert len(stops) > 10
    reached, hidden, last = set(), [], -1
    # Fields for a time have a stop for each of their parts.
    for _ in range(3 * len(stops) + 20):
        page.keyboard.press("Tab")
        stop, outlined, shown = page.evaluate(LOOK)
        if stop >= 0 and stop < last:
            break
        if stop >= 0:
            reached.add(stop)
            last = stop
            if not (outlined and shown):
                hidden.append(stops[stop])
    return [stops[index] for index in range(len(stops)) if index not in reached] + hidden


def test_the_tabulator_reaches_everything_in_order_and_in_sight(operator):
    assert {path: found for path in PATHS if (found := missed(operator, path))} == {}
