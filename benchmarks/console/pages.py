"""Pages of the console in chromium: how fast they show, and their cost while live.

Measured are first paint, bytes, long tasks and processor time.
"""

from __future__ import annotations

import time

from benchmarks.scale import pages as painting

#: begins before the page's own scripts; ``longFrames`` says which scripts and which part of drawing took how long
WATCH = """window.longTasks = []; window.longFrames = [];
new PerformanceObserver((list) => { for (const one of list.getEntries()) window.longTasks.push(one.duration); })
  .observe({ type: "longtask", buffered: true });
if (PerformanceObserver.supportedEntryTypes.includes("long-animation-frame"))
  new PerformanceObserver((list) => { for (const one of list.getEntries()) window.longFrames.push({ ms: one.duration,
    styles_ms: one.styleAndLayoutStart ? one.startTime + one.duration - one.styleAndLayoutStart : 0,
    scripts: one.scripts.map((each) => ({ of: each.invoker, at: each.sourceURL.split("/").at(-1),
      name: each.sourceFunctionName, ms: each.duration, forced_ms: each.forcedStyleAndLayoutDuration })) }); })
    .observe({ type: "long-animation-frame", buffered: true });"""
#: frames that are kept of each page, the longest
FRAMES = 3
FIGURES = """const paint = performance.getEntriesByName("first-contentful-paint")[0];
const [page] = performance.getEntriesByType("navigation"), all = [page, ...performance.getEntriesByType("resource")];
return { first_ms: paint ? paint.startTime : null, answered_ms: page.responseEnd,
  bytes: all.reduce((sum, one) => sum + one.encodedBodySize, 0), requests: all.length };"""
FRAMES_NOW = "return window.longFrames.splice(0)"
LIVE = "return document.getElementById('live-state').dataset.state === 'live'"
#: of Chromium's counters: what the page's own thread computed, seconds of processor time
COUNTERS = ("TaskDuration", "ScriptDuration", "LayoutDuration", "RecalcStyleDuration")


def prepare(driver) -> None:
    """Watch for long tasks in all pages that are opened from now on.

    Processor time is counted from now on, instead of the time that passes.
    """
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})


def _counters(driver) -> dict[str, float]:
    found = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return {one["name"]: one["value"] for one in found if one["name"] in COUNTERS}


def measure(driver, url: str, seconds: float) -> dict[str, object]:
    """Open a page and leave it open for some seconds.

    Returns:
        first paint and the answer's end in ms, bytes as they went over the network (what the browser has not cached),
        processor time of the page's thread until it was live and per second afterwards, in ms, long tasks in ms, and
        the longest frames with their scripts.
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
    opening = driver.execute_script(FRAMES_NOW)
    time.sleep(seconds)
    later = _counters(driver)
    return {
        **found,
        "open_cpu_ms": 1e3 * opened["TaskDuration"],
        "live_cpu_ms": {name: 1e3 * (later[name] - opened[name]) / seconds for name in COUNTERS},
        "long_tasks_opening": loading,
        "long_tasks_live": driver.execute_script("return window.longTasks.splice(0)"),
        "long_frames_opening": _longest(opening),
        "long_frames_live": _longest(driver.execute_script(FRAMES_NOW)),
    }


def _longest(frames: list[dict]) -> list[dict]:
    return sorted(frames, key=lambda frame: -frame["ms"])[:FRAMES]
