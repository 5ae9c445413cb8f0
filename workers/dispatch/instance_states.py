"""States of an instance (a variant on a device), as in INFaaS. Pure.

Source: Romero et al., "INFaaS" (ATC '21), Section 4, Figure 4. One rule for the core, whose router `active-first`
avoids instances by it, and for the control plane, which shows them.
"""

from __future__ import annotations

from enum import StrEnum

#: least capacity over load (INFaaS' slack-threshold, Section 5): an instance with less is at its peak
SLACK = 1.05
#: observed over profiled run time from which an instance is interfered. The paper names none; this is its published
#: code's for CPUs (5 for GPUs, where its latencies contain the wait for others; here they are run times alone)
SLOWER = 1.5
#: a batch that takes fewer additional seconds is as profiled, whatever the ratio
LEAST_EXCESS_S = 0.001


class InstanceState(StrEnum):
    #: not loaded
    INACTIVE = "inactive"
    #: serves less than it could
    ACTIVE = "active"
    #: serves at its peak
    OVERLOADED = "overloaded"
    #: not at its peak, and slower than profiled
    INTERFERED = "interfered"


def instance_state(loaded: bool, load: float, ratio: float, run_s: float = 1.0) -> InstanceState:
    """The state of an instance.

    Args:
        load: share of the device's time that what it serves takes at the profiled throughput (1: its peak), of all that
            run there: instances that share a device share its headroom.
        ratio: observed over profiled run time; 0: nothing observed.
        run_s: observed seconds of a batch.
    """
    if not loaded:
        return InstanceState.INACTIVE
    if load * SLACK > 1.0:
        return InstanceState.OVERLOADED
    if ratio > SLOWER and run_s * (1.0 - 1.0 / ratio) >= LEAST_EXCESS_S:
        return InstanceState.INTERFERED
    return InstanceState.ACTIVE
