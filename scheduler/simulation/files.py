"""The files of finished simulations, written aside first: a folder never holds half a result."""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from . import plots, report
from .results import SimulationResults


@contextmanager
def staged(folder: Path | str) -> Iterator[Path]:
    """Yield a temporary folder whose files move into ``folder`` at the end of the block, unless it raises.

    They take the place of files of the same names; others there stay.

    Raises:
        OSError: the folder cannot be written; raised at the start of the block where that can be checked.
    """
    folder = Path(folder)
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".writing-", dir=folder) as name:
            yield Path(name)
            goals = {path: folder / path.relative_to(name) for path in Path(name).rglob("*") if path.is_file()}
            for goal in goals.values():
                if goal.is_dir():
                    raise FileExistsError(f"{goal} is in the way: a folder")
            for path, goal in goals.items():
                goal.parent.mkdir(exist_ok=True)
                os.replace(path, goal)
    except BaseException:
        with suppress(OSError):
            for each in made:
                each.rmdir()
        raise


def write_run(folder: Path, results: SimulationResults) -> None:
    images = plots.images({results.stack.name: results.per_second})
    _json(folder / "summary.json", results.summary)
    _csv(
        folder / "per_second.csv",
        ("second", "arrived", "in_time", "late", "dropped", "effective_accuracy"),
        ([s.second, s.arrived, s.in_time, s.late, s.dropped, s.effective_accuracy] for s in results.per_second),
    )
    _csv(
        folder / "per_application.csv",
        ("application", *report.BY_APPLICATION),
        ([name, *(f[key] for key in report.BY_APPLICATION)] for name, f in results.summary["per_application"].items()),
    )
    for name, image in images.items():
        (folder / name).write_bytes(image)
    (folder / "report.html").write_text(report.run(results.summary, images))


def write_comparison(folder: Path, runs: Mapping[str, SimulationResults]) -> None:
    """Overlays of all runs, and a sub-folder for each run under its label."""
    images = plots.images({label: results.per_second for label, results in runs.items()})
    summaries = {label: results.summary for label, results in runs.items()}
    for label, results in runs.items():
        (folder / label).mkdir()
        write_run(folder / label, results)
    _json(folder / "comparison.json", summaries)
    plain = [key for key, value in next(iter(summaries.values())).items() if not isinstance(value, Mapping)]
    _csv(
        folder / "comparison.csv",
        ("run", *plain),
        ([label, *(summary[key] for key in plain)] for label, summary in summaries.items()),
    )
    for name, image in images.items():
        (folder / name).write_bytes(image)
    (folder / "report.html").write_text(report.comparison(summaries, images))


def _json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n")


def _csv(path: Path, header: tuple[str, ...], lines) -> None:
    """None becomes an empty field, floats keep six digits after the point."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for line in lines:
            writer.writerow([f"{value:.6f}" if isinstance(value, float) else value for value in line])
