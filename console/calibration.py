"""Past promises for pages: how often intervals held, and a chart of intervals with the values observed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from scheduler.models import Promise
from scheduler.promises.intervals import FIGURES, Interval
from scheduler.promises.keeping import calibration

#: the chart, in units of its view box, and the most promises in it
WIDTH, HEIGHT, EDGE, MOST = 640, 150, 8, 60
#: charts are no finer than this, so that a figure that hardly moves does not look as if it did
LEAST_RANGE = {"accuracy": 0.5, "violations": 0.005}


def by_application(promises: Sequence[Promise]) -> list[dict[str, Any]]:
    latest = promises[0] if promises else None
    held = calibration(promises)
    return [
        {"name": name, "expected": latest.expected.get(name), "came": latest.observed.get(name), "held": held.get(name)}
        for name in sorted({name for promise in promises for name in promise.expected})
    ]


def chart(promises: Iterable[Promise], application: str, figure: str) -> dict[str, Any]:
    """Marks, in the view box, of the newest promises that were compared, oldest first; ``promises``: the newest first.

    ``low`` and ``high``: the figure at the lower and upper edge; missing without marks.
    """
    found = []
    for promise in promises:
        expected = (promise.expected.get(application) or {}).get(figure)
        came = (promise.observed.get(application) or {}).get(figure)
        if expected is not None and came is not None:
            found.append((promise, Interval(*expected["interval"]), came))
    found = found[:MOST][::-1]
    if not found:
        return {"marks": []}
    low = min(min(interval.low, came) for _, interval, came in found)
    high = max(max(interval.high, came) for _, interval, came in found)
    least, (lowest, highest) = LEAST_RANGE[figure], FIGURES[figure]
    if high - low < least:
        low, high = max(lowest, high - least), min(highest, max(high, low + least))

    def y(value: float) -> float:
        return round(HEIGHT - EDGE - (value - low) / (high - low) * (HEIGHT - 2 * EDGE), 1)

    step = (WIDTH - 2 * EDGE) / max(len(found), 12)
    marks = [
        {
            "x": round(EDGE + (place + 0.5) * step, 1),
            "top": y(interval.high) - 1,
            "bottom": y(interval.low) + 1,
            "y": y(came),
            "held": interval.holds(came),
            "promise": promise,
        }
        for place, (promise, interval, came) in enumerate(found)
    ]
    held = sum(mark["held"] for mark in marks)
    return {"marks": marks, "low": low, "high": high, "held": held}
