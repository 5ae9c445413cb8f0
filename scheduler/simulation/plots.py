"""The plots of simulations over time; identical input gives identical bytes."""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .seconds import Second, binned

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Okabe and Ito's colours, which people with any colour vision can distinguish; demand is drawn in DEMAND
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f3c8d", "#808000", "#b22222")
DEMAND = "#555555"
DPI = 100
#: a comparison draws at most this many points a line, so that several lines can be distinguished
POINTS = 150

Runs = Mapping[str, Sequence[Second]]


def figure(width: float = 9.0, height: float = 2.8) -> Figure:
    # A first import tells that it has looked for fonts.
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    # Half a second or more, and few that load this module draw.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(made)
    return made


def png(made: Figure) -> bytes:
    file = io.BytesIO()
    # No name and version of the library in the file: images change only when what they show changes.
    made.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def demand_and_throughput(runs: Runs) -> Figure:
    made, axes = _over_time(runs, "queries/s", 2, demand=True)
    axes.set_ylim(bottom=0)
    return made


def effective_accuracy(runs: Runs) -> Figure:
    made, axes = _over_time(runs, "effective accuracy, %", 3)
    # An offset such as +9.96e1 on the axis would hide what matters here.
    axes.ticklabel_format(axis="y", useOffset=False)
    return made


def violations(runs: Runs) -> Figure:
    made, axes = _over_time(runs, "late or dropped, queries/s", 4)
    most = max((float(line.get_ydata().max()) for line in axes.lines if len(line.get_ydata())), default=0.0)
    axes.set_ylim(0, most * 1.05 if most else 1)
    return made


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _over_time(runs: Runs, what: str, column: int, demand: bool = False):
    """A figure of a column of :func:`.seconds.binned`, with its axes; ``demand``: drawn behind it, of the first run."""
    made = figure()
    axes = made.subplots()
    length = max((len(seconds) for seconds in runs.values()), default=0)
    width = max(1, math.ceil(length / POINTS)) if len(runs) > 1 else 1
    for number, (label, seconds) in enumerate(runs.items()):
        points = np.array(binned(seconds, width), dtype=float).reshape(-1, 5)
        if demand and number == 0:
            axes.plot(points[:, 0], points[:, 1], color=DEMAND, lw=2.5, alpha=0.45, label="demand")
        axes.plot(points[:, 0], points[:, column], color=colour(number), lw=1.5, label=label)
    axes.set_xlabel("seconds" if width == 1 else f"seconds (means over {width} s)", fontsize=8)
    axes.set_ylabel(what, fontsize=8)
    axes.set_xlim(0, max(length, 1))
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)
    if not length:
        axes.text(0.5, 0.5, "Nothing arrived.", transform=axes.transAxes, ha="center", va="center")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)
    return made, axes


def images(runs: Runs) -> dict[str, bytes]:
    """PNGs by name."""
    return {
        "demand_throughput.png": png(demand_and_throughput(runs)),
        "effective_accuracy.png": png(effective_accuracy(runs)),
        "violations.png": png(violations(runs)),
    }
