"""Rules for when a simulated device may stop serving to load another variant.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

#: one device of a type in this many may load at a time, at least one
PART = 4
#: pressure (0 to 1) on an application's devices below which one of them may stop
CALM = 0.3
#: a load may go before work that is less pressed than what it is for by this much
MORE_PRESSED = 0.2
#: part of the SLO for which the only device of an application may stop
SPARE = 0.5
#: a load that has been due for this many times its duration waits no longer: there may never be a better moment (an
#: application with this device only, or under pressure for lack of this very variant)
PATIENCE = 30.0
#: the same for variants whose absence causes the pressure: planned ones, and all where devices have no room
PLANNED_PATIENCE = 2.0


def too_many_load(loading: int, devices: int) -> bool:
    return loading >= max(1, devices // PART)


def may_load(
    application: str,
    here: Collection[str],
    load_s: float,
    urgent: bool,
    too_many: bool,
    hosts: Callable[[str], int],
    pressure: Callable[[str], float],
    slo_s: Callable[[str], float],
) -> bool:
    """Whether a device may load a variant of ``application`` now.

    Args:
        here: applications that the device can serve; none: it may load at once.
        load_s: duration of the load.
        urgent: it waits no longer: long overdue, or nothing serves its application, nor will by the time that it ends.
        too_many: as many devices of its type are loading as may at a time (see :func:`too_many_load`).
        hosts: other devices that serve an application now.
        pressure: on an application's devices, 0 to 1.
        slo_s: of an application.
    """
    if not here:
        return True
    if too_many:
        return False
    if urgent:
        return True
    pressed = pressure(application)
    for name in here:
        if not hosts(name) and load_s > SPARE * slo_s(name):
            return False
        mine = pressure(name)
        if mine >= CALM and not (name != application and mine + MORE_PRESSED <= pressed):
            return False
    return True
