"""Limits after which the executor's watchdog stops a run; gateways wait for it."""

from __future__ import annotations

#: a run's limit is FACTOR times its expected time or its application's SLO, and at least LEAST_S seconds
FACTOR, LEAST_S = 10.0, 2.0
#: seconds that a terminated run has to end; then the process ends
GRACE_S = 1.0


def limit_s(expected_s: float, slo_s: float, least_s: float = LEAST_S) -> float:
    """Seconds after which a run of an application with this SLO is stopped."""
    return max(FACTOR * expected_s, FACTOR * slo_s, least_s)
