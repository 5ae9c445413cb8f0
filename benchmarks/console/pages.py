"""Pages of the console in chromium: first paint, bytes, long tasks and processor time while live."""

from __future__ import annotations

import time

from benchmarks.scale import pages as painting

#: begins before the page's own scripts
WATCH = """window.longTasks = [];
new PerformanceObserver((list) => { for (const one of list.getEntries()) window.longTasks.push(one.duration); })
  .observe({ type: "longtask", buffered: true });"""
FIGURES = """const paint = performance.getEntriesByName("first-contentful-paint")[0];
const [page] = performance.getEntriesByType("navigation"), all = [page, ...performance.getEntriesByType("resource")];
return { first_ms: paint ? paint.startTime : null, answered_ms: page.responseEnd,
  bytes: all.reduce((sum, one) => sum + one.encodedBodySize, 0), requests: all.length };"""
LIVE = "return document.getElementById('live-state').dataset.state === 'live'"
#: of Chromium's counters: what the page's own thread computed, seconds of processor time
COUNTERS = ("TaskDuration", "ScriptDuration", "LayoutDuration", "RecalcStyleDuration")


def prepare(driver) -> None:
    """Watch for long tasks in all pages that are opened from now on; count processor time, not time that passes."""
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})


def _counters(driver) -> dict[str, float]:
    found = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return {one["name"]: one["value"] for one in found if one["name"] in COUNTERS}


def measure(driver, url: str, seconds: float) -> dict[str, object]:
    """Open a page and leave it open for some seconds.

    Returns:
        first paint and the answer's end in ms, bytes as they went over the network (what the browser has not cached),
        processor time of the page's thread until it was live and per second afterwards, in ms, and long tasks in ms.
    """
    driver.execute_cdp_cmd("Network.clearBrowserCache", {})
    driver.get(url)
    end = time.monotonic() + painting.LONGEST_S
    while not driver.execute_script(LIVE):
        if time.monotonic() > end:
            raise TimeoutError(f"{url}: not live within {painting.LONGEST_S:g} s")
        time.sleep(0.1)
    time.sleep(3.0)
    found = driver.execute_script(FIGURES)
    opened = _counters(driver)
    loading = driver.execute_script("return window.longTasks.splice(0)")
    time.sleep(seconds)
    later = _counters(driver)
    return {
        **found,
        "open_cpu_ms": 1e3 * opened["TaskDuration"],
        "live_cpu_ms": {name: 1e3 * (later[name] - opened[name]) / seconds for name in COUNTERS},
        "long_tasks_opening": loading,
        "long_tasks_live": driver.execute_script("return window.longTasks.splice(0)"),
    }
