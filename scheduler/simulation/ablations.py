"""Late binding with one part removed, by the names under which a simulation can ask for it as its routing."""

from __future__ import annotations

from dataclasses import dataclass

from workers.dispatch.late.dispatching import Granting
from workers.dispatch.late.schedule import Bookings
from workers.dispatch.options import Menu
from workers.dispatch.stacks import LATE_BINDING


@dataclass(frozen=True)
class LateBinding:
    """What a simulation of late binding is made of.

    Attributes:
        bookings, granting, menu: the classes that decide.
        share_of_slo: the longest batch that may be offered, as part of the SLO.
        stand_by: whether devices keep more than the plan places.
    """

    bookings: type[Bookings] = Bookings
    granting: type[Granting] = Granting
    menu: type[Menu] = Menu
    share_of_slo: float = 1.0
    stand_by: bool = True


class _UnpricedMenu(Menu):
    """Device time costs no more accuracy under pressure than without."""

    def ranked(self, level):
        return super().ranked(0)


class _Unpriced(Granting):
    @staticmethod
    def _chosen(batch, device, start, pressure, now):
        return Granting._chosen(batch, device, start, 0.0, now)


class _Unwaiting(Granting):
    """A batch starts as soon as its device is idle."""

    @staticmethod
    def _waits_until(batch, device, pressure, now):
        return now


class _NoUpgrades(Granting):
    """A batch runs on the variant with which it was booked."""

    @staticmethod
    def _chosen(batch, device, start, pressure, now):
        return batch.option


class _NoSqueezing(Bookings):
    """A query fits behind all that is booked, or nowhere."""

    def _squeeze(self, *_arguments):
        return False


class _NoStealing(Bookings):
    """Idle devices leave to others what waits there."""

    def steal(self, device, now):
        pass


BINDINGS = {
    LATE_BINDING: LateBinding(),
    f"{LATE_BINDING}-wo-prices": LateBinding(granting=_Unpriced, menu=_UnpricedMenu),
    f"{LATE_BINDING}-wo-waiting": LateBinding(granting=_Unwaiting),
    f"{LATE_BINDING}-wo-squeezing": LateBinding(bookings=_NoSqueezing),
    f"{LATE_BINDING}-wo-stealing": LateBinding(bookings=_NoStealing),
    f"{LATE_BINDING}-wo-upgrades": LateBinding(granting=_NoUpgrades),
    f"{LATE_BINDING}-wo-lulls": LateBinding(share_of_slo=0.5),
    f"{LATE_BINDING}-wo-stand-by": LateBinding(stand_by=False),
}
