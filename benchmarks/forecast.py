"""The demand forecast on published traces, against a weighted mean.

The mean is exponentially weighted, times 1.05. At every period's start both say what to plan for, from nothing but the
seconds before, and are held against the mean rate that then comes. *Covered*: share of (application, period) pairs
whose mean stays at or below what was planned. *Short*: demand above it, over all demand: what a plan made for it could
not serve. *Over*: planned above what came, over all demand: accuracy given away. *Loss*: pinball loss at the quantile
aimed at, over all demand; it is least for the true quantile, so that neither a careless nor a fearful forecast can win
by it.
"""

from __future__ import annotations

import argparse
import bz2
import csv
import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.minute import comparison
from scheduler.control import demand, learned

PUBLISHED = Path(__file__).resolve().parents[2] / "shared" / "data"
HORIZONS_S = (10, 30)
#: the quantile that the loss is taken at: what the project asks the forecast to cover
AIM = 0.925
PROTEUS = ("medium-normal_load", "zipf_exponential", "zipf_exponential_bursty", "zipf_flat_uniform", "zipf_gamma")
#: application -> items in each second
Series = Mapping[str, np.ndarray]
Planner = Callable[[list[tuple[int, dict[str, float]]], list[str], int, int], dict[str, float]]


def proteus(trace: str) -> Series:
    """Return a trace's queries by application, for each second.

    Its last second, which is cut off, is left out.
    """
    seconds: dict[str, list[int]] = {}
    with gzip.open(PUBLISHED / "proteus" / "traces" / f"{trace}.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            seconds.setdefault(row["application"], []).append(int(float(row["arrival_ms"]) // 1000))
    last = max(max(some) for some in seconds.values())
    return {name: np.bincount(some, minlength=last + 1)[:last] for name, some in sorted(seconds.items())}


def ramsis() -> Series:
    """Return the published rates, with Poisson arrivals within each second.

    The paper has them so.
    """
    with (PUBLISHED / "ramsis" / "twitter_qps.csv").open() as file:
        rates = [float(row["qps"]) for row in csv.DictReader(file)]
    return {"twitter": np.random.default_rng(1).poisson(rates)}


def infadapter(days: int = 2) -> Series:
    """The last days of the stream: those that the paper tests its forecaster on."""
    with bz2.open(PUBLISHED / "infadapter" / "twitter_qps.txt.bz2", "rt") as file:
        rates = np.array([float(line) for line in file])
    return {"twitter": rates[-days * 86_400 :]}


def planned(seconds, names: list[str], now: int, horizon_s: int) -> dict[str, float]:
    """The demand that the appliance plans for."""
    return demand.estimate(seconds, names, now, horizon_s=horizon_s)


def learned_start(seconds, names: list[str], now: int, horizon_s: int) -> dict[str, float]:
    """The demand that ``learned`` plans for before it has learned anything."""
    start = learned.start(learned.ForecastTarget(horizon_s), demand.QUANTILE)
    return demand.estimates(seconds, names, now, coefficients=dict.fromkeys(names, start)).planned


def ewma(seconds, names: list[str], now: int, horizon_s: int) -> dict[str, float]:
    """Return the exponentially weighted mean of the seconds before, times 1.05.

    The weight is 0.25, and only complete seconds count.
    """
    found = {}
    for name in names:
        mean = seconds[0][1][name]
        for t, counts in seconds[1:]:
            if t < now:
                mean += 0.25 * (counts[name] - mean)
        found[name] = max(1.05 * mean, demand.FLOOR)
    return found


@dataclass(frozen=True)
class Score:
    """Shares, 0 to 1 (``over`` and ``loss`` may be more); see the module."""

    covered: float
    short: float
    over: float
    loss: float


def score(series: Series, planner: Planner, horizon_s: int, every_s: int, warm_up_s: int = 20) -> Score:
    """Return a planner's score at one start in ``every_s`` seconds.

    It is shown the three minutes before each start, no more.
    """
    names = list(series)
    length = len(series[names[0]])
    said, came = [], []
    for now in range(warm_up_s, length - horizon_s + 1, every_s):
        past = [(t, {n: float(series[n][t]) for n in names}) for t in range(max(0, now - learned.PAST_S), now)]
        answer = planner(past, names, now, horizon_s)
        said.append([answer[name] for name in names])
        came.append([series[name][now : now + horizon_s].mean() for name in names])
    difference = np.array(came) - np.array(said)
    total = np.sum(came)
    above, below = np.maximum(difference, 0), np.maximum(-difference, 0)
    return Score(
        covered=float((difference <= 1e-9).mean()),
        short=float(above.sum() / total),
        over=float(below.sum() / total),
        loss=float((AIM * above + (1 - AIM) * below).sum() / total),
    )


def measure(every_s: int = 7) -> dict[tuple[str, int], tuple[Score, ...]]:
    """Return scores by trace and horizon (s).

    They are those of ``trend``, of ``learned`` as it starts, and of the weighted mean.
    """
    found = {}
    for name, series in [("ramsis", ramsis()), ("infadapter", infadapter()), *((t, proteus(t)) for t in PROTEUS)]:
        # Two days give enough periods with fewer starts; a second that no period's length divides meets all phases.
        step = every_s if len(next(iter(series.values()))) < 1000 else 13 * every_s
        for horizon in HORIZONS_S:
            found[name, horizon] = tuple(
                score(series, planner, horizon, step) for planner in (planned, learned_start, ewma)
            )
    return found


def render(found: dict[tuple[str, int], tuple[Score, ...]]) -> str:
    """A Markdown table."""
    lines = [
        "| trace | period | covered (`trend`) | short | over | loss | covered (`learned`, as it starts) | short | over "
        "| loss | covered (EWMA x 1.05) | short | over | loss |",
        "|---|" + 13 * "---:|",
    ]
    for (name, horizon), scores in found.items():
        cells = [f"{s.covered:.1%} | {s.short:.2%} | {s.over:.1%} | {s.loss * 100:.2f}" for s in scores]
        lines.append(f"| {name} | {horizon} s | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print, for the next period and for the next minute."""
    about = __doc__.splitlines()[0]
    argparse.ArgumentParser(prog="python -m benchmarks forecast", description=about).parse_args(arguments)
    print(render(measure()))
    for days, scores in (
        (f"{comparison.ROLLING_FROM} to {comparison.FITTED_DAYS}, by rolling origin", comparison.rolling()),
        ("15 and 16", comparison.measure()),
    ):
        print(f"\nThe largest second of the next minute, on days {days} of the infadapter stream:\n")
        print(comparison.render(scores))
