"""Serving options of each device: warm planned and standby variants. Pure.

Each size class of an application (:mod:`workers.protocol.shapes`) has options of its own, by the latencies of its
batches: short queries may run on variants that are too slow for long ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from workers.dispatch.binding import QueryClass
from workers.dispatch.latency import LatencyModel
from workers.dispatch.options import OptionSet, ServingOption
from workers.dispatch.policy_tables import LoadPolicy, PolicySet
from workers.protocol import shapes
from workers.protocol.frames import WarmVariant
from workers.protocol.specs import ApplicationSpec, PlanSpec, ProfilePoint, Resident

from .network import row_bytes

#: seconds that a batch occupies a device around its run: the least that executors measure. Late binding learns the rest
AROUND_S = 0.0002


class DeviceOptions:
    """Options by device: of the newest plan, and of older ones during a rollout."""

    def __init__(self) -> None:
        self._rows = 1
        self._applications: Mapping[str, ApplicationSpec] = {}
        self._newest: dict[str, dict[int, Resident]] = {}
        self._older: dict[str, dict[int, Resident]] = {}
        self._planned: set[tuple[str, int]] = set()
        self._policies: dict[tuple[str, str], PolicySet] = {}
        self._options: dict[tuple, ServingOption | None] = {}
        self._made: dict[str, tuple[tuple[tuple[WarmVariant, ...], float], dict[QueryClass, OptionSet]]] = {}

    def configure(self, applications: Mapping[str, ApplicationSpec], rows: int) -> None:
        """Replace the applications; ``rows``: of the largest batch."""
        self._applications, self._rows = applications, rows
        self._options.clear()
        self._made.clear()

    def plan(self, plan: PlanSpec) -> None:
        """Replace the newest plan, with the residents and standbys of each device."""
        for device, residents in self._newest.items():
            self._older.setdefault(device, {}).update(residents)
        self._newest = {
            device.device: {r.variant.id: r for r in (*device.standby_residents, *device.residents)}
            for device in plan.devices
        }
        self._planned = {(device.device, r.variant.id) for device in plan.devices for r in device.residents}
        self._policies = {}
        for some in plan.policies:
            policies = PolicySet(some.variants, tuple(LoadPolicy(each.load, each.steps) for each in some.policies))
            self._policies |= {(device, some.application): policies for device in some.devices}
        self._made.clear()

    def moved(self, still_moving: Callable[[str], bool]) -> None:
        """Forget older plans of applications that follow the newest one by now."""
        for device, residents in list(self._older.items()):
            left = {id: r for id, r in residents.items() if still_moving(r.variant.application)}
            if len(left) < len(residents):
                self._made.pop(device, None)
            if left:
                self._older[device] = left
            else:
                del self._older[device]

    def of(self, device: str, warm: tuple[WarmVariant, ...], byte_s: float = 0.0) -> dict[QueryClass, OptionSet]:
        """Return non-empty options by query class; the same object until they change."""
        made = self._made.get(device)
        if made is not None and made[0] == (warm, byte_s):
            return made[1]
        newest, older = self._newest.get(device, {}), self._older.get(device, {})
        by_class: dict[QueryClass, list[ServingOption]] = {}
        for variant in warm:
            resident = newest.get(variant.id) or older.get(variant.id)
            spec = self._applications.get(variant.application)
            if resident is None or spec is None or resident.variant.application != variant.application:
                continue
            for size in shapes.classes(spec):
                transfer_s = byte_s * row_bytes(spec, size) if byte_s else 0.0
                option = self._option(resident, spec, size, (device, variant.id) in self._planned, transfer_s)
                if option is not None:
                    by_class.setdefault(QueryClass(spec.name, size), []).append(option)
        option_sets = {
            query_class: OptionSet(options, self._policies.get((device, query_class.application)))
            for query_class, options in by_class.items()
        }
        self._made[device] = (warm, byte_s), option_sets
        return option_sets

    def _option(
        self, resident: Resident, spec: ApplicationSpec, size: int, planned: bool, transfer_s: float
    ) -> ServingOption | None:
        variant = resident.variant
        accuracy = variant.accuracy_normalized if variant.accuracy_normalized is not None else variant.accuracy or 0.0
        profile = shapes.of_class((*resident.profile, *resident.smaller), size) if size else resident.profile
        key = (variant.id, accuracy, profile, planned, resident.rate, resident.max_batch, variant.alone)
        if transfer_s:
            # Not kept: the estimate of a network changes for as long as it is used.
            return option(resident, accuracy, profile, spec, self._rows, planned, transfer_s)
        if key not in self._options:
            self._options[key] = option(resident, accuracy, profile, spec, self._rows, planned)
        return self._options[key]


def alone_s(profile: Sequence[ProfilePoint], rows: int) -> float | None:
    """Estimated seconds of a query of ``rows`` rows alone; None: there is no profile."""
    points = [(p.batch, p.p50_s + AROUND_S) for p in profile if p.batch >= 1 and 0 < p.p50_s < math.inf]
    if not points:
        return None
    latency = LatencyModel(points)
    pieces, rest = divmod(rows, latency.largest)
    return pieces * latency.seconds(latency.largest) + (latency.seconds(rest) if rest else 0.0)


def option(
    resident: Resident,
    accuracy: float,
    profile: Sequence[ProfilePoint],
    spec: ApplicationSpec,
    rows: int,
    planned: bool = True,
    transfer_s: float = 0.0,
) -> ServingOption | None:
    """Return a resident as an option; None: no profile, or not even one row in time.

    Args:
        transfer_s: seconds that a row is on the way, beyond the round trip.

    Late binding plans with the median: its latency correction is at least 1, so that it could never correct a mean that
    one stall during profiling has raised. Published policies plan with the 95th percentile.
    """
    known = [p for p in profile if p.batch >= 1 and 0 < p.p50_s < math.inf]
    if not known:
        return None
    latency = LatencyModel([(p.batch, p.p50_s + AROUND_S + transfer_s * p.batch) for p in known])
    most = 1 if resident.variant.alone else min(latency.largest, rows)
    while most and latency.seconds(most) > spec.slo_s:
        most -= 1
    if not most or latency.seconds(1) > spec.slo_s:
        return None
    return ServingOption(
        resident.variant.id,
        accuracy,
        latency,
        most,
        spec.weight,
        at_most=bool(spec.sizes),
        planned=planned,
        rate=resident.rate,
        slice_rows=min(most, max(1, resident.max_batch)),
        bound=LatencyModel([(p.batch, max(p.p50_s, p.p95_s) + AROUND_S + transfer_s * p.batch) for p in known]),
        row_transfer_s=transfer_s,
        alone=resident.variant.alone,
    )
