"""Plans for members and devices that come, debounced.

After a mass join devices come up for seconds; a plan for each few of them would move models again and again. So one
plan is made once none has come for a moment. Lost devices are planned without at once.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Iterable

from scheduler import troubles
from scheduler.control import requests, upkeep
from scheduler.members.configurations import configurations, in_thread
from scheduler.members.passing import PASSING, Losses, noted

#: seconds without another device that came, and seconds since the first one, after which a plan is made
QUIET_S, LONGEST_S = 1.0, 5.0
#: devices that a plan's trigger names
_NAMED = 3


class PlanDebounce:
    """Members and devices that came since the last plan for any of them was requested.

    Args:
        quiet_s, longest_s: as :data:`QUIET_S` and :data:`LONGEST_S`.
    """

    def __init__(self, quiet_s: float = QUIET_S, longest_s: float = LONGEST_S) -> None:
        self._quiet_s, self._longest_s = quiet_s, longest_s
        self._devices: list[str] = []
        self._pending = False
        self._first = self._last = 0.0
        self._waiting: asyncio.Task | None = None
        self._losses = Losses()
        self._planned = False

    def came(self, devices: Iterable[str] = ()) -> None:
        """Have devices that came up planned with soon.

        Without any: a member joined, whose devices plans may have left out.
        """
        self._devices += devices
        self._last = time.monotonic()
        if not self._pending:
            self._pending, self._first = True, self._last
        if self._waiting is None or self._waiting.done():
            self._waiting = asyncio.create_task(self._run(), name="plan-debounce")

    async def _run(self) -> None:
        while self._pending:
            try:
                await self._quiet()
                devices, self._devices, self._pending = self._devices, [], False
                # Without Redis there is no request; the upkeep makes up for it.
                if not troubles.pausing(troubles.REDIS):
                    await in_thread(request)(devices)
            except PASSING as error:
                self._pending = False
                noted(error)
                self._losses.log("plan", "members that came", f"{type(error).__name__}: {error}")

    async def _quiet(self) -> None:
        """Return once no more come, or some have waited for long enough."""
        if not self._planned and (await configurations().registered()).shared.plan.version == 0:
            # The first plan of an appliance waits for nobody.
            self._planned = bool(self._devices)
            return
        self._planned = True
        while (left := min(self._last + self._quiet_s, self._first + self._longest_s) - time.monotonic()) > 0:
            await asyncio.sleep(left)


def request(devices: list[str]) -> None:
    """Request a plan for devices that came.

    Without any: where the plan in force has others than there are.
    """
    if devices:
        named = ", ".join(devices[:_NAMED]) + (f" and {len(devices) - _NAMED} more" if len(devices) > _NAMED else "")
        requests.request_plan("change", f"{'device' if len(devices) == 1 else 'devices'} came up: {named}")
    else:
        upkeep.replan_if_devices_changed()


_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, PlanDebounce] = weakref.WeakKeyDictionary()


def plan_debounce() -> PlanDebounce:
    """Return the running loop's."""
    return _by_loop.setdefault(asyncio.get_running_loop(), PlanDebounce())
