"""Late binding with one part removed.

A simulation can ask for it as its routing, by the names here.
"""

from __future__ import annotations

from dataclasses import dataclass

from workers.dispatch.late.dispatching import Dispatching
from workers.dispatch.late.schedule import Schedule
from workers.dispatch.options import OptionSet
from workers.dispatch.stack import LATE_BINDING


@dataclass(frozen=True)
class LateParts:
    """The parts of late binding that a simulation runs.

    Attributes:
        schedule, dispatching, option_set: the classes that decide.
        share_of_slo: the longest batch that may be offered, as part of the SLO.
        standby: whether devices keep more than the plan places.
    """

    schedule: type[Schedule] = Schedule
    dispatching: type[Dispatching] = Dispatching
    option_set: type[OptionSet] = OptionSet
    share_of_slo: float = 1.0
    standby: bool = True


class _UnpricedOptionSet(OptionSet):
    """Device time costs no more accuracy under pressure than without."""

    def ranked(self, level):
        return super().ranked(0)


class _Unpriced(Dispatching):
    def _choose_option(self, batch, start, pressure, now):
        return super()._choose_option(batch, start, 0.0, now)


class _Unwaiting(Dispatching):
    """A batch starts as soon as its device is idle."""

    def _delay_until(self, batch, device, pressure, now):
        return now


class _NoUpgrades(Dispatching):
    """A batch runs with the option with which it was scheduled."""

    def _choose_option(self, batch, start, pressure, now):
        return batch.option


class _NoInsertion(Schedule):
    """A query fits behind all that is scheduled, or nowhere."""

    def _insert(self, *_arguments):
        return False


class _NoStealing(Schedule):
    """Idle devices leave to others what waits there."""

    def steal(self, device, now):
        pass


BINDINGS = {
    LATE_BINDING: LateParts(),
    f"{LATE_BINDING}-wo-prices": LateParts(dispatching=_Unpriced, option_set=_UnpricedOptionSet),
    f"{LATE_BINDING}-wo-waiting": LateParts(dispatching=_Unwaiting),
    f"{LATE_BINDING}-wo-insertion": LateParts(schedule=_NoInsertion),
    f"{LATE_BINDING}-wo-stealing": LateParts(schedule=_NoStealing),
    f"{LATE_BINDING}-wo-upgrades": LateParts(dispatching=_NoUpgrades),
    f"{LATE_BINDING}-wo-long-batches": LateParts(share_of_slo=0.5),
    f"{LATE_BINDING}-wo-standby": LateParts(standby=False),
}

#: names of earlier releases, still accepted
RENAMED = {
    f"{LATE_BINDING}-wo-squeezing": f"{LATE_BINDING}-wo-insertion",
    f"{LATE_BINDING}-wo-lulls": f"{LATE_BINDING}-wo-long-batches",
    f"{LATE_BINDING}-wo-stand-by": f"{LATE_BINDING}-wo-standby",
}
