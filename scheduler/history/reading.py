"""The history of any range: from Redis where it is short and recent, else from a tier's rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from registry import clock
from scheduler import telemetry
from scheduler.history import figures, recent
from scheduler.history.folding import APPLICATION, DEVICE, TIERS
from scheduler.history.models import HistoryName, HistoryRow
from scheduler.history.packing import table, totals

#: rows of a tier that an answer reads at most, so that each comes in a fraction of a second: totals, and tables
MOST_TOTALS, MOST_TABLES = 2900, 800
#: tables are read at no finer resolution than this part of the points needs: unpacking them is what an answer costs
ENOUGH = 1 / 3
#: a request for the last quarter of an hour may take this many seconds to come
ON_THE_WAY_S = 60
#: points of an answer
MOST_POINTS = 1500
#: longest range, seconds
LONGEST_S = 366 * 86400


class Range(NamedTuple):
    begin: int
    end: int


def resolution(asked: Range, now: float, most_rows: int, least: float = 0) -> int:
    """Seconds between what is read: 1 (Redis), or a tier's.

    Args:
        most_rows: of a tier, unless even the coarsest has more.
        least: rows that are enough, of the tiers that have them; 0: the finest tier is taken.
    """
    length = asked.end - asked.begin
    if length <= telemetry.KEEP_S and now - asked.begin <= telemetry.KEEP_S + ON_THE_WAY_S:
        return 1
    age = now - asked.begin
    fit = [one.resolution for one in TIERS if age <= one.resolution * one.keep and length <= one.resolution * most_rows]
    enough = [each for each in fit if least and length >= each * least]
    return enough[-1] if enough else fit[0] if fit else TIERS[-1].resolution


def series(asked: Range, points: int, application: str | None = None) -> dict[str, Any]:
    most, least = (MOST_TOTALS, 0) if application is None else (MOST_TABLES, points * ENOUGH)
    found = resolution(asked, clock.wall(), most, least)
    on = figures.grid(asked.begin, asked.end, found, points)
    if found == 1:
        seconds = recent.read(_since(asked), application)
        sums, variants = recent.total(on, seconds), recent.by_variant(on, seconds)
    elif application is None:
        sums, variants = _cluster(on, found), {}
    else:
        sums, variants = _application(on, found, application)
    rates = {name: figures.ratio(counts, sums.seconds) for name, counts in sorted(variants.items())}
    return _answer(on, found, {**figures.application_series(sums), "by_variant": rates})


def applications(asked: Range, points: int) -> dict[str, Any]:
    """Figures of all applications that have any: by point, and over the whole range."""
    found = resolution(asked, clock.wall(), MOST_TABLES, points)
    on = figures.grid(asked.begin, asked.end, found, points)
    listed = recent.by_application(on, recent.read(_since(asked))) if found == 1 else _all(on, found)
    rows = []
    for name, sums in sorted(listed.items()):
        whole = figures.Sums(figures.Grid(on.start, on.end - on.start, 1), APPLICATION)
        starts = on.start + on.step * np.arange(on.points)
        whole.add(starts, sums.seconds, sums.values)
        over = {key: column[0] for key, column in figures.application_series(whole).items()}
        rows.append({"name": name, "over": over, **figures.application_series(sums)})
    return _answer(on, found, {"applications": rows})


def recent_rows(seconds: int) -> dict[str, figures.Sums]:
    now, tier = int(clock.wall()), TIERS[0].resolution
    return _all(figures.grid(now - seconds, now, tier, seconds // tier), tier)


def device(asked: Range, points: int, ref: str) -> dict[str, Any]:
    found = max(TIERS[0].resolution, resolution(asked, clock.wall(), MOST_TABLES, points * ENOUGH))
    on = figures.grid(asked.begin, asked.end, found, points)
    sums = figures.Sums(on, DEVICE)
    number = _number("d", ref)
    if number is not None:
        starts, seconds, values = _one(on, found, "devices", number, len(DEVICE))
        sums.add(starts, seconds, values)
    return _answer(on, found, figures.device_series(sums))


def _since(asked: Range) -> float:
    return min(telemetry.KEEP_S, clock.wall() - asked.begin + 1)


def _answer(on: figures.Grid, found: int, columns: dict[str, Any]) -> dict[str, Any]:
    return {
        "begin": on.start,
        "step": on.step,
        "points": on.points,
        "resolution": found,
        "source": "live" if found == 1 else "database",
        **columns,
    }


# --- from rows --------------------------------------------------------------------------------------------------------


def known(kind: str, name: str) -> bool:
    """Whether an application (``a``) or device (``d``) has a history."""
    return _number(kind, name) is not None


def _number(kind: str, name: str) -> int | None:
    return HistoryName.objects.filter(kind=kind, name=name).values_list("pk", flat=True).first()


def _rows(on: figures.Grid, tier: int, *columns: str) -> list[tuple]:
    rows = HistoryRow.objects.filter(resolution=tier, start__gte=on.start, start__lt=on.end)
    return list(rows.values_list("start", "seconds", *columns))


def _arrays(rows: list[tuple]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], np.int64)


def _cluster(on: figures.Grid, tier: int) -> figures.Sums:
    sums = figures.Sums(on, APPLICATION)
    if rows := _rows(on, tier, "total"):
        sums.add(*_arrays(rows), totals([bytes(row[2]) for row in rows]))
    return sums


def _application(on: figures.Grid, tier: int, name: str) -> tuple[figures.Sums, dict[str, np.ndarray]]:
    sums, variants = figures.Sums(on, APPLICATION), {}
    number = _number("a", name)
    if number is None:
        return sums, variants
    own = dict(HistoryName.objects.filter(kind="v", name__startswith=f"{name}/").values_list("pk", "name"))
    rows = _rows(on, tier, "applications", "variants")
    if not rows:
        return sums, variants
    starts, seconds = _arrays(rows)
    sums.add(starts, seconds, _pick([row[2] for row in rows], [number], len(APPLICATION))[:, 0])
    counts = _pick([row[3] for row in rows], sorted(own), 1)[:, :, 0]
    at = (starts - on.start) // on.step
    for index, i in enumerate(sorted(own)):
        if counts[:, index].any():
            found = variants[own[i].partition("/")[2]] = np.zeros(on.points)
            np.add.at(found, at, counts[:, index])
    return sums, variants


def _one(on: figures.Grid, tier: int, column: str, number: int, width: int) -> tuple[np.ndarray, ...]:
    rows = _rows(on, tier, column)
    return *_arrays(rows), _pick([row[2] for row in rows], [number], width)[:, 0]


def _pick(data: list[bytes], numbers: list[int], width: int) -> np.ndarray:
    """Columns of some names in each row (rows × names × columns), 0 where absent."""
    found, wanted = np.zeros((len(data), len(numbers), width)), np.array(numbers, np.uint32)
    known, at, there = None, None, None
    for index, packed in enumerate(data):
        ids, columns = table(packed, width)
        if known is None or not np.array_equal(ids, known):
            known, at = ids, np.searchsorted(ids, wanted)
            there = at < len(ids)
            there[there] = ids[at[there]] == wanted[there]
            at = at[there]
        found[index, there] = columns[:, at].T
    return found


def _all(on: figures.Grid, tier: int) -> dict[str, figures.Sums]:
    rows = _rows(on, tier, "applications")
    names = dict(HistoryName.objects.filter(kind="a").values_list("pk", "name"))
    tables = [table(row[2], len(APPLICATION)) for row in rows]
    ids = np.unique(np.concatenate([found for found, _ in tables])) if tables else np.empty(0, np.uint32)
    values = np.zeros((len(ids), len(rows), len(APPLICATION)))
    for index, (found, columns) in enumerate(tables):
        values[np.searchsorted(ids, found), index] = columns.T
    listed, (starts, seconds) = {}, _arrays(rows)
    for position, number in enumerate(ids.tolist()):
        if number in names:
            listed[names[number]] = figures.Sums(on, APPLICATION)
            listed[names[number]].add(starts, seconds, values[position])
    return listed
