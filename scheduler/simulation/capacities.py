"""Capacities of instances on several devices together, from a CSV file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from .profiles import Model
from .tables import ScenarioError, csv_rows

COLUMNS = ("application", "variant", "device_type", "cores", "items_s")
#: cores of one instance
MOST_CORES = 65_536


def read_capacities(path: Path, models: Sequence[Model]) -> tuple[Model, ...]:
    """Return the variants with the file's capacities.

    Lines of others are left out, as lines of device types are on which a variant does not run.

    Raises:
        ScenarioError: the file cannot be read, or a line is wrong (it names the line).
    """
    found: dict[tuple[str, str], dict[str, dict[int, float]]] = {(m.application, m.name): {} for m in models}
    kinds = {(m.application, m.name): m.points for m in models}
    for where, row in csv_rows(path, "capacities", COLUMNS):
        key = row["application"], row["variant"]
        try:
            cores, rate = _numbers(row)
        except ValueError as error:
            raise ScenarioError([f"{where}: {error}"]) from None
        if row["device_type"] in kinds.get(key, ()):
            rates = found[key].setdefault(row["device_type"], {})
            if cores in rates:
                raise ScenarioError([f"{where}: {cores} cores of this variant are listed twice"])
            rates[cores] = rate
    return tuple(
        replace(
            model,
            capacities={
                kind: tuple(sorted(points.items())) for kind, points in found[model.application, model.name].items()
            },
        )
        for model in models
    )


def _numbers(row: dict[str, str]) -> tuple[int, float]:
    try:
        cores, rate = int(row["cores"]), float(row["items_s"])
    except (TypeError, ValueError):
        raise ValueError("cores and items_s must be numbers") from None
    if not (1 <= cores <= MOST_CORES and 0 <= rate < 1e9):
        raise ValueError(f"cores must be from 1 to {MOST_CORES}, and items_s at least 0 and below 10^9")
    return cores, rate
