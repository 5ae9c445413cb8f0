"""The console of a filled control plane: axe on every page, both themes and tablets; keys alone are enough."""

from __future__ import annotations

import re
from functools import partial

import pytest

from benchmarks.scale.site import Site
from tests.accessibility import violations
from tools import chromium as debian
from tools.chromium import InThread, expect, tab

pytestmark = pytest.mark.wide

#: name in an application's name that is as long as a name may be
LONG = "a" * 63
#: rows of long tables beyond the first ones, which are alike: thousands of cells take axe minutes
MORE_ROWS = "tbody tr:nth-child(n + 16)"
SIZES = ((1280, 800), (1024, 768), (820, 1180))
EMPTY = ("/", "/applications/", "/plans/", "/what-if/", "/nodes/", "/repairs/", "/promises/")
FULL = (
    *EMPTY,
    *(f"/applications/{end}" for end in ("app-00/", "app-00/compare/", "app-00/upload/", "bare/")),
    *("/plan/", "/keys/", "/access/", "/audit/", "/no-such-page/"),
    *(f"/admin/{end}" for end in ("password_change/", "auth/user/", "auth/user/1/change/")),
)
COLOUR = "const map = document.getElementById('map-color'); map.value = '{}'; map.dispatchEvent(new Event('change'))"
UNFOLD = "document.querySelectorAll('main details').forEach((one) => { one.open = true; })"
#: path and script that opens more of the page, and what is there then
OPENED = {
    "tasks": ("/plans/", "document.querySelector('#tasks > summary').click()", "#tasks[open] #tasks-list > *"),
    "strip": ("/plans/", "document.querySelector('#strip summary').click()", "#strip-rest > li"),
    "device": ("/", "document.querySelector('.cell').click()", "#device-detail article"),
    "by application": ("/", COLOUR.format("application"), "#map-legend .dot"),
    "by state": ("/", COLOUR.format("state"), "#map-legend .dot"),
    "what-if": (
        "/what-if/",
        "document.querySelectorAll('#imagine details').forEach((one) => { one.open = true; });"
        " document.querySelector('[data-testid=what-if-ask]').click()",
        "#answer[data-state=done], #answer[data-state=failed]",
    ),
    "plan": ("/plan/", UNFOLD, "main details[open]"),
    "try": ("/applications/app-00/", UNFOLD, "main details[open]"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with Site(tmp_path_factory.mktemp("console") / "home") as found:
        yield found


@pytest.fixture(scope="module")
def session(site, chromium) -> dict:
    with tab(chromium, base_url=site.console) as page:
        debian.sign_in(page, site.credentials["console_user"], site.credentials["console_password"])
        expect(page.get_by_test_id("kpi-demand")).to_be_visible()
        return page.context.storage_state()


@pytest.fixture
def page(site, chromium, session):
    with tab(chromium, base_url=site.console, storage_state=session) as page:
        yield page


def fill(site, applications: int, nodes: int, devices: int):
    site.fill(applications, nodes, devices, 0.002)
    with site.rest() as rest:
        signature = {
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
        }
        for name in ("bare", LONG):
            rest.post("/applications/", json={"name": name, "slo_ms": 90, "signature": signature}).raise_for_status()
        rest.post("/api-keys/", json={"name": "key"}).raise_for_status()
    return site


@pytest.fixture(scope="module")
def full(site):
    return fill(site, 8, 3, 9)


def go(page: InThread, path: str, devices: bool = True) -> None:
    """Open a page, and wait until it shows what it has."""
    page.goto(path)
    if not path.startswith(("/admin/", "/login/")):
        page.locator("#live-state[data-state=live]").wait_for()
    if path == "/" and devices:
        page.locator("#map .cell[aria-label]").first.wait_for()


def too_wide(page: InThread, width: int, height: int) -> list:
    """[pixels wider than the window, at most five elements that stick out]; empty: the page fits."""
    page.set_viewport_size({"width": width, "height": height})
    return page.evaluate(
        """() => { const root = document.documentElement, wide = root.scrollWidth - root.clientWidth;
        if (wide <= 0) return [];
        const out = [...document.querySelectorAll("body *")].filter((one) => one.getBoundingClientRect().right
          > root.clientWidth && !one.closest(".scroll, pre"));
        return [wide, out.slice(0, 5).map((one) => one.outerHTML.slice(0, 120))]; }"""
    )


def faults(page: InThread, without: str = "") -> list:
    """What axe finds, and where the page is wider than the window."""
    return violations(page, without) + [wide for size in SIZES if (wide := too_wide(page, *size))]


def test_the_sign_in_page_has_no_violation(site, chromium):
    with tab(chromium, base_url=site.console) as page:
        go(page, "/login/")
        assert violations(page) == []
        page.get_by_test_id("login-submit").click()
        page.locator(".error").first.wait_for()
        assert violations(page) == []


@pytest.mark.parametrize("path", EMPTY)
def test_an_empty_page_has_no_violation_and_fits(page, path):
    go(page, path, devices=False)
    assert faults(page) == []


@pytest.mark.parametrize("path", FULL)
def test_a_full_page_has_no_violation_and_fits(full, page, path):
    go(page, path)
    assert faults(page) == []


def unfold(page: InThread, opened: str) -> None:
    path, script, selector = OPENED[opened]
    go(page, path)
    page.evaluate(f"() => {{ {script} }}")
    page.locator(selector).first.wait_for(state="attached")


@pytest.mark.parametrize("opened", OPENED)
def test_what_is_opened_on_a_page_has_no_violation_and_fits(full, page, opened):
    unfold(page, opened)
    assert faults(page) == []


def tab_to(page: InThread, selector: str, most: int = 80) -> InThread:
    """Press the tab key until an element has the focus, visibly and with an outline; the element."""
    for _ in range(most):
        page.keyboard.press("Tab")
        focused = page.locator(f"{selector}:focus")
        if focused.count():
            expect(focused).to_be_visible()
            style = focused.evaluate(
                "(one) => { const s = getComputedStyle(one); return [s.outlineStyle, s.outlineWidth]; }"
            )
            assert style != ["none", "0px"]
            return focused
    raise AssertionError(f"{selector} is not reached by {most} tabulators")


def press(page: InThread, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_the_first_key_skips_to_the_content(full, page):
    go(page, "/plans/")
    expect(tab_to(page, ".skip", 1)).to_have_text("Skip to content")
    press(page, "Enter")
    expect(page.locator("#main")).to_be_focused()


def test_keys_open_and_close_the_drawer(full, page):
    go(page, "/plans/")
    tab_to(page, "#tasks > summary")
    press(page, "Enter")
    expect(page.locator("#tasks[open]")).to_be_visible()
    press(page, "Escape")
    expect(page.locator("#tasks[open]")).to_have_count(0)
    expect(page.get_by_test_id("tasks-summary")).to_be_focused()


def test_keys_lead_from_a_bar_of_the_strip_to_its_minute(full, page):
    go(page, "/plans/")
    expect(page.locator("#strip")).to_be_visible()
    if not page.locator("#strip-loud canvas").count():
        tab_to(page, "#strip summary")
        press(page, "Enter")
        page.locator("#strip-rest canvas").first.wait_for()
    bars = tab_to(page, "#strip canvas")
    last = int(bars.get_attribute("aria-valuenow"))
    press(page, "ArrowLeft")
    expect(bars).to_have_attribute("aria-valuenow", str(last - 1))
    press(page, "Enter")
    expect(page).to_have_url(re.compile("begin="))


def test_keys_zoom_the_charts_and_walk_over_the_map(full, page):
    go(page, "/")
    tab_to(page, '[data-testid="range-3600"]')
    press(page, "Enter")
    expect(page).to_have_url(re.compile("range=3600"))
    tab_to(page, '[aria-label="Zoom in"]')
    press(page, "Space")
    expect(page).to_have_url(re.compile("range=1800"))
    focused, detail = page.locator(".cell:focus"), page.get_by_test_id("device-detail")
    first = tab_to(page, ".cell").get_attribute("data-ref")
    press(page, "ArrowRight")
    second = focused.get_attribute("data-ref")
    assert second != first
    press(page, "Enter")
    expect(detail).to_be_visible()
    expect(focused).to_have_attribute("aria-expanded", "true")
    press(page, "Escape")
    expect(detail).to_have_count(0)
    expect(focused).to_have_attribute("data-ref", second)
    press(page, "ArrowDown")
    assert focused.get_attribute("data-ref").split("/")[0] != second.split("/")[0]


def test_keys_imagine_another_demand(full, page):
    go(page, "/what-if/")
    slider = tab_to(page, "#factor")
    press(page, *["ArrowRight"] * 3)
    expect(slider).to_have_value("1.3")
    tab_to(page, '[data-testid="what-if-ask"]')
    press(page, "Enter")
    page.locator("#answer[data-state]").wait_for()


def test_keys_make_and_delete_a_key_and_escape_keeps_it(full, page):
    go(page, "/keys/")
    tab_to(page, '[data-api] input[name="name"]')
    page.keyboard.type("by-keys")
    press(page, "Enter")
    delete = page.get_by_test_id("delete-key-by-keys")
    delete.wait_for()
    go(page, "/keys/")
    tab_to(page, '[data-testid="delete-key-by-keys"]')
    page.once("dialog", lambda dialog: dialog.dismiss())
    press(page, "Enter")
    expect(delete).to_be_focused()
    page.once("dialog", lambda dialog: dialog.accept())
    press(page, "Enter")
    expect(delete).to_have_count(0)


@pytest.mark.long
def test_at_full_size_no_page_has_a_violation_and_all_fit(tmp_path):
    with Site(tmp_path / "home") as site:
        fill(site, 50, 20, 160)
        with debian.console(site.console, site.credentials) as page:
            shows = {path: partial(go, page, path) for path in FULL}
            shows |= {opened: partial(unfold, page, opened) for opened in OPENED}
            found = {}
            # All pages are looked at before the first fault ends the test.
            for name, show in shows.items():
                show()
                found[name] = faults(page, MORE_ROWS)
                print(name, found[name], flush=True)
            assert {name: each for name, each in found.items() if each} == {}
