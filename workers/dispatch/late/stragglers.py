"""Stragglers: devices whose answers are late. Pure."""

from __future__ import annotations

from .state import ScheduledDevice

#: a device straggles once its answer is late by this part of its time, and by this many seconds; it is then expected to
#: be late by as much again
FRACTION = 0.25
LEAST_S = 0.005
#: a straggler is checked again after this part of the time by which it is late
RECHECK_FRACTION = 0.1


def straggles_at(device: ScheduledDevice) -> float:
    return _due_at(device) + _late_s(device)


def _due_at(device: ScheduledDevice) -> float:
    """When the first answer is due; others' work may have overtaken its batch."""
    first = device.dispatched[0]
    overtaken = device.busy_until + (first.end - first.dispatched_at)
    return overtaken if overtaken > first.end else first.end


def _late_s(device: ScheduledDevice) -> float:
    first = device.dispatched[0]
    late_s = FRACTION * (first.end - first.dispatched_at)
    return late_s if late_s > LEAST_S else LEAST_S


def next_check_at(device: ScheduledDevice, now: float) -> float:
    end = _due_at(device)
    # A little later, so that rounding does not make it too early.
    at = end + 1.01 * _late_s(device)
    if now <= end:
        return at
    # The later the answer, the less often.
    return max(at, now + max(LEAST_S, RECHECK_FRACTION * (now - end)))


def postpone(device: ScheduledDevice, now: float) -> None:
    """Expect a straggler to be free later; an update of its group must follow."""
    end = now + max(LEAST_S, now - _due_at(device))
    for other in device.dispatched[1:]:
        end += device.seconds(other.option, other.rows)
    device.free_at = end
