"""Profiles from a CSV file: how long a batch takes, by variant and device type."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scheduler.allocation.problem import CandidateVariant, LatencyProfile
from workers.dispatch.latency import LatencyModel

from .tables import ScenarioError, csv_rows

#: items in one batch; what a device could take of a batch is tried for each size up to the largest profiled
LARGEST_BATCH = 65_536
#: ms that a batch may take
LONGEST_MS = 3_600_000.0
COLUMNS = ("application", "variant", "accuracy_normalized", "device_type", "batch")
#: the column with the ms that a load takes, which may be absent
LOAD = "load_ms"


@dataclass(frozen=True)
class Model:
    """A variant with its latencies.

    Attributes:
        points: by device type: (batch, seconds), ascending.
        load_s: of a load; None: as the scenario says for all.
        capacities: by device type: (cores, items/s) of instances on several devices, ascending.
    """

    application: str
    name: str
    accuracy: float
    points: Mapping[str, tuple[tuple[int, float], ...]]
    load_s: float | None = None
    capacities: Mapping[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.application}/{self.name}"

    def latency(self, kind: str) -> LatencyModel:
        """A batch between two profiled sizes costs what the larger costs (it is padded)."""
        return LatencyModel(self.points[kind], interpolate=False)

    def planned(self, load_s: float) -> CandidateVariant:
        """As planners see it; interpolation of :func:`padded` points is padding."""
        profiles = {kind: LatencyProfile(padded(points), load_s=load_s) for kind, points in self.points.items()}
        return CandidateVariant(
            self.id, self.application, self.accuracy, profiles, name=self.name, capacities=self.capacities
        )


def padded(points: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """The points of the step function that padding makes, for those who interpolate."""
    steps: list[tuple[int, float]] = []
    for batch, seconds in points:
        if steps and steps[-1][0] + 1 < batch:
            steps.append((steps[-1][0] + 1, seconds))
        steps.append((batch, seconds))
    return tuple(steps)


def read_profiles(
    path: Path, column: str, batches: Collection[int] | None, kinds: Collection[str] | None
) -> tuple[Model, ...]:
    """Read the variants that can run on device types ``kinds``, in the file's order.

    Args:
        column: the one with the latency, in ms.
        batches: the sizes to take; None takes all.
        kinds: device types; None: any.

    Raises:
        ScenarioError: the file cannot be read, a line is wrong (it names the line), or nothing of it can be used.
    """
    #: by application and variant: accuracy, and by device type and batch the seconds; seconds of a load, of those that
    #: have any
    found: dict[tuple[str, str], tuple[float, dict[str, dict[int, float]]]] = {}
    loads: dict[tuple[str, str], float] = {}
    by_id: dict[str, tuple[str, str]] = {}
    for where, row in csv_rows(path, "profiles", (*COLUMNS, column)):
        try:
            batch, seconds, accuracy = _numbers(row, column)
            nameless = [name for name in ("application", "variant", "device_type") if not (row[name] or "").strip()]
            if nameless:
                raise ValueError(f"{' and '.join(nameless)} must not be empty")
            kind = row["device_type"]
            if (kinds is not None and kind not in kinds) or (batches is not None and batch not in batches):
                continue
            key = (row["application"], row["variant"])
            other = by_id.setdefault("/".join(key), key)
            if other != key:
                raise ValueError(
                    f"variant {key[1]!r} of application {key[0]!r} and variant {other[1]!r} of {other[0]!r} further up "
                    f"would both be {'/'.join(key)!r}"
                )
            known, points = found.setdefault(key, (accuracy, {}))
            if known != accuracy:
                raise ValueError(f"accuracy {accuracy:g}, and {known:g} further up")
            load_s = _load_s(row[LOAD]) if row.get(LOAD) else None
            if load_s is not None and loads.setdefault(key, load_s) != load_s:
                raise ValueError(f"{LOAD} {load_s * 1000:g}, and {loads[key] * 1000:g} further up")
            if points.setdefault(kind, {}).setdefault(batch, seconds) is not seconds:
                raise ValueError(f"batch {batch} of this variant is listed twice")
        except ValueError as error:
            raise ScenarioError([f"{where}: {error}"]) from None
    if not found:
        raise ScenarioError([f"profiles: {path} has no line with a device type of [devices] and a batch of batches"])
    return tuple(
        Model(*key, accuracy, {kind: tuple(sorted(p.items())) for kind, p in points.items()}, loads.get(key))
        for key, (accuracy, points) in found.items()
    )


def _numbers(row: Mapping[str, str], column: str) -> tuple[int, float, float]:
    try:
        batch, seconds, accuracy = int(row["batch"]), float(row[column]) / 1000, float(row["accuracy_normalized"])
    except (TypeError, ValueError):
        raise ValueError(f"batch, accuracy and {column} must be numbers") from None
    if not (1 <= batch <= LARGEST_BATCH and 0 < seconds <= LONGEST_MS / 1000 and 0 <= accuracy <= 100):
        raise ValueError(
            f"batch must be at least 1 and at most {LARGEST_BATCH}, {column} above 0 and at most {LONGEST_MS:.0f}, "
            "accuracy_normalized from 0 to 100"
        )
    return batch, seconds, accuracy


def _load_s(text: str) -> float:
    try:
        load_s = float(text) / 1000
    except ValueError:
        load_s = -1.0
    if not 0 <= load_s <= LONGEST_MS / 1000:
        raise ValueError(f"{LOAD} must be a number from 0 to {LONGEST_MS:.0f}, or empty")
    return load_s
