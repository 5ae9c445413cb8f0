"""The console of a filled control plane in a real browser.

axe looks at every page in both themes and on tablets, and keys alone are enough.
"""

from __future__ import annotations

from functools import partial

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from benchmarks.scale import pages
from benchmarks.scale.site import Site
from tests import chromium
from tests.accessibility import show, violations

pytestmark = pytest.mark.wide

#: name in an application's name that is as long as a name may be
LONG = "a" * 63
#: axe's rules about colours
COLOURS = ("color-contrast", "link-in-text-block")
#: rows of long tables beyond the first ones, which are alike: thousands of cells take axe minutes
MORE_ROWS = "tbody tr:nth-child(n + 16)"
#: seconds
LONGEST_LOOK_S = 900
SIZES = ((1280, 800), (1024, 768), (820, 1180))
EMPTY = ("/", "/applications/", "/plans/", "/what-if/", "/nodes/", "/repairs/", "/promises/")
FULL = (
    *EMPTY,
    "/applications/app-00/",
    "/applications/app-00/compare/",
    "/applications/app-00/upload/",
    "/applications/bare/",
    "/plan/",
    "/keys/",
    "/access/",
    "/audit/",
    "/no-such-page/",
    "/admin/password_change/",
    "/admin/auth/user/",
    "/admin/auth/user/1/change/",
)
#: path and script that opens more of the page, and what is there then
OPENED = {
    "tasks": ("/plans/", "document.querySelector('#tasks > summary').click()", "#tasks[open] #tasks-list > *"),
    "strip": ("/plans/", "document.querySelector('#strip summary').click()", "#strip-rest > li"),
    "device": ("/", "document.querySelector('.cell').click()", "#device-detail article"),
    "by application": (
        "/",
        "const map = document.getElementById('map-color'); map.value = 'application';"
        " map.dispatchEvent(new Event('change'))",
        "#map-legend .dot",
    ),
    "by state": (
        "/",
        "const map = document.getElementById('map-color'); map.value = 'state'; map.dispatchEvent(new Event('change'))",
        "#map-legend .dot",
    ),
    "what-if": (
        "/what-if/",
        "document.querySelectorAll('#imagine details').forEach((one) => { one.open = true; });"
        " document.querySelector('[data-testid=what-if-ask]').click()",
        "#answer[data-state=done], #answer[data-state=failed]",
    ),
    "plan": (
        "/plan/",
        "document.querySelectorAll('main details').forEach((one) => { one.open = true; })",
        "main details[open]",
    ),
    "try": (
        "/applications/app-00/",
        "document.querySelectorAll('main details').forEach((one) => { one.open = true; })",
        "main details[open]",
    ),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with Site(tmp_path_factory.mktemp("console")) as found:
        yield found


@pytest.fixture(scope="module")
def stranger():
    """A browser that nobody has signed in with, until ``browser`` does."""
    chromium.needed()
    with pages.browser() as driver:
        yield driver


@pytest.fixture(scope="module")
def browser(site, stranger):
    pages.sign_in(stranger, site.console, site.secrets["console_user"], site.secrets["console_password"])
    return stranger


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


def wait(browser, condition) -> None:
    WebDriverWait(browser, 300, 0.1, ignored_exceptions=(Exception,)).until(lambda _: condition())


def find(browser, selector: str) -> list:
    return browser.find_elements(By.CSS_SELECTOR, selector)


def go(browser, site, path: str) -> None:
    """Open a page, and wait until it shows what it has."""
    browser.get(site.console + path)
    if path.startswith(("/admin/", "/login/")):
        wait(browser, lambda: browser.execute_script("return document.readyState") == "complete")
        return
    wait(browser, lambda: find(browser, "#live-state[data-state=live]"))
    if path == "/" and site.members is not None:
        wait(browser, lambda: find(browser, "#map .cell[aria-label]"))


def in_both_themes(browser, without: str = "") -> dict[str, list[str]]:
    found = {}
    # A theme changes nothing except for colours: the second one is asked for theirs alone.
    for theme, rules in (("light", ()), ("dark", COLOURS)):
        show(browser, theme)
        found[theme] = violations(browser, *rules, without=without)
    return {theme: each for theme, each in found.items() if each}


def too_wide(browser, size: tuple[int, int]) -> list:
    """Return how much wider than the window the page is, and why.

    Returns:
        [pixels, at most five elements that stick out]; empty: it fits.
    """
    more = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", more)
    return browser.execute_script(
        """const root = document.documentElement, wide = root.scrollWidth - root.clientWidth;
        if (wide <= 0) return [];
        const out = [...document.querySelectorAll("body *")].filter((one) => one.getBoundingClientRect().right
          > root.clientWidth && !one.closest(".scroll, pre"));
        return [wide, out.slice(0, 5).map((one) => one.outerHTML.slice(0, 120))];"""
    )


def test_the_sign_in_page_has_no_violation(site, stranger):
    go(stranger, site, "/login/")
    assert not in_both_themes(stranger)
    find(stranger, '[data-testid="login-submit"]')[0].click()
    wait(stranger, lambda: find(stranger, ".error"))
    assert not in_both_themes(stranger)


@pytest.mark.parametrize("path", EMPTY)
def test_an_empty_page_has_no_violation_and_fits(site, browser, path):
    go(browser, site, path)
    assert not in_both_themes(browser)
    assert not [found for size in SIZES if (found := too_wide(browser, size))]


@pytest.mark.parametrize("path", FULL)
def test_a_full_page_has_no_violation_and_fits(full, browser, path):
    go(browser, full, path)
    assert not in_both_themes(browser)
    assert not [found for size in SIZES if (found := too_wide(browser, size))]


def unfold(browser, site, opened: str) -> None:
    """Open a page, and more of it."""
    path, script, selector = OPENED[opened]
    go(browser, site, path)
    wait(browser, lambda: browser.execute_script(script) or True)
    wait(browser, lambda: find(browser, selector))


@pytest.mark.parametrize("opened", OPENED)
def test_what_is_opened_on_a_page_has_no_violation_and_fits(full, browser, opened):
    unfold(browser, full, opened)
    assert not in_both_themes(browser)
    assert not [found for size in SIZES if (found := too_wide(browser, size))]


def focused(browser):
    return browser.switch_to.active_element


def has(browser, attribute: str) -> str:
    """Return the focused element's attribute, in one step.

    Lists are drawn anew, and hand the focus on.
    """
    return browser.execute_script("return document.activeElement.getAttribute(arguments[0])", attribute)


def press(browser, *keys: str) -> None:
    for key in keys:
        ActionChains(browser).send_keys(key).perform()


def tab_to(browser, selector: str, most: int = 80):
    """Press the tab key until an element has the focus, and return it.

    It must be visible and have an outline there.

    Raises:
        AssertionError: it is not reached, or cannot be seen there.
    """
    for _ in range(most):
        press(browser, Keys.TAB)
        if browser.execute_script("return document.activeElement.matches(arguments[0])", selector):
            *outline, visible = browser.execute_script(
                "const it = document.activeElement, is = getComputedStyle(it);"
                "return [is.outlineStyle, is.outlineWidth, it.checkVisibility()]"
            )
            assert outline != ["none", "0px"] and visible
            return focused(browser)
    raise AssertionError(f"{selector} is not reached by {most} tabulators")


def test_the_first_key_skips_to_the_content(full, browser):
    go(browser, full, "/plans/")
    assert tab_to(browser, ".skip", 1).text == "Skip to content"
    press(browser, Keys.ENTER)
    wait(browser, lambda: focused(browser).get_attribute("id") == "main")


def test_keys_open_and_close_the_drawer(full, browser):
    go(browser, full, "/plans/")
    # It stays as it was left on the page before.
    browser.execute_script("sessionStorage.clear()")
    go(browser, full, "/plans/")
    tab_to(browser, "#tasks > summary")
    press(browser, Keys.ENTER)
    wait(browser, lambda: find(browser, "#tasks[open]"))
    press(browser, Keys.ESCAPE)
    wait(browser, lambda: not find(browser, "#tasks[open]"))
    assert focused(browser).get_attribute("data-testid") == "tasks-summary"


def test_keys_lead_from_a_bar_of_the_strip_to_its_minute(full, browser):
    go(browser, full, "/plans/")
    wait(browser, lambda: find(browser, "#strip:not([hidden])"))
    if not find(browser, "#strip-loud canvas"):
        tab_to(browser, "#strip summary")
        press(browser, Keys.ENTER)
        wait(browser, lambda: find(browser, "#strip-rest canvas"))
    bars = tab_to(browser, "#strip canvas")
    last = int(bars.get_attribute("aria-valuenow"))
    press(browser, Keys.ARROW_LEFT)
    assert int(bars.get_attribute("aria-valuenow")) == last - 1
    press(browser, Keys.ENTER)
    wait(browser, lambda: "begin=" in browser.current_url)


def test_keys_zoom_the_charts_and_walk_over_the_map(full, browser):
    go(browser, full, "/")
    tab_to(browser, '[data-testid="range-3600"]')
    press(browser, Keys.ENTER)
    wait(browser, lambda: "range=3600" in browser.current_url)
    tab_to(browser, '[aria-label="Zoom in"]')
    press(browser, Keys.SPACE)
    wait(browser, lambda: "range=1800" in browser.current_url)
    tab_to(browser, ".cell")
    first = has(browser, "data-ref")
    press(browser, Keys.ARROW_RIGHT)
    second = has(browser, "data-ref")
    assert second != first
    press(browser, Keys.ENTER)
    wait(browser, lambda: find(browser, '[data-testid="device-detail"]'))
    assert has(browser, "aria-expanded") == "true"
    press(browser, Keys.ESCAPE)
    wait(browser, lambda: not find(browser, '[data-testid="device-detail"]'))
    assert has(browser, "data-ref") == second
    press(browser, Keys.ARROW_DOWN)
    assert has(browser, "data-ref").split("/")[0] != second.split("/")[0]


def test_keys_imagine_another_demand(full, browser):
    go(browser, full, "/what-if/")
    slider = tab_to(browser, "#factor")
    press(browser, *[Keys.ARROW_RIGHT] * 3)
    assert slider.get_attribute("value") == "1.3"
    tab_to(browser, '[data-testid="what-if-ask"]')
    press(browser, Keys.ENTER)
    wait(browser, lambda: find(browser, "#answer[data-state]"))


def test_keys_make_and_delete_a_key_and_escape_keeps_it(full, browser):
    go(browser, full, "/keys/")
    tab_to(browser, '[data-api] input[name="name"]').send_keys("by-keys")
    press(browser, Keys.ENTER)
    wait(browser, lambda: find(browser, '[data-testid="delete-key-by-keys"]'))
    go(browser, full, "/keys/")
    tab_to(browser, '[data-testid="delete-key-by-keys"]')
    press(browser, Keys.ENTER)
    wait(browser, lambda: browser.switch_to.alert)
    browser.switch_to.alert.dismiss()
    assert focused(browser).get_attribute("data-testid") == "delete-key-by-keys"
    press(browser, Keys.ENTER)
    wait(browser, lambda: browser.switch_to.alert)
    browser.switch_to.alert.accept()
    wait(browser, lambda: not find(browser, '[data-testid="delete-key-by-keys"]'))


@pytest.mark.long
def test_at_full_size_no_page_has_a_violation_and_all_fit(tmp_path):
    with Site(tmp_path) as site, pages.browser() as driver:
        # A look at a large page takes minutes on a busy machine.
        driver.command_executor.client_config.timeout = LONGEST_LOOK_S
        driver.set_script_timeout(LONGEST_LOOK_S)
        fill(site, 50, 20, 160)
        pages.sign_in(driver, site.console, site.secrets["console_user"], site.secrets["console_password"])
        shows = {path: partial(go, driver, site, path) for path in FULL}
        shows |= {opened: partial(unfold, driver, site, opened) for opened in OPENED}
        found = {}
        # All pages are looked at before the first fault ends the test.
        for name, show_page in shows.items():
            show_page()
            found[name] = (
                in_both_themes(driver, MORE_ROWS),
                [wide for size in SIZES if (wide := too_wide(driver, size))],
            )
            print(name, *found[name], flush=True)
        assert {name: each for name, each in found.items() if any(each)} == {}
