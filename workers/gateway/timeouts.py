"""Giving up on queries that nobody answers, without a timer for each: they wait in slots of time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .flights import Flight

#: width of a slot in seconds; a query is given up that much after its time at most
SLOT_S = 0.05


class Timeouts:
    """Calls ``on_time_out`` once for each flight whose time has come, unless it is forgotten before."""

    def __init__(self, on_time_out: Callable[[Flight], None]):
        self._on_time_out = on_time_out
        self._slots: dict[int, dict[Flight, None]] = {}
        #: slots up to this number are behind us
        self._swept = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, flight: Flight, at: float) -> None:
        """Give the flight up at ``at`` (seconds on the loop's clock, which the gateway's is)."""
        number = max(int(at / SLOT_S), self._swept) + 1
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = {}
            if self._timer is None:
                self._swept = max(self._swept, self._present())
                self._arm()
        slot[flight] = None
        flight.slot = slot

    def forget(self, flight: Flight) -> None:
        """The flight has ended."""
        if flight.slot is not None:
            del flight.slot[flight]
            flight.slot = None

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SLOT_S, self._sweep)

    @staticmethod
    def _present() -> int:
        return int(asyncio.get_running_loop().time() / SLOT_S)

    def _sweep(self) -> None:
        self._timer = None
        first, self._swept = self._swept + 1, self._present()
        for number in range(first, self._swept + 1):
            slot = self._slots.pop(number, None)
            for flight in list(slot or ()):
                # One that times out may take others along.
                if flight.slot is slot:
                    flight.slot = None
                    self._on_time_out(flight)
        if self._slots:
            self._arm()
