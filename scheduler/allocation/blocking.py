"""Blocking residents: standby variants that would delay planned queries. Pure.

A run cannot be interrupted, so that the runs of such variants would make a device's planned queries late. An
application with a long SLO that the plan serves on other devices, or not at all, would occupy the devices of
applications with short SLOs with its long runs. Blocking residents stay loaded for the next plan, but are not run.
"""

from __future__ import annotations

import math

from .problem import Allocation, Problem

#: factor between two SLOs from which runs of the longer one may block
LONGER = 2.0
#: part of the demand from which an application counts as left out by the plan
LEFT_OUT = 0.01


def blocking(problem: Problem, plan: Allocation) -> dict[str, frozenset[str]]:
    """Blocking variants by device, among ``plan.residents`` that are not placed there.

    Their shortest run takes more than half of the SLO of a variant that is placed there, and their own SLO is at least
    :data:`LONGER` times as long."""
    applications = {application.id: application for application in problem.applications}
    variants = {variant.id: variant for variant in problem.variants}
    placed: dict[str, set[str]] = {device.id: set() for device in problem.devices}
    for placement in plan.placements:
        placed[placement.device].add(placement.variant)
    # An application without a placement for lack of demand may still get queries, so it does not count.
    decided = {variants[variant].application for here in placed.values() for variant in here}
    decided |= {a.id for a in problem.applications if plan.left_out.get(a.id, 0.0) > LEFT_OUT * a.demand}

    def blocks(id: str, kind: str, slo_s: float) -> bool:
        variant = variants[id]
        if applications[variant.application].slo_s < LONGER * slo_s:
            return False
        return variant.profiles[kind].longest[0][1] > slo_s / 2

    found = {}
    for device in problem.devices:
        here = placed[device.id]
        shortest_s = min((applications[variants[variant].application].slo_s for variant in here), default=math.inf)
        others = [id for id in plan.residents.get(device.id, ()) if id not in here]
        found[device.id] = frozenset(
            id for id in others if variants[id].application in decided and blocks(id, device.type, shortest_s)
        )
    return found
