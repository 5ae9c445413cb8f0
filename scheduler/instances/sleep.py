"""Sleep advice: devices that could sleep, and device types that want another one.

Pure. INFaaS' VM autoscaler (Section 4.2.3) as advice, since the boxes of a cluster are given. A device type wants
another device where its devices are busier than :data:`BUSY` in all, where more than :data:`OVERLOADED` of them are
overloaded, or where all that run something are interfered. Otherwise devices could sleep as long as what runs on them
fits on the others of their type at that threshold: the same variants serve the same queries there, and no accuracy is
lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from workers.dispatch.instance_states import InstanceState

#: utilisation above which another device is wanted, and up to which the others are filled (INFaaS, Section 5)
BUSY = 0.8
#: share of overloaded devices above which another one is wanted
OVERLOADED = 0.8


@dataclass(frozen=True)
class DeviceUse:
    """Use of a device.

    Attributes:
        load: share of its time that it needs, the larger of what is planned and what was observed.
        application: the only one that it may serve, in stacks that dedicate devices.
        states: of its instances.
    """

    ref: str
    type: str
    load: float
    application: str = ""
    states: tuple[InstanceState, ...] = ()


@dataclass(frozen=True)
class TypeAdvice:
    """For the devices of a type.

    Attributes:
        could_sleep: refs, sorted.
        wanted: whether another device is wanted.
        utilisation: of all its devices, 0 to 1; ``after``: of the others where these sleep.
        reason: one sentence.
    """

    type: str
    devices: int
    could_sleep: tuple[str, ...]
    wanted: bool
    utilisation: float
    after: float
    reason: str


def advice(devices: Iterable[DeviceUse]) -> list[TypeAdvice]:
    """Advice by device type, sorted."""
    by_type: dict[str, list[DeviceUse]] = {}
    for device in devices:
        by_type.setdefault(device.type, []).append(device)
    return [_advise(kind, some) for kind, some in sorted(by_type.items())]


def _advise(kind: str, devices: list[DeviceUse]) -> TypeAdvice:
    total = sum(min(device.load, 1.0) for device in devices)
    utilisation = total / len(devices)
    wanted = _wanted(devices, utilisation)
    if wanted:
        return TypeAdvice(kind, len(devices), (), True, utilisation, utilisation, f"Another one is wanted: {wanted}.")
    sleeping: list[DeviceUse] = []
    for application in {device.application for device in devices}:
        mine = sorted((d for d in devices if d.application == application), key=lambda d: (d.load, d.ref))
        # Room for what cannot be divided at will is left by rounding up.
        needed = math.ceil(sum(min(device.load, 1.0) for device in mine) / BUSY - 1e-9)
        sleeping += mine[: max(0, len(mine) - needed)]
    left = len(devices) - len(sleeping)
    after = total / left if left else 0.0
    if not sleeping:
        reason = f"All are needed: with one fewer, the others would be busier than {BUSY:.0%}."
    elif total > 0:
        reason = f"What runs on them fits on the others, which would be {after:.0%} busy."
    else:
        reason = "Nothing runs on them."
    return TypeAdvice(kind, len(devices), tuple(sorted(d.ref for d in sleeping)), False, utilisation, after, reason)


def _wanted(devices: list[DeviceUse], utilisation: float) -> str:
    """The reason why another device of the type is wanted; empty: it is not."""
    if utilisation > BUSY:
        return f"they are {utilisation:.0%} busy, above {BUSY:.0%}"
    overloaded = sum(InstanceState.OVERLOADED in device.states for device in devices)
    if overloaded > OVERLOADED * len(devices):
        return f"{overloaded} of {len(devices)} have overloaded instances, above {OVERLOADED:.0%}"
    running = [device for device in devices if device.load > 0]
    if running and all(InstanceState.INTERFERED in device.states for device in running):
        return "on all that run something, instances are slower than profiled"
    return ""
