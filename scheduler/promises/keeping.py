"""Promises for the plan in force: stored, and compared with what came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from registry import clock
from scheduler import live, telemetry
from scheduler.models import Promise
from scheduler.promises import present
from scheduler.promises.intervals import FIGURES, MOST_PAST, Interval, correction, may_miss, widened
from scheduler.promises.windows import Simulated, simulated
from workers import log

logger = log.get("promises")

#: seconds after a window's end until all gateways have reported it
REPORTED_S = 4.0
#: comparisons of one application that a correction looks back at, in promises
LOOK_BACK = 2 * MOST_PAST


def corrections(stack: str) -> dict[tuple[str, str], float]:
    misses: dict[tuple[str, str], list[float]] = {}
    held: dict[tuple[str, str], list[bool]] = {}
    for promise in reversed(Promise.objects.filter(state=Promise.State.COMPARED, stack=stack)[:LOOK_BACK]):
        for name, figure, expected, came in comparisons(promise):
            misses.setdefault((name, figure), []).append(Interval(*expected["simulated"]).outside(came))
            held.setdefault((name, figure), []).append(Interval(*expected["interval"]).holds(came))
    return {key: correction(some, may_miss(held[key])) for key, some in misses.items()}


def comparisons(promise: Promise) -> Iterable[tuple[str, str, dict[str, Any], float]]:
    for name, figures in promise.expected.items():
        came = promise.observed.get(name) or {}
        for figure in FIGURES:
            if figures.get(figure) is not None and came.get(figure) is not None:
                yield name, figure, figures[figure], came[figure]


def expectations(found: Simulated, by: Mapping[tuple[str, str], float]) -> dict[str, dict[str, Any]]:
    """Return a simulation's answer as it is stored, by application.

    It has ``items_per_s``, and for each figure ``expected``, ``interval`` and ``simulated``, the interval before its
    correction (``by`` application and figure); None for an accuracy where nothing was in time.
    """
    stored: dict[str, dict[str, Any]] = {}
    for name, expected in found.applications.items():
        mine: dict[str, Any] = {"items_per_s": expected.items / found.windows / found.window_s}
        for figure, limits in FIGURES.items():
            value, interval = getattr(expected, figure), getattr(expected, f"{figure}_interval")
            mine[figure] = None
            if value is not None and interval is not None:
                corrected = widened(interval, by.get((name, figure), 0.0)).clipped(*limits)
                mine[figure] = {"expected": value, "interval": list(corrected), "simulated": list(interval)}
        stored[name] = mine
    return stored


def promise_now(step=None) -> Promise:
    index = present.check_index()
    plan, world = present.present_world()
    found = simulated(world, step)
    promise = Promise.objects.create(
        stamp=clock.stamp(),
        window_s=found.window_s,
        windows=found.windows,
        wall_s=found.wall_s,
        plan=plan.pk,
        stack=plan.stack,
        index=index,
        expected=expectations(found, corrections(plan.stack)),
    )
    live.publish("changed", {"kind": "promise", "ref": str(promise.pk)})
    logger.info("promise", plan=plan.pk, windows=found.windows, window_s=found.window_s, wall_s=round(found.wall_s, 2))
    return promise


def compare() -> int:
    """Store what came of promises whose windows are over and reported; how many. Called by upkeep.

    One is void if what it was made for has changed since.
    """
    waiting = Promise.objects.filter(state=Promise.State.WAITING)
    due = [promise for promise in waiting if clock.age(promise.stamp) >= promise.window_s + REPORTED_S]
    if not due:
        return 0
    index = present.check_index()
    oldest = max(clock.age(promise.stamp) for promise in due)
    entries = telemetry.gateway_seconds(min(oldest, telemetry.KEEP_S) + 1) if oldest < telemetry.KEEP_S else []
    for promise in due:
        began = clock.wall() - clock.age(promise.stamp)
        came = outcomes(entries, began, began + promise.window_s)
        promise.observed = came if promise.index == index else {}
        compared = any(True for _ in comparisons(promise))
        promise.state = Promise.State.COMPARED if compared else Promise.State.VOID
        promise.save(update_fields=["observed", "state"])
    live.publish("changed", {"kind": "promise", "ref": ""})
    return len(due)


def outcomes(entries: Iterable[Mapping[str, Any]], began: float, ended: float) -> dict[str, dict[str, float | None]]:
    """Return ends of queries by application, from gateways' seconds.

    They are ``items``, ``accuracy`` (percent of the best, of those in time; None: none was) and ``violations`` (a
    share).
    """
    sums: dict[str, list[float]] = {}
    for entry in entries:
        # A second is named by when it was over.
        if not began < entry["t"] <= ended:
            continue
        for name, counts in entry["applications"].items():
            mine = sums.setdefault(name, [0.0, 0.0, 0.0])
            mine[0] += counts.get("in_time", 0)
            mine[1] += sum(counts.get(outcome, 0) for outcome in ("late", "dropped", "failed"))
            mine[2] += counts.get("normalized_sum", 0.0)
    return {
        name: {
            "items": in_time + others,
            "accuracy": accuracy / in_time if in_time else None,
            "violations": others / (in_time + others),
        }
        for name, (in_time, others, accuracy) in sums.items()
        if in_time + others > 0
    }


@dataclass(frozen=True)
class Calibration:
    compared: int
    held: int

    @property
    def share(self) -> float | None:
        """Share (0 to 1) of intervals that held; None: none was compared."""
        return self.held / self.compared if self.compared else None


#: the name under which a calibration has all applications together; no application has it
ALL = ""


def calibration(promises: Iterable[Promise]) -> dict[str, dict[str, Calibration]]:
    counts: dict[str, dict[str, list[int]]] = {ALL: {figure: [0, 0] for figure in FIGURES}}
    for promise in promises:
        for name, figure, expected, came in comparisons(promise):
            held = Interval(*expected["interval"]).holds(came)
            for who in (ALL, name):
                mine = counts.setdefault(who, {figure: [0, 0] for figure in FIGURES})[figure]
                mine[0] += 1
                mine[1] += held
    return {name: {figure: Calibration(*some) for figure, some in mine.items()} for name, mine in counts.items()}
