"""Times of the console's pages in Debian's chromium.

It paints pages and measures how long that takes.
"""

from __future__ import annotations

import time

from tools.chromium import InThread

#: page: what must be shown before it counts as painted, and how many for each node or device
PAGES = {
    "overview": ("/", "#map [data-testid^='device-']"),
    "nodes": ("/nodes/", "#nodes [data-testid^='device-']"),
}


def paint(page: InThread, name: str, devices: int) -> dict[str, float]:
    """Seconds until a page's first paint, and until it shows every device.

    Raises:
        playwright's TimeoutError: it does not within its limit.
    """
    path, selector = PAGES[name]
    began = time.monotonic()
    page.goto(path, wait_until="commit")
    page.wait_for_function(f"document.querySelectorAll({selector!r}).length >= {devices}")
    whole = time.monotonic() - began
    first = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
    return {"first_s": first / 1000, "whole_s": whole}
