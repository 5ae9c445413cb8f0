"""One stored plan as the trail compares it with another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: items/s below which demand is served or left out by a rounding error alone
NEGLIGIBLE = 1e-6


#: columns of a problem's rows that explain its plan; profiles, by far the largest part, are not among them
KEPT = {
    "devices": ("id", "type", "available", "memory_bytes"),
    "applications": ("id", "slo_s", "demand", "expected", "weight"),
    "variants": ("id", "name", "application", "accuracy", "excluded"),
}


def kept_inputs(problem: Mapping[str, Any]) -> dict[str, Any]:
    """Part of a problem that is kept as long as its plan; empty for an empty problem."""
    if not problem:
        return {}
    rows = {
        kind: [{name: row[name] for name in names if name in row} for row in problem.get(kind) or ()]
        for kind, names in KEPT.items()
    }
    return {**rows, "time_limit_s": problem.get("time_limit_s")}


@dataclass(frozen=True)
class PlanSide:
    """A plan's facts by name.

    Attributes:
        stack: the plan's stack.
        types: device type by device.
        slos: SLO by application, ms.
        demand: planned demand by application, items/s.
        left_out: of this, what is not served; only what is really left out.
        best: accuracy of its best variant, normalised percent, by application.
        best_variant: id of that variant.
        accuracy: mean accuracy of what is served, normalised percent, by application.
        candidates: ids of the variants that the plan could choose from.
        labels: ``application/variant`` by id of a variant.
        accuracies: normalised percent by id of a variant.
        owners: application by id of a variant.
        residents: variants with planned queries, and those that stand by, by device.
        rates: items/s by device and variant; of those with planned queries.
        prices: points/s of one more device, by device type.
        weighted_demand: items/s times weights.
    """

    stack: str
    types: Mapping[str, str] = field(default_factory=dict)
    slos: Mapping[str, float] = field(default_factory=dict)
    demand: Mapping[str, float] = field(default_factory=dict)
    left_out: Mapping[str, float] = field(default_factory=dict)
    best: Mapping[str, float] = field(default_factory=dict)
    best_variant: Mapping[str, str] = field(default_factory=dict)
    accuracy: Mapping[str, float] = field(default_factory=dict)
    candidates: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)
    accuracies: Mapping[str, float] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)
    residents: Mapping[str, frozenset[str]] = field(default_factory=dict)
    rates: Mapping[tuple[str, str], float] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    weighted_demand: float = 0.0

    @property
    def served(self) -> float:
        """Items/s that the plan serves."""
        return sum(self.demand.values()) - sum(self.left_out.values())

    def shares(self) -> dict[str, float]:
        """Part of its application's planned items for each variant, 0 to 1, by id."""
        rates: dict[str, float] = defaultdict(float)
        totals: dict[str, float] = defaultdict(float)
        for (_, variant), rate in self.rates.items():
            rates[variant] += rate
            totals[self.owners.get(variant, "")] += rate
        return {variant: rate / totals[self.owners.get(variant, "")] for variant, rate in rates.items()}


def side(stack: str, inputs: Mapping[str, Any], allocation: Mapping[str, Any]) -> PlanSide:
    """The facts in a plan's inputs and allocation."""
    applications = inputs.get("applications") or ()
    variants = {str(variant["id"]): variant for variant in inputs.get("variants") or ()}
    usable = {id_: variant for id_, variant in variants.items() if not variant.get("excluded")}
    best: dict[str, str] = {}
    for id_, variant in usable.items():
        known = usable.get(best.get(variant["application"], ""))
        if known is None or variant["accuracy"] > known["accuracy"]:
            best[variant["application"]] = id_
    residents = {device: set(some) for device, some in (allocation.get("residents") or {}).items()}
    rates: dict[tuple[str, str], float] = {}
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for placement in allocation.get("placements") or ():
        device, variant, rate = placement["device"], str(placement["variant"]), placement["rate"]
        residents.setdefault(device, set()).add(variant)
        if rate <= NEGLIGIBLE:
            continue
        rates[device, variant] = rates.get((device, variant), 0.0) + rate
        if variant in variants:
            total = sums[variants[variant]["application"]]
            total[0] += rate
            total[1] += rate * variants[variant]["accuracy"]
    return PlanSide(
        stack=stack,
        types={device["id"]: device["type"] for device in inputs.get("devices") or ()},
        slos={a["id"]: a["slo_s"] * 1000 for a in applications},
        demand={a["id"]: a["demand"] for a in applications},
        left_out={name: rate for name, rate in (allocation.get("left_out") or {}).items() if rate > NEGLIGIBLE},
        best={name: usable[id_]["accuracy"] for name, id_ in best.items()},
        best_variant=best,
        accuracy={name: points / rate for name, (rate, points) in sums.items()},
        candidates=frozenset(usable),
        labels={id_: f"{v['application']}/{v.get('name') or id_}" for id_, v in variants.items()},
        accuracies={id_: v["accuracy"] for id_, v in variants.items()},
        owners={id_: v["application"] for id_, v in variants.items()},
        residents={device: frozenset(some) for device, some in residents.items() if some},
        rates=rates,
        prices=dict(allocation.get("prices") or {}),
        weighted_demand=sum(a["demand"] * a.get("weight", 1.0) for a in applications),
    )


def hosts_the_same(before: PlanSide, now: PlanSide) -> bool:
    """Whether a plan keeps everything where it was.

    It does with the same stack, devices, residents and applications left out.
    """
    return (
        before.stack == now.stack
        and before.types == now.types
        and before.residents == now.residents
        and set(before.left_out) == set(now.left_out)
    )
