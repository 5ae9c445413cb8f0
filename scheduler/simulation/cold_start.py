"""The cold start's bound: queries that no rule can answer in time.

They are lost since nothing can be loaded for them by then. A run begins with nothing loaded. Until the first loads end
nothing is served, and with fewer devices than applications some first loads begin only after others. Each application
gets its first load in some round; in each round every device ends one load, as quick as the quickest of all, and an
application's is never quicker than its own quickest. The order of applications is chosen so that the fewest queries are
lost, as the most knowing rule would. Run times, the network, and that a device serves nothing while it loads are left
out: the bound holds for every rule, and none may reach it.
"""

from __future__ import annotations

import numpy as np
from pyscipopt import LP

from .scenario import Scenario


def cold_bound(scenario: Scenario) -> float:
    """The least share of the queries (0 to 1) that any rule loses to the first loads.

    A query is lost where it arrives more than its SLO before the end of its application's first load.
    """
    times = np.asarray(scenario.arrivals.times, dtype=float)
    if scenario.start is not None or not len(times):
        return 0.0
    applications = np.asarray(scenario.arrivals.applications, dtype=int)
    load_s = {name: [] for name in scenario.applications}
    for model in scenario.models:
        load_s[model.application].append(scenario.load_s(model))
    own = [min(load_s[name], default=0.0) for name in scenario.applications]
    each_s = min(own, default=0.0)
    rounds = -(-len(own) // len(scenario.devices))
    lost = np.zeros((len(own), rounds))
    for index, name in enumerate(scenario.applications):
        mine = times[applications == index]
        ends = [max(own[index], each_s * (number + 1)) for number in range(rounds)]
        lost[index] = np.searchsorted(mine, np.array(ends) - scenario.slo_s[name])
    return _least(lost, len(scenario.devices)) / len(times)


def _least(lost: np.ndarray, places: int) -> float:
    """The least sum of ``lost``, one entry a row, at most ``places`` a column."""
    rows, columns = lost.shape
    if columns == 1:
        return float(lost.sum())
    model = LP(sense="minimize")
    for value in lost.flat:
        model.addCol([], obj=float(value), lb=0.0)
    for row in range(rows):
        model.addRow([(row * columns + column, 1.0) for column in range(columns)], lhs=1.0, rhs=1.0)
    for column in range(columns):
        entries = [(row * columns + column, 1.0) for row in range(rows)]
        model.addRow(entries, lhs=-model.infinity(), rhs=float(places))
    model.solve()
    return float(model.getObjVal())
