"""Seats (a variant alone on a device) and the allocation that a set of them makes; one seat a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..capacity import Capacity, dedicated_capacity, profile_on
from ..groups import usable
from ..problem import Allocation, Device, Placement, Problem, Variant
from ..residents import Seat, dedicated_seat
from .explanations import sentences

#: a rate that misses the demand by less (relative) serves all of it
ROUNDING = 1e-9
#: items/s below which an application has no demand: shares of less are lost to rounding altogether
NOTHING = 1e-9


class Seating:
    """What can sit where in a problem: Eq. 5 of Proteus for each device and variant."""

    def __init__(self, problem: Problem):
        self.devices = {d.id: d for d in problem.devices}
        self.variants = {v.id: v for v in problem.variants}
        self._slo = {a.id: a.slo_s for a in problem.applications}
        self._of: dict[str, list[Variant]] = {a.id: [] for a in problem.applications}
        for variant in problem.variants:
            if not variant.excluded:
                self._of[variant.application].append(variant)
        # One profile serves all devices of its type.
        self._capacities: dict[tuple[int, str], Capacity | None] = {}

    def seat(self, device: Device, variant: Variant) -> Seat | None:
        """The variant alone on the device; None where it may not or cannot run there within half of the SLO."""
        profile = profile_on(variant, device)
        if profile is None or variant.excluded or not usable(device):
            return None
        key = (id(profile), variant.application)
        if key not in self._capacities:
            self._capacities[key] = dedicated_capacity(profile, self._slo[variant.application])
        capacity = self._capacities[key]
        return None if capacity is None else dedicated_seat(device, variant, capacity)

    def choices(self, device: Device, application: str) -> list[Seat]:
        """The application's possible seats on the device, the most accurate first; of equal ones, the faster."""
        found = [seat for v in self._of[application] if (seat := self.seat(device, v)) is not None]
        return sorted(found, key=lambda s: (-s.variant.accuracy, -s.capacity))

    def fastest(self, device: Device, application: str) -> Seat | None:
        """The application's seat with the highest capacity on the device; equally fast ones: the more accurate."""
        return max(self.choices(device, application), key=lambda s: s.capacity, default=None)

    def useful(self, device: Device) -> bool:
        """Whether anything can sit there."""
        return any(self.seat(device, v) is not None for v in self.variants.values())

    def seats(self, placements: Iterable[Placement]) -> dict[str, Seat]:
        """The placements as seats, by device; those that this problem no longer allows are left out."""
        found: dict[str, Seat] = {}
        for placement in placements:
            device, variant = self.devices.get(placement.device), self.variants.get(placement.variant)
            seat = None if device is None or variant is None else self.seat(device, variant)
            if seat is not None and device.id not in found:
                found[device.id] = seat
        return found


def in_force(problem: Problem, seating: Seating) -> dict[str, Seat] | None:
    """The seats that the previous allocation gave, by device; None where there is none, or where it was made for
    another cluster: applications came or went, a seat is no longer possible, or a device could be used and is not.
    """
    previous = problem.previous
    if previous is None or set(previous.served) != {a.id for a in problem.applications}:
        return None
    seats = seating.seats(previous.placements)
    if len(seats) != len(previous.placements):
        return None
    if any(device.id not in seats and seating.useful(device) for device in problem.devices):
        return None
    return seats


def evenly(problem: Problem, seats: Mapping[str, Seat]) -> dict[str, float]:
    """Rates by device: each application's demand, as far as its seats can serve it, in proportion to capacities."""
    capacity = dict.fromkeys((a.id for a in problem.applications), 0.0)
    for seat in seats.values():
        capacity[seat.variant.application] += seat.capacity
    demand = {a.id: a.demand for a in problem.applications}
    load = {q: min(demand[q] / c, 1.0) if c > 0 else 0.0 for q, c in capacity.items()}
    return {device: seat.capacity * load[seat.variant.application] for device, seat in seats.items()}


def best_first(problem: Problem, seats: Mapping[str, Seat]) -> dict[str, float]:
    """Rates by device: each application's demand on its most accurate seats first; seats of one variant are equally
    busy."""
    left = {a.id: a.demand for a in problem.applications}
    capacity: dict[str, float] = {}
    for seat in seats.values():
        capacity[seat.variant.id] = capacity.get(seat.variant.id, 0.0) + seat.capacity
    variants = {seat.variant.id: seat.variant for seat in seats.values()}
    load: dict[str, float] = {}
    for variant in sorted(variants.values(), key=lambda v: (-v.accuracy, v.id)):
        rate = max(0.0, min(left[variant.application], capacity[variant.id]))
        left[variant.application] -= rate
        load[variant.id] = rate / capacity[variant.id]
    return {device: seat.capacity * load[seat.variant.id] for device, seat in seats.items()}


def settled(
    problem: Problem, seats: Mapping[str, Seat], rates: Mapping[str, float], why: str, why_left_out: str
) -> Allocation:
    """The allocation with these seats and rates (items/s), both by device; a seat may have rate 0.

    ``why``: a sentence on the strategy; ``why_left_out``: why demand beyond the seats' capacity is left out.
    """
    served = dict.fromkeys((a.id for a in problem.applications), 0.0)
    nothing = {a.id for a in problem.applications if a.demand <= NOTHING}
    rates = {d: 0.0 if seat.variant.application in nothing else rates[d] for d, seat in seats.items()}
    accuracy = 0.0
    placements = []
    for device in problem.devices:
        seat = seats.get(device.id)
        if seat is None:
            continue
        rate = rates[device.id]
        served[seat.variant.application] += rate
        accuracy += rate * seat.variant.accuracy
        placements.append(Placement(device.id, seat.variant.id, rate, seat.max_batch, min(seat.time_share(rate), 1.0)))
    left_out = {}
    for application in problem.applications:
        missing = application.demand - served[application.id]
        left_out[application.id] = missing if missing > application.demand * ROUNDING else 0.0
    items = sum(served.values())
    objective, bound = _worth(problem, seats, rates)
    allocation = Allocation(
        placements=tuple(placements),
        served={a.id: a.demand - left_out[a.id] for a in problem.applications},
        left_out=left_out,
        accuracy=accuracy / items if items > 0 else 0.0,
        objective=objective,
        bound=bound,
        gap=(bound - objective) / objective if objective > 0 else 0.0,
        status="heuristic" if placements else "empty",
        moves=sum(seat.variant.id not in seat.device.loaded for seat in seats.values()),
    )
    return Allocation(**{**vars(allocation), "reasons": sentences(problem, allocation, seats, why, why_left_out)})


def _worth(problem: Problem, seats: Mapping[str, Seat], rates: Mapping[str, float]) -> tuple[float, float]:
    """Percent: the weighted mean accuracy over all demand, what is left out counting 0, and what all demand on the most
    accurate variants would give."""
    weight = {a.id: a.weight for a in problem.applications}
    total = sum(a.weight * a.demand for a in problem.applications)
    if total <= 0:
        return 0.0, 0.0
    best: dict[str, float] = {}
    for variant in problem.variants:
        best[variant.application] = max(best.get(variant.application, 0.0), variant.accuracy)
    got = sum(weight[s.variant.application] * rates[d] * s.variant.accuracy for d, s in seats.items())
    most = sum(a.weight * a.demand * best.get(a.id, 0.0) for a in problem.applications)
    return got / total, max(got, most) / total
