"""Arrivals: read from a trace, or generated from a description and a seed."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from .tables import ScenarioError, Table, csv_rows, shown

KINDS = ("uniform", "poisson", "gamma")
#: more arrivals than this in one scenario do not fit the memory of a small box
MOST_ARRIVALS = 50_000_000
#: seconds that a scenario may last: the control loop runs through all of them, whether anything arrives or not
MOST_SECONDS = 1e7


@dataclass(frozen=True)
class Trace:
    """Arrivals: ``times`` (seconds, ascending), and an index into ``names`` for each."""

    names: tuple[str, ...]
    times: Sequence[float]
    applications: Sequence[int]

    def __len__(self) -> int:
        return len(self.times)

    def mean_rates(self) -> dict[str, float]:
        """Queries/s by application, over the time until the last arrival."""
        counts, seconds = Counter(self.applications), max(self.times[-1] if len(self.times) else 0.0, 1.0)
        return {name: counts[index] / seconds for index, name in enumerate(self.names)}


@dataclass(frozen=True)
class GeneratedBurst:
    """A stretch of time in which everything arrives ``factor`` times as often."""

    at_s: float
    for_s: float
    factor: float


@dataclass(frozen=True)
class Generator:
    """A description of arrivals.

    Attributes:
        kind: of the gaps between an application's arrivals, equal (``uniform``), exponential (``poisson``) or
            Gamma-distributed with ``shape`` (``gamma``; below 1: micro-bursts).
        rates: queries/s by application.
    """

    kind: str
    duration_s: float
    rates: Mapping[str, float]
    shape: float = 1.0
    bursts: tuple[GeneratedBurst, ...] = field(default=())

    def arrivals(self, names: Sequence[str], seed: int) -> Trace:
        """The arrivals of this seed; each application has random numbers of its own."""
        stamped: list[tuple[float, int]] = []
        for index, name in enumerate(names):
            rate = self.rates.get(name, 0.0)
            if rate > 0:
                stamped += [(t, index) for t in self._one(rate, random.Random(f"{seed}:arrivals:{name}"))]
        stamped.sort()
        return Trace(tuple(names), [t for t, _ in stamped], [index for _, index in stamped])

    def _one(self, rate: float, numbers: random.Random) -> Iterable[float]:
        # Gaps are drawn in operational time, which runs ``factor`` times as fast during a burst.
        edges = sorted({0.0, self.duration_s, *(e for b in self.bursts for e in (b.at_s, b.at_s + b.for_s))})
        edges = [edge for edge in edges if edge <= self.duration_s]
        work = self._gap(rate, numbers) * (numbers.random() if self.kind == "uniform" else 1.0)
        for start, end in pairwise(edges):
            factor = math.prod(b.factor for b in self.bursts if b.at_s <= start < b.at_s + b.for_s)
            t = start
            while factor > 0 and t + work / factor < end:
                t += work / factor
                yield t
                work = self._gap(rate, numbers)
            work -= (end - t) * factor

    def _gap(self, rate: float, numbers: random.Random) -> float:
        if self.kind == "uniform":
            return 1 / rate
        if self.kind == "poisson":
            return numbers.expovariate(rate)
        return numbers.gammavariate(self.shape, 1 / (self.shape * rate))


def read_generator(table: Table, names: Sequence[str] | None) -> Generator:
    """Read the ``[generator]`` table.

    It has ``kind``, ``duration_s``, and either ``[generator.rates]`` (queries/s by application) or ``qps`` in all,
    split by Zipf's law with exponent ``zipf`` (0: evenly) over the applications in the order of the profiles; ``shape``
    for gamma; ``[[generator.bursts]]`` with ``at_s``, ``for_s``, ``factor``.

    Args:
        names: of the applications; None, where they could not be found out: all else is checked then.
    """
    kind = table.text("kind", among=KINDS)
    duration_s = table.number("duration_s", None, 0, MOST_SECONDS, above=True)
    shape = table.number("shape", 1.0, 0, 1000, above=True)
    if "shape" in table and kind != "gamma":
        table.fault("shape", f"belongs to kind = 'gamma', not to {kind!r}")
    if "rates" in table:
        rates = table.numbers("rates", 0, 1e6)
        for name in rates:
            if names is not None and name not in names:
                table.fault(f"rates.{name}", f"has no profile; the applications are {', '.join(names)}")
        for key in ("qps", "zipf"):
            if key in table:
                table.raw(key)
                table.fault(key, "cannot be given beside rates")
    else:
        qps = table.number("qps", None, 0, 1e6, above=True)
        exponent = table.number("zipf", 1.0, 0, 10)
        parts = {name: 1 / (rank + 1) ** exponent for rank, name in enumerate(names if names is not None else ("",))}
        rates = {name: qps * part / sum(parts.values()) for name, part in parts.items()}
    bursts = []
    listed = table.raw("bursts", [])
    if not isinstance(listed, list):
        table.fault("bursts", "must be an array of tables, [[generator.bursts]]")
        listed = []
    for index, item in enumerate(listed):
        burst = Table(item, table.name(f"bursts[{index}]"), table.faults)
        bursts.append(
            GeneratedBurst(
                burst.number("at_s", None, 0, MOST_SECONDS),
                burst.number("for_s", None, 0, MOST_SECONDS, above=True),
                burst.number("factor", None, 0, 1000),
            )
        )
        burst.finish()
    table.finish()
    heaviest = math.prod(max(burst.factor, 1.0) for burst in bursts)
    if sum(rates.values()) * duration_s * heaviest > MOST_ARRIVALS:
        table.fault("duration_s", f"this may be more than the {MOST_ARRIVALS} queries that one scenario can hold")
    return Generator(kind, duration_s, rates, shape, tuple(bursts))


def read_trace(path: Path, names: Sequence[str] | None) -> Trace:
    """Read a trace from a CSV file.

    It has the columns ``arrival_ms`` (ascending, from 0, which is when the scenario starts, to :data:`MOST_SECONDS`)
    and ``application``, with at most :data:`MOST_ARRIVALS` lines; ``.gz`` is unpacked.

    Args:
        names: of the applications; None, where they could not be found out: all else is checked then.

    Raises:
        ScenarioError: the file cannot be read or a line is wrong; it names the line.
    """
    index = {name: i for i, name in enumerate(names or ())}
    times: list[float] = []
    applications: list[int] = []
    last = 0.0
    for where, row in csv_rows(path, "trace", ("arrival_ms", "application")):
        name = row["application"]
        try:
            ms = float(row["arrival_ms"])
        except (ValueError, TypeError):
            ms, name = last, None
        if name is None:
            raise ScenarioError([f"{where}: needs arrival_ms as a number and an application"])
        if not last <= ms <= MOST_SECONDS * 1000:
            raise ScenarioError(
                [
                    f"{where}: arrival_ms must be at least {last:.10g} (sorted) and at most "
                    f"{MOST_SECONDS * 1000:.0f}, counted from the scenario's start, not {shown(row['arrival_ms'])}"
                ]
            )
        if len(times) >= MOST_ARRIVALS:
            raise ScenarioError([f"{where}: a trace can have at most {MOST_ARRIVALS} queries"])
        last = ms
        if names is None:
            continue
        if name not in index:
            raise ScenarioError([f"{where}: application {name!r} has no profile"])
        times.append(ms / 1000)
        applications.append(index[name])
    return Trace(tuple(names or ()), times, applications)
