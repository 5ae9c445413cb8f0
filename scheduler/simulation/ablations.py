"""Late binding and the plan search without one part: switches that simulations alone know."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from workers.dispatch.late.dispatching import Dispatching
from workers.dispatch.options import INF, OptionSet

_ranked, _choose_option = OptionSet.ranked, Dispatching._choose_option

_LATE, _PLAN = "workers.dispatch.late", "scheduler.allocation"


def _returns(value: Any):
    return lambda *_arguments: value


#: what a part's absence replaces, as MODULE:CLASS.ATTRIBUTE; each name says what is taken away
PARTS: dict[str, Mapping[str, Any]] = {
    # Device time costs no more accuracy under pressure than without.
    "prices": {
        "workers.dispatch.options:OptionSet.ranked": lambda self, _level: _ranked(self, 0),
        f"{_LATE}.dispatching:Dispatching._choose_option": (
            lambda self, batch, start, _level, now: _choose_option(self, batch, start, 0, now)
        ),
    },
    "usual-pressure": {f"{_LATE}.state:UsualPressure.look": _returns(None)},
    "congestion": {f"{_LATE}.demand_spread:DemandSpread.loads": lambda _self: {}},
    "margin": {f"{_LATE}.state:ServedClass.margin": _returns(0.0)},
    # A new batch behind others need not leave the time of a sustaining batch.
    "sustaining-batch": {f"{_LATE}.{name}:sustains": _returns(True) for name in ("schedule", "selection")},
    # No application is kept from the devices on which others depend.
    "starvation": {f"{_LATE}.selection:starves": _returns(False)},
    # A query fits behind all that is scheduled, or nowhere.
    "insertion": {f"{_LATE}.schedule:Schedule._insert": _returns(False)},
    # A batch starts as soon as its device is idle.
    "waiting": {f"{_LATE}.dispatching:Dispatching._delay_until": lambda _self, _batch, _device, _pressure, now: now},
    # A batch runs with the option with which it was scheduled.
    "upgrades": {f"{_LATE}.dispatching:Dispatching._choose_option": lambda _self, batch, *_arguments: batch.option},
    "sending-ahead": {f"{_LATE}.dispatching:Dispatching._may_send_ahead": _returns(False)},
    "stragglers": {f"{_LATE}.binding:straggles_at": _returns(INF), f"{_LATE}.dispatching:next_check_at": _returns(INF)},
    "corrections": {"workers.dispatch.latency_correction:LatencyCorrections.learn": _returns(False)},
    "long-batches": {"scheduler.simulation.late:SHARE_OF_SLO": 0.5},
    # Devices keep no more than the plan places.
    "standby": {"scheduler.simulation.late:KEEPS_STANDBY": False},
    "exchanges": {f"{_PLAN}.exchanges:Exchanges.improve": _returns(None)},
    "rounding": {f"{_PLAN}.nereus:STALE": 0},
    "scip": {f"{_PLAN}.columns:Program.best_counts": _returns(None)},
}


@contextmanager
def without(part: str | None) -> Iterator[None]:
    """Take a part away from all that this process runs meanwhile; None: nothing.

    Raises:
        AttributeError: what the part replaces is not there.
    """
    with ExitStack() as stack:
        for path, replacement in PARTS[part].items() if part is not None else ():
            module, _, place = path.partition(":")
            owner, _, name = place.rpartition(".")
            holder = pkgutil.resolve_name(f"{module}:{owner}" if owner else module)
            stack.callback(setattr, holder, name, getattr(holder, name))
            setattr(holder, name, replacement)
        yield
