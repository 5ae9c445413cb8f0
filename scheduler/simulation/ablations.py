"""Late binding with a part of it taken away, by the names under which a simulation can ask for it as its routing."""

from __future__ import annotations

from dataclasses import dataclass, field

from workers.dispatch.routing import LATE_BINDING
from workers.dispatch.rules import Rules


@dataclass(frozen=True)
class Binding:
    """``rules``: of the dispatcher. ``share_of_slo``: the longest batch that may be offered, as part of the SLO.
    ``stand_by``: whether devices keep more than the plan places."""

    rules: Rules = field(default_factory=Rules)
    share_of_slo: float = 1.0
    stand_by: bool = True


BINDINGS = {
    LATE_BINDING: Binding(),
    f"{LATE_BINDING}-wo-prices": Binding(Rules(prices=False)),
    f"{LATE_BINDING}-wo-waiting": Binding(Rules(waiting=False)),
    f"{LATE_BINDING}-wo-squeezing": Binding(Rules(squeezing=False)),
    f"{LATE_BINDING}-wo-stealing": Binding(Rules(stealing=False)),
    f"{LATE_BINDING}-wo-upgrades": Binding(Rules(upgrades=False)),
    f"{LATE_BINDING}-wo-lulls": Binding(share_of_slo=0.5),
    f"{LATE_BINDING}-wo-stand-by": Binding(stand_by=False),
}
