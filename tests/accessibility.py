"""axe-core in a real browser: what it finds wrong with the page that is shown."""

from __future__ import annotations

from importlib.metadata import distribution

#: a page's findings, as axe reports them: of all rules, or of those given; without what is left out
RUN = """const [rules, without, done] = arguments;
const only = rules.length ? { runOnly: { type: "rule", values: rules } } : {};
const there = without && document.querySelector(without), part = there ? { exclude: [[without]] } : document;
axe.run(part, { resultTypes: ["violations"], ...only }).then((found) => done(found.violations),
  (error) => done(`${error}`));"""
THEME = """localStorage.setItem("nereus-theme", arguments[0]);
localStorage.setItem("adminTheme", JSON.stringify(arguments[0]));
document.documentElement.dataset.theme = arguments[0];
document.documentElement.classList.toggle("dark", arguments[0] === "dark");
document.dispatchEvent(new CustomEvent("theme"));"""
#: nothing fades while colours are compared
STILL = {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}


def script() -> str:
    """axe-core, of the package that has it for another driver of browsers."""
    return distribution("axe-playwright-python").locate_file("axe_playwright_python/axe.min.js").read_text()


def show(browser, theme: str) -> None:
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", STILL)
    browser.execute_script(THEME, theme)


def violations(browser, *rules: str, without: str = "") -> list[str]:
    """List violations: the rule, and the first elements that break it.

    Args:
        rules: the rules to check; all if none is given.
        without: a selector of elements that are left out.
    """
    browser.set_script_timeout(300)
    if not browser.execute_script("return 'axe' in window"):
        browser.execute_script(script())
    found = browser.execute_async_script(RUN, list(rules), without)
    assert isinstance(found, list), found
    return [f"{each['id']}: {each['help']}; {[node['html'][:200] for node in each['nodes'][:3]]}" for each in found]
