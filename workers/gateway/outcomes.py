"""Ends of queries in the core: answers and errors for fronts.

The errors are those of refused and lost queries.
"""

from __future__ import annotations

from collections.abc import Sequence

from workers.protocol.frames import Refusal

from .errors import GatewayError, Invalid, ModelFailed, Overloaded, TimedOut, Unavailable
from .in_flight import InFlightQuery, Run


def deliver(
    completed: Sequence[InFlightQuery | None],
    flights: Sequence[InFlightQuery],
    run: Run,
    queue_s: float,
    answers: Sequence,
) -> None:
    """Give each front the answers of its queries; mostly there is one.

    Args:
        completed: of one batch; None: withdrawn meanwhile.
        flights: the others.
        queue_s: seconds from receipt at the device to the run's start.
    """
    first = flights[0].front
    if len(flights) == 1 or all([flight.front is first for flight in flights]):
        first.deliver(completed, run, queue_s, answers)
        return
    for front in dict.fromkeys([flight.front for flight in flights]):
        mine = [place for place, flight in enumerate(completed) if flight is not None and flight.front is front]
        front.deliver([completed[place] for place in mine], run, queue_s, [answers[place] for place in mine])


def no_answer(flight: InFlightQuery, who: str, now: float) -> TimedOut:
    """The error of a query that a device, or nobody, has answered."""
    return TimedOut(f"{who}: no answer within {(now - flight.arrived) * 1e3:g} ms", retry_after_s=1.0)


def from_refusal(device: str, refusal: Refusal) -> GatewayError:
    message = f"device {device}: {refusal.message}"
    match refusal.code:
        case "late" | "overloaded":
            return Overloaded(message)
        case "not_resident" | "not_leased" | "draining":
            return Unavailable(message)
        case "invalid":
            return Invalid(refusal.message)
        case _:
            return ModelFailed(message)
