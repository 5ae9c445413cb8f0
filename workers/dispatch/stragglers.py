"""What devices' times teach: how far they stray, which are overdue, slow, or to be left alone. Pure; books nothing.

Every function changes the device that it is given, and those that say so must be followed by
:meth:`.late.device_groups.Fleet.note`.
"""

from __future__ import annotations

from .late.state import Device
from .options import Option

#: a device whose answers are later than by this part of their time, and by this many seconds, may be stuck; it is
#: expected to need so many seconds more, or as many as it is late by already, again and again
OVERDUE = 0.25
OVERDUE_S = 0.005
#: one that is overdue is looked at again after this part of the time by which it is late
AGAIN = 0.1
#: how slow an option was on a device is forgotten by and by when it has not run there for so many seconds, which is
#: looked at so often
FORGET_S = 10.0
FORGET_EVERY_S = 1.0
#: seconds for which a device that gave queries back is not asked again; so many times as long each time it does so
#: again before it answered anything, up to a most
SHY_S = 0.02
SHY_AGAIN = 4.0
SHY_MOST_S = 1.0


def overdue_at(device: Device) -> float:
    """When the first answer of a device that was granted something is overdue."""
    first = device.granted[0]
    return first.end + max(OVERDUE_S, OVERDUE * (first.end - first.granted_at))


def looked_at_again(device: Device, now: float) -> float:
    """When to look again whether the first answer of a device is overdue, or how overdue it is."""
    end, at = device.granted[0].end, overdue_at(device)
    # A little later than that, not to come too early by a rounding; and the later it is, the less often.
    return max(at + 0.01 * (at - end), now + max(OVERDUE_S, AGAIN * (now - end)))


def expect_later(device: Device, now: float) -> None:
    """The first answer of a device is overdue: as late as it is, as much longer it may take. To be noted."""
    end = now + max(OVERDUE_S, now - device.granted[0].end)
    for other in device.granted[1:]:
        end += device.seconds(other.option, other.rows)
    if not device.away or end > device.free_at:
        device.free_at = end


def learn(device: Device, option: Option, rows: int, run_s: float, now: float) -> None:
    """A batch of so many rows took ``run_s`` seconds. To be noted."""
    expected_s = option.seconds(rows)
    ratio = run_s / expected_s
    if ratio < 1.0 and option.at_most:
        ratio = 1.0
    device.heard_at = now
    if device.factors.learn(option, ratio, expected_s, now):
        device.recount()


def forget_slowness(device: Device, now: float) -> bool:
    """What is slow gets nothing to run, so that nobody would learn that it is slow no more: believe less of it. True:
    the device has changed, and is to be noted."""
    if now < device.forget_at:
        return False
    device.forget_at = now + FORGET_EVERY_S
    silent = now - device.heard_at > FORGET_S and not device.granted
    if not device.factors.forget(now, FORGET_S, (batch.option for batch in device.granted), silent):
        return False
    if silent:
        device.heard_at = now
    device.recount()
    return True


def gave_back(device: Device, now: float) -> None:
    """The device gave queries back: it is left alone until :attr:`.Device.shy_until`."""
    device.shy_s = min(device.shy_s * SHY_AGAIN, SHY_MOST_S) if device.shy_s else SHY_S
    device.shy_until = now + device.shy_s
