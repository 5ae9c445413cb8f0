"""The last quarter of an hour, second by second, from gateways' reports in Redis.

A cluster's seconds are tens of megabytes of JSON. They are decoded into what is asked for alone, and summed as arrays,
so that an answer takes about as long as from rows.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from scheduler import telemetry
from scheduler.history import figures
from scheduler.history.folding import APPLICATION, FINE, LARGEST, MICRO


class _Counts(msgspec.Struct, gc=False):
    """An application's second, named as in ``ApplicationStats``."""

    arrived: float = 0.0
    arrived_rows: float = 0.0
    in_time: float = 0.0
    late: float = 0.0
    dropped: float = 0.0
    failed: float = 0.0
    accuracy_sum: float = 0.0
    normalized_sum: float = 0.0
    p50_ms: float = 0.0
    p95_ms: float = 0.0


class _CountsByVariant(_Counts, gc=False):
    by_variant: dict[str, float] = {}


class _Second(msgspec.Struct):
    gateway: str
    applications: dict[str, _Counts] = {}


class _RawSecond(msgspec.Struct):
    gateway: str
    applications: dict[str, msgspec.Raw] = {}


_SECOND, _RAW = msgspec.json.Decoder(_Second), msgspec.json.Decoder(_RawSecond)
_COUNTS = msgspec.json.Decoder(_CountsByVariant)
#: the numbers of a row
_reported = operator.attrgetter(*_Counts.__struct_fields__)
REPORTED = len(_Counts.__struct_fields__)
_IN_TIME, _LATE = APPLICATION.index("in_time"), APPLICATION.index("late")


class Recent(NamedTuple):
    """Seconds of applications.

    Attributes:
        moments: seconds for which there is any report, in unix seconds.
        starts: of each row, its second.
        names: applications.
        numbers: of each row, the position of its application in ``names``.
        rows: the columns of :data:`.folding.APPLICATION`.
        variants: answers of the one application that was asked for: (second, variant, queries).
    """

    moments: np.ndarray
    starts: np.ndarray
    names: list[str]
    numbers: np.ndarray
    rows: np.ndarray
    variants: list[tuple[int, str, float]]


def read(seconds: float, application: str | None = None) -> Recent:
    moments, starts, numbers, found, variants = set(), [], [], [], []
    names: dict[str, int] = {}
    for t, counts in _decoded(seconds, application):
        moments.add(t)
        starts.extend([t] * len(counts))
        numbers.extend([names.setdefault(name, len(names)) for name in counts])
        found.extend(counts.values())
        if application in counts:
            by_variant = counts[application].by_variant
            variants += [(t, name, n) for name, n in by_variant.items() if n > 0]
    seconds_of, starts_of, numbers_of = (np.array(each, np.int64) for each in (sorted(moments), starts, numbers))
    return Recent(seconds_of, starts_of, list(names), numbers_of, _columns(found), variants)


def _decoded(seconds: float, application: str | None) -> Iterator[tuple[int, dict[str, _Counts]]]:
    last: dict[str, int] = {}
    for t, text in telemetry.texts(telemetry.GATEWAY_STREAM, seconds):
        try:
            if application is None:
                second = _SECOND.decode(text)
                counts = second.applications
            else:
                second = _RAW.decode(text)
                raw = second.applications.get(application)
                counts = {} if raw is None else {application: _COUNTS.decode(raw)}
        except msgspec.MsgspecError:
            # Of another release, or no second at all: it is as if it had not come.
            continue
        # As in telemetry.sum_arrivals: of two reports in one second, with none in the next, one is the next's.
        own = t + (last.get(second.gateway) == t)
        last[second.gateway] = own
        yield own, counts


def _columns(counts: list[_Counts]) -> np.ndarray:
    values = itertools.chain.from_iterable(map(_reported, counts))
    reported = np.fromiter(values, np.float64, len(counts) * REPORTED).reshape(-1, REPORTED)
    scale = np.array([1.0] * 6 + [FINE] * 2 + [MICRO] * 2)
    sums = np.minimum(LARGEST, np.rint(reported * scale))
    answered = sums[:, _IN_TIME] + sums[:, _LATE]
    p50, p95 = sums[:, 8], sums[:, 9]
    latencies = [np.minimum(LARGEST, p50 * answered), np.minimum(LARGEST, p95 * answered), p95 * (answered > 0)]
    return np.column_stack([sums[:, :8], *latencies])


def total(on: figures.Grid, recent: Recent) -> figures.Sums:
    return _sums(on, recent, slice(None))


def by_application(on: figures.Grid, recent: Recent) -> dict[str, figures.Sums]:
    found = {}
    for number, name in enumerate(recent.names):
        which = recent.numbers == number
        if recent.rows[which].any():
            found[name] = _sums(on, recent, which)
    return found


def by_variant(on: figures.Grid, recent: Recent) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for t, name, count in recent.variants:
        at = (t - on.start) // on.step
        if 0 <= at < on.points:
            found.setdefault(name, np.zeros(on.points))[at] += count
    return found


def _sums(on: figures.Grid, recent: Recent, which: np.ndarray | slice) -> figures.Sums:
    sums = figures.Sums(on, APPLICATION)
    # A second without a row of this application counts all the same.
    sums.add(recent.moments, np.ones(len(recent.moments), np.int64), np.zeros((len(recent.moments), len(APPLICATION))))
    starts = recent.starts[which]
    sums.add(starts, np.zeros(len(starts), np.int64), recent.rows[which])
    return sums
