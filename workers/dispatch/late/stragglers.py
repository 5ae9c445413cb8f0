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
    first = device.dispatched[0]
    late_s = FRACTION * (first.end - first.dispatched_at)
    return first.end + (late_s if late_s > LEAST_S else LEAST_S)


def next_check_at(device: ScheduledDevice, now: float) -> float:
    end, at = device.dispatched[0].end, straggles_at(device)
    # A little later, so that rounding does not make it too early.
    at += 0.01 * (at - end)
    if now <= end:
        return at
    # The later the answer, the less often.
    return max(at, now + max(LEAST_S, RECHECK_FRACTION * (now - end)))


def postpone(device: ScheduledDevice, now: float) -> None:
    """Expect a straggler to be free later; an update of its group must follow."""
    end = now + max(LEAST_S, now - device.dispatched[0].end)
    for other in device.dispatched[1:]:
        end += device.seconds(other.option, other.rows)
    if not device.loading or end > device.free_at:
        device.free_at = end
