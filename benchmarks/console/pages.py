"""Pages of the console in chromium: how fast they show, and their cost while live.

Measured are first paint, bytes, long tasks and processor time.
"""

from __future__ import annotations

import time

from tools.chromium import InThread

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
FIGURES = """() => { const paint = performance.getEntriesByName("first-contentful-paint")[0];
const [page] = performance.getEntriesByType("navigation"), all = [page, ...performance.getEntriesByType("resource")];
return { first_ms: paint ? paint.startTime : null, answered_ms: page.responseEnd,
  bytes: all.reduce((sum, one) => sum + one.encodedBodySize, 0), requests: all.length }; }"""
FRAMES_NOW = "window.longFrames.splice(0)"
TASKS_NOW = "window.longTasks.splice(0)"
#: of Chromium's counters: what the page's own thread computed, seconds of processor time
COUNTERS = ("TaskDuration", "ScriptDuration", "LayoutDuration", "RecalcStyleDuration")


def prepare(page: InThread) -> InThread:
    """Watch for long tasks in all documents that the page opens from now on.

    Returns:
        A session of Chromium's own protocol, which counts processor time instead of the time that passes.
    """
    page.add_init_script(WATCH)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    return session


def _counters(session: InThread) -> dict[str, float]:
    metrics = session.send("Performance.getMetrics")["metrics"]
    return {one["name"]: one["value"] for one in metrics if one["name"] in COUNTERS}


def measure(page: InThread, session: InThread, path: str, seconds: float) -> dict[str, object]:
    """Open a page and leave it open for some seconds.

    Returns:
        first paint and the answer's end in ms, bytes as they went over the network (what the browser has not cached),
        processor time of the page's thread until it was live and per second afterwards, in ms, long tasks in ms, and
        the longest frames with their scripts.
    """
    session.send("Network.clearBrowserCache")
    page.goto(path, wait_until="commit")
    page.locator("#live-state[data-state=live]").wait_for()
    time.sleep(3.0)
    found = page.evaluate(FIGURES)
    opened = _counters(session)
    loading = page.evaluate(TASKS_NOW)
    opening = page.evaluate(FRAMES_NOW)
    time.sleep(seconds)
    later = _counters(session)
    return {
        **found,
        "open_cpu_ms": 1e3 * opened["TaskDuration"],
        "live_cpu_ms": {name: 1e3 * (later[name] - opened[name]) / seconds for name in COUNTERS},
        "long_tasks_opening": loading,
        "long_tasks_live": page.evaluate(TASKS_NOW),
        "long_frames_opening": _longest(opening),
        "long_frames_live": _longest(page.evaluate(FRAMES_NOW)),
    }


def _longest(frames: list[dict]) -> list[dict]:
    return sorted(frames, key=lambda frame: -frame["ms"])[:FRAMES]
