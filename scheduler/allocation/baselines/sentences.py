"""Sentences for the operator on allocations that no MILP weighed: what sits where, and why something is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..groups import usable
from ..problem import Allocation, Problem
from ..seats import Seat


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
        able = f"its {len(mine)} devices can do {sum(seat.capacity for seat in mine):.1f} items/s"
        yield (
            f"{application.id}: {missing:.3g} of {application.demand:.3g} items/s are left out: "
            f"{able if mine else 'no device hosts it'}. {why_left_out}"
        )


def _devices(problem: Problem, allocation: Allocation, seats: Mapping[str, Seat]) -> Iterator[str]:
    rates = {p.device: p.rate for p in allocation.placements}
    for device in problem.devices:
        seat = seats.get(device.id)
        if seat is None:
            why = "nothing was placed there" if usable(device) else "it may host nothing now"
            yield f"{device.id}: idle, because {why}."
            continue
        kept = "already loaded" if seat.variant.id in device.loaded else "to be loaded"
        yield (
            f"{device.id}: {seat.variant.label} ({seat.variant.application}) at {rates[device.id]:.1f} of "
            f"{seat.capacity:.1f} items/s it can do (up to {seat.max_batch} rows a batch); {kept}."
        )
