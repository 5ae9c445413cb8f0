"""Sentences for the operator on allocations that no MILP weighed: what sits where, and why something is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..groups import usable
from ..problem import Allocation, Problem
from ..residents import Seat


def sentences(
    problem: Problem, allocation: Allocation, seats: Mapping[str, Seat], why: str, why_left_out: str
) -> tuple[str, ...]:
    """In reading order: what the strategy does, what is left out, then device by device."""
    return (
        why,
        *_left_out(problem, allocation, seats, why_left_out),
        *_devices(problem, allocation, seats),
    )


def _left_out(problem: Problem, allocation: Allocation, seats: Mapping[str, Seat], why_left_out: str) -> Iterator[str]:
    for application in problem.applications:
        missing = allocation.left_out[application.id]
        if missing <= 0:
            continue
        mine = [seat for seat in seats.values() if seat.variant.application == application.id]
        count = "1 device serves" if len(mine) == 1 else f"{len(mine)} devices serve"
        able = f"its {count} at most {sum(seat.capacity for seat in mine):.1f} items/s"
        yield (
            f"{application.id}: {missing:.3g} of {application.demand:.3g} items/s are left out: "
            f"{able if mine else 'no device serves it'}. {why_left_out}"
        )


def _devices(problem: Problem, allocation: Allocation, seats: Mapping[str, Seat]) -> Iterator[str]:
    rates = {p.device: p.rate for p in allocation.placements}
    for device in problem.devices:
        seat = seats.get(device.id)
        if seat is None:
            why = "this stack placed nothing here" if usable(device) else "it has no time or room for variants now"
            yield f"{device.id}: idle, because {why}."
            continue
        kept = "already loaded" if seat.variant.id in device.loaded else "to be loaded"
        yield (
            f"{device.id}: {seat.variant.label} ({seat.variant.application}) serves {rates[device.id]:.1f} of "
            f"at most {seat.capacity:.1f} items/s, in batches of up to {seat.max_batch}; {kept}."
        )
