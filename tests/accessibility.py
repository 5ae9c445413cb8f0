"""axe-core in a real browser: what it finds wrong with the page that is shown."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe

from tools.chromium import InThread

THEME = """(theme) => {
localStorage.setItem("nereus-theme", theme);
localStorage.setItem("adminTheme", JSON.stringify(theme));
document.documentElement.dataset.theme = theme;
document.documentElement.classList.toggle("dark", theme === "dark");
document.dispatchEvent(new CustomEvent("theme")); }"""
#: rules about colours
COLOURS = ["color-contrast", "link-in-text-block"]


def violations(page: InThread, without: str = "") -> list[str]:
    """Rules and the first elements that break them, but for ``without``; in the dark theme those of colours alone."""
    # Nothing fades while colours are compared.
    page.emulate_media(reduced_motion="reduce")
    left_out = {"exclude": [[without]]} if without and page.locator(without).count() else None
    found = []
    for theme, rules in (("light", None), ("dark", COLOURS)):
        page.evaluate(THEME, theme)
        options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
        found += Axe().run(page, left_out, options).response["violations"]
    return [f"{each['id']}: {each['help']}; {[node['html'][:200] for node in each['nodes'][:3]]}" for each in found]
