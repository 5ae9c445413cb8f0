"""From places on concrete devices to an :class:`Allocation`: rates divided, spare devices used, moves counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .capacity import Capacity, TurnCost, dedicated_capacity, profile_on
from .groups import usable
from .problem import Allocation, Application, Device, Placement, Problem, Variant

#: Relative tolerance on rates: the solver's own feasibility tolerance.
TOLERANCE = 1e-6
#: A spare device loads something new only for a variant that is this much busier than the best one it has loaded.
WORTH_A_LOAD = 0.25


@dataclass(frozen=True)
class Seat:
    """A variant resident on a device. ``capacity``: items/s it can serve there; ``max_batch``: rows a turn;
    ``turn_gap_s``: 0 on a dedicated device, where ``cost`` is None and ``full_rate`` is P of the whole device."""

    device: Device
    variant: Variant
    capacity: float
    max_batch: int
    full_rate: float = 0.0
    turn_gap_s: float = 0.0
    cost: TurnCost | None = None

    def time_share(self, rate: float) -> float:
        """Share of the device's time: rate / P, or a turn's fixed cost per gap and the variable cost of the rate."""
        if self.cost is None:
            return rate / self.full_rate
        return self.cost.alpha_s / self.turn_gap_s + self.cost.beta_s * rate


def dedicated_seat(device: Device, variant: Variant, capacity: Capacity) -> Seat:
    """The variant alone on the device (Eq. 5), its capacity scaled by the device's availability."""
    return Seat(device, variant, capacity.rate * device.available, capacity.batch, full_rate=capacity.rate)


def assemble(
    problem: Problem,
    seats: Iterable[Seat],
    rates: Mapping[str, float],
    *,
    objective: float = 0.0,
    bound: float = 0.0,
    gap: float = 0.0,
    proven: bool = True,
) -> Allocation:
    """The allocation in which variant m serves ``rates[m]`` items/s, divided over its seats by their capacities, so
    that all its devices are equally busy. Seats without a rate go, and devices left idle get something useful.

    Rates are cut to the seats' capacities and to the demand, so that a solver's tolerances never reach a plan.
    """
    applications = {a.id: a for a in problem.applications}
    seats = [s for s in seats if rates.get(s.variant.id, 0.0) > 0 and s.capacity > 0]
    totals = _clipped(applications, seats, rates)
    seats = [s for s in seats if totals[s.variant.id] > 0]
    left_out = _left_out(applications, seats, totals)
    _use_spare_devices(problem, applications, seats, totals, left_out)
    left_out = _left_out(applications, seats, totals)

    capacity: dict[str, float] = {}
    for seat in seats:
        capacity[seat.variant.id] = capacity.get(seat.variant.id, 0.0) + seat.capacity
    order = {device.id: i for i, device in enumerate(problem.devices)}
    placements = []
    for seat in sorted(seats, key=lambda s: (order[s.device.id], s.variant.id)):
        rate = totals[seat.variant.id] * seat.capacity / capacity[seat.variant.id]
        placements.append(
            Placement(seat.device.id, seat.variant.id, rate, seat.max_batch, min(seat.time_share(rate), 1.0))
        )
    items = sum(totals.values())
    accuracies = {s.variant.id: s.variant.accuracy for s in seats}
    return Allocation(
        placements=tuple(placements),
        served={a.id: a.demand - left_out[a.id] for a in problem.applications},
        left_out=left_out,
        accuracy=sum(accuracies[v] * rate for v, rate in totals.items() if rate > 0) / items if items > 0 else 0.0,
        turn_gap_s={s.device.id: s.turn_gap_s for s in seats if s.turn_gap_s > 0},
        objective=objective,
        bound=bound,
        gap=gap,
        status="empty" if not placements else "optimal" if proven else "feasible",
        moves=sum(s.variant.id not in s.device.loaded for s in seats),
    )


def _clipped(applications: Mapping[str, Application], seats: list[Seat], rates: Mapping[str, float]):
    capacity: dict[str, float] = {}
    owner: dict[str, str] = {}
    for seat in seats:
        capacity[seat.variant.id] = capacity.get(seat.variant.id, 0.0) + seat.capacity
        owner[seat.variant.id] = seat.variant.application
    totals = {v: min(rates[v], c) for v, c in capacity.items()}
    sums: dict[str, float] = {}
    for variant, rate in totals.items():
        sums[owner[variant]] = sums.get(owner[variant], 0.0) + rate
    for variant in totals:
        total, demand = sums[owner[variant]], applications[owner[variant]].demand
        # Also where the solver's tolerance left the demand unserved by a hair: the sum is then the demand itself.
        if total > demand or total > demand * (1 - TOLERANCE):
            totals[variant] = min(totals[variant] * demand / total, capacity[variant])
    return {v: rate for v, rate in totals.items() if rate > applications[owner[v]].demand * TOLERANCE} | {
        v: 0.0 for v, rate in totals.items() if rate <= applications[owner[v]].demand * TOLERANCE
    }


def _left_out(applications: Mapping[str, Application], seats: list[Seat], totals: Mapping[str, float]):
    owner = {s.variant.id: s.variant.application for s in seats}
    served = dict.fromkeys(applications, 0.0)
    for variant, rate in totals.items():
        if variant in owner:
            served[owner[variant]] += rate
    out = {}
    for name, application in applications.items():
        missing = application.demand - served[name]
        out[name] = missing if missing > application.demand * 2 * TOLERANCE else 0.0
    return out


def _use_spare_devices(problem, applications, seats: list[Seat], totals: dict[str, float], left_out: dict[str, float]):
    """Give each idle device what is still left out and fits there, else a share of the busiest variant's work.

    The second serves no more items but halves queues. A device that has a busy variant loaded keeps it, unless
    another one is busier by :data:`WORTH_A_LOAD`, so that plans do not flap over spare devices.
    """
    busy = {s.device.id for s in seats}
    for device in problem.devices:
        if device.id in busy or not usable(device):
            continue
        best: tuple | None = None
        capacity: dict[str, float] = {}
        for seat in seats:
            capacity[seat.variant.id] = capacity.get(seat.variant.id, 0.0) + seat.capacity
        for index, variant in enumerate(problem.variants):
            application = applications[variant.application]
            profile = profile_on(variant, device)
            found = dedicated_capacity(profile, application.slo_s) if profile is not None else None
            if found is None:
                continue
            seat = dedicated_seat(device, variant, found)
            gain = application.weight * min(seat.capacity, left_out[application.id])
            if gain > 0:
                score = (1, gain, variant.accuracy, variant.id in device.loaded, -index)
            elif totals.get(variant.id, 0.0) > 0:
                load = totals[variant.id] / capacity[variant.id]
                score = (0, load + WORTH_A_LOAD * (variant.id in device.loaded), 0.0, False, -index)
            else:
                continue
            if best is None or score > best[0]:
                best = (score, seat, min(seat.capacity, left_out[application.id]))
        if best is not None:
            _, seat, extra = best
            seats.append(seat)
            totals[seat.variant.id] = totals.get(seat.variant.id, 0.0) + extra
            left_out[seat.variant.application] -= extra
