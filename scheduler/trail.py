"""The trail of a plan: why it is as it is, against the plan before.

It has the demand, the reasons why not more is served (:mod:`scheduler.allocation.reasons`), the moves and their cost in
accuracy. Everything is read from what stored plans keep (:func:`scheduler.models.kept_inputs`), so that a plan is
explained by the state at its time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from scheduler.models import Plan
from scheduler.plans import NEGLIGIBLE, left_out
from scheduler.words import devices, items, listed, rate, several

#: relative change of an application's demand from which it is a cause
DEMAND_STEP = 0.1
#: applications whose changes of demand are named one by one, and variants of an application
MOST_NAMED, MOST_VARIANTS = 3, 4
#: change of a variant's share of the answers from which it is worth a word
SHARE_STEP = 0.05
#: a device's price in points of accuracy, and in items/s, below which one more of them gains nothing
NO_POINTS, NO_ITEMS = 0.01, 0.05


class DemandChange(NamedTuple):
    application: str
    before: float | None
    now: float


class DevicePrice(NamedTuple):
    """What one more would gain at most: points, or items/s where demand is left out."""

    type: str
    devices: int
    points: float
    items: float
    sentence: str


class DeviceMove(NamedTuple):
    """Changes of a device's residents and planned items/s.

    Residents are ``application/variant``; ``change`` is ``new``, ``gone`` or ``changed``.
    """

    device: str
    type: str
    change: str
    loads: list[str]
    unloads: list[str]
    keeps: list[str]
    before: float
    now: float


class AccuracyCost(NamedTuple):
    application: str
    before: float | None
    now: float | None
    best: float | None
    left_out: float


class Trail(NamedTuple):
    """A plan explained; lists have the largest first.

    ``previous`` is None where no plan is left to compare with; ``limit`` has the plan's reasons for not serving more,
    or more accurately.
    """

    version: int
    previous: int | None
    sentence: str
    causes: list[str]
    demand: list[DemandChange]
    limit: list[str]
    prices: list[DevicePrice]
    moves: list[DeviceMove]
    cost: list[AccuracyCost]


class ApplicationTrail(NamedTuple):
    version: int
    sentence: str
    reasons: list[str]


@dataclass(frozen=True)
class Side:
    """The facts of one plan, with ids of variants and normalised accuracies; rates in items/s, prices in points/s."""

    stack: str
    types: Mapping[str, str]
    slos: Mapping[str, float]
    demand: Mapping[str, float]
    left_out: Mapping[str, float]
    best: Mapping[str, str]
    accuracy: Mapping[str, float]
    candidates: frozenset[str]
    labels: Mapping[str, str]
    accuracies: Mapping[str, float]
    owners: Mapping[str, str]
    residents: Mapping[str, frozenset[str]]
    rates: Mapping[tuple[str, str], float]
    prices: Mapping[str, float]
    weighted_demand: float

    def shares(self) -> dict[str, float]:
        rates: dict[str, float] = defaultdict(float)
        totals: dict[str, float] = defaultdict(float)
        for (_, variant), rate_ in self.rates.items():
            rates[variant] += rate_
            totals[self.owners.get(variant, "")] += rate_
        return {variant: rate_ / totals[self.owners.get(variant, "")] for variant, rate_ in rates.items()}

    def planned(self, device: str) -> float:
        return sum(value for (owner, _), value in self.rates.items() if owner == device)

    def missing(self) -> str:
        worst = sorted(self.left_out.items(), key=lambda pair: -pair[1])
        return listed(f"{items(value)} of {name}" for name, value in worst)


def side(plan: Plan) -> Side:
    inputs, allocation = plan.inputs, plan.allocation
    applications = inputs.get("applications") or ()
    variants = {str(variant["id"]): variant for variant in inputs.get("variants") or ()}
    usable = {id_: variant for id_, variant in variants.items() if not variant.get("excluded")}
    best: dict[str, str] = {}
    for id_, variant in usable.items():
        known = usable.get(best.get(variant["application"], ""))
        if known is None or variant["accuracy"] > known["accuracy"]:
            best[variant["application"]] = id_
    residents = {device: set(some) for device, some in (allocation.get("residents") or {}).items()}
    rates: dict[tuple[str, str], float] = defaultdict(float)
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for placement in allocation.get("placements") or ():
        device, id_, planned = placement["device"], str(placement["variant"]), placement["rate"]
        residents.setdefault(device, set()).add(id_)
        if planned <= NEGLIGIBLE:
            continue
        rates[device, id_] += planned
        if id_ in variants:
            total = sums[variants[id_]["application"]]
            total[0] += planned
            total[1] += planned * variants[id_]["accuracy"]
    return Side(
        stack=plan.stack,
        types={device["id"]: device["type"] for device in inputs.get("devices") or ()},
        slos={a["id"]: a["slo_s"] * 1000 for a in applications},
        demand={a["id"]: a["demand"] for a in applications},
        left_out=left_out(plan),
        best=best,
        accuracy={name: points / planned for name, (planned, points) in sums.items()},
        candidates=frozenset(usable),
        labels={id_: f"{v['application']}/{v.get('name') or id_}" for id_, v in variants.items()},
        accuracies={id_: v["accuracy"] for id_, v in variants.items()},
        owners={id_: v["application"] for id_, v in variants.items()},
        residents={device: frozenset(some) for device, some in residents.items() if some},
        rates=rates,
        prices=allocation.get("prices") or {},
        weighted_demand=sum(a["demand"] * a.get("weight", 1.0) for a in applications),
    )


def changed(previous: Plan | None, plan: Plan) -> bool:
    if previous is None:
        return True
    before, now = side(previous), side(plan)
    return (before.stack, before.types, before.residents, set(before.left_out)) != (
        now.stack,
        now.types,
        now.residents,
        set(now.left_out),
    )


def before(plan: Plan) -> Plan | None:
    return Plan.objects.filter(pk__lt=plan.pk).defer("problem", "wire", "reasons").first()


def webhook_event(plan: Plan) -> dict[str, object]:
    found = trail(plan, before(plan))
    return {
        "version": found.version,
        "sentence": found.sentence,
        "accuracy": plan.accuracy,
        "served": plan.served,
        "left_out": {one.application: one.left_out for one in found.cost if one.left_out},
    }


def application_trail(application: str) -> ApplicationTrail | None:
    """An application under the plan in force; None: no plan, or without its inputs."""
    plan = Plan.objects.defer("problem", "wire").first()
    if plan is None or not plan.inputs:
        return None
    about = f"{application}: "
    reasons = [line.removeprefix(about) for line in plan.reasons if line.startswith(about)]
    sentence = _application_sentence(side(plan), application)
    return ApplicationTrail(plan.pk, sentence, [line[:1].upper() + line[1:] for line in reasons])


def _application_sentence(now: Side, application: str) -> str:
    if application not in now.demand:
        return "No plan includes it: no variant is profiled on a device type here. Upload one."
    demand, accuracy = now.demand[application], now.accuracy.get(application)
    if accuracy is None:
        return f"None of {items(demand)} is served."
    shares = sorted(now.shares().items(), key=lambda pair: -pair[1])
    names = [
        f"{now.labels[id_].partition('/')[2]} ({part:.0%})"
        for id_, part in shares
        if now.owners.get(id_) == application
    ]
    missing = now.left_out.get(application, 0.0)
    of = f"{demand - missing:,.1f} of {items(demand)}" if missing else f"all of {items(demand)}"
    return f"Planned for {of}, answered by {listed(names, MOST_VARIANTS)} with {accuracy:.1f}% of the best accuracy."


def trail(plan: Plan, previous: Plan | None) -> Trail:
    """The trail of a plan, as far as inputs are kept: old releases did not."""
    if previous is not None and not (plan.inputs and previous.inputs):
        previous = None
    now, old = side(plan), side(previous) if previous is not None else None
    moves, causes = _moves(old, now), _causes(old, now)
    return Trail(
        version=plan.pk,
        previous=previous.pk if previous is not None else None,
        sentence=_sentence(plan, previous, old, now, causes, moves),
        causes=causes,
        demand=_demand(old, now),
        limit=plan.reasons,
        prices=_prices(now),
        moves=moves,
        cost=_cost(old, now),
    )


def _demand(old: Side | None, now: Side) -> list[DemandChange]:
    known = old.demand if old is not None else {}
    found = [DemandChange(name, known.get(name), value) for name, value in now.demand.items()]
    return sorted(found, key=lambda one: (-abs(one.now - (one.before or 0.0)), one.application))


def _causes(old: Side | None, now: Side) -> list[str]:
    if old is None:
        return []
    found = []
    if old.stack != now.stack:
        found.append(f"the stack changed from {old.stack} to {now.stack}")
    for names, verb in ((old.types.keys() - now.types, "left"), (now.types.keys() - old.types, "joined")):
        if names:
            found.append(f"{'' if len(names) > MOST_NAMED else _noun('device', names)}{devices(names)} {verb}")
    for name in sorted(old.slos.keys() & now.slos.keys()):
        if old.slos[name] != now.slos[name]:
            found.append(f"the SLO of {name} changed from {old.slos[name]:g} ms to {now.slos[name]:g} ms")
    labels = {**old.labels, **now.labels}
    for ids, verb in ((now.candidates - old.candidates, "available"), (old.candidates - now.candidates, "unavailable")):
        if ids:
            found.append(f"{_noun('variant', ids)}{listed(sorted(labels[one] for one in ids))} became {verb}")
    found += [f"application {name} is no longer planned for" for name in sorted(old.demand.keys() - now.demand)]
    return [*found, *_demand_causes(_demand(old, now))]


def _demand_causes(changes: list[DemandChange]) -> list[str]:
    new = [one for one in changes if one.before is None]
    rose = [one for one in changes if one.before is not None and one.now - one.before > DEMAND_STEP * one.now]
    fell = [one for one in changes if one.before is not None and one.before - one.now > DEMAND_STEP * one.before]
    found = [f"application {one.application} is planned for, {items(one.now)}" for one in new]
    if len(new) > MOST_NAMED:
        found = [f"{len(new)} more applications are planned for, {items(sum(one.now for one in new))}"]
    if len(rose) + len(fell) <= MOST_NAMED:
        moved = [one for one in changes if one in rose or one in fell]
        return [*found, *(_demand_cause([one], "rose" if one in rose else "fell") for one in moved)]
    by_size = sorted(
        ((rose, "rose"), (fell, "fell")), key=lambda pair: -sum(abs(one.now - one.before) for one in pair[0])
    )
    return [*found, *(_demand_cause(some, verb) for some, verb in by_size if some)]


def _demand_cause(changes: list[DemandChange], verb: str) -> str:
    most, (_, before, now) = changes[0], map(sum, zip(*((0, one.before, one.now) for one in changes), strict=True))
    step = f"from {rate(most.before)} to {items(most.now)}"
    if len(changes) == 1:
        return f"demand for {most.application} {verb} {step}"
    return (
        f"demand for {len(changes)} applications {verb} from {rate(before)} to {items(now)} together, most for "
        f"{most.application} ({step})"
    )


def _noun(noun: str, names: Collection[str]) -> str:
    return f"{noun} " if len(names) == 1 else f"{noun}s "


def _prices(now: Side) -> list[DevicePrice]:
    """The relaxed problem's prices: a whole device gains at most its price."""
    found = []
    for type_, price in now.prices.items() if now.weighted_demand > 0 else ():
        count = sum(one == type_ for one in now.types.values())
        more, points = (price / 100, 0.0) if now.left_out else (0.0, price / now.weighted_demand)
        if now.left_out:
            does = f"serve up to {items(more)} more" if more > NO_ITEMS else "serve nothing more"
        elif points > NO_POINTS:
            does = f"add up to {points:.{1 if points >= 1 else 2}f} points of accuracy"
        else:
            does = "gain nothing"
        found.append(DevicePrice(type_, count, points, more, f"One more {type_} would {does}."))
    return sorted(found, key=lambda one: (-one.points - one.items, one.type))


def _moves(old: Side | None, now: Side) -> list[DeviceMove]:
    if old is None:
        return []
    labels, found = {**old.labels, **now.labels}, []
    for device in sorted({*old.types, *now.types, *old.residents, *now.residents}):
        had, has = old.residents.get(device, frozenset()), now.residents.get(device, frozenset())
        known, knows = device in old.types, device in now.types
        if (had, known) == (has, knows):
            continue
        change = "changed" if known == knows else "new" if knows else "gone"
        named = [sorted(labels.get(one, one) for one in some) for some in (has - had, had - has, has & had)]
        type_ = now.types.get(device) or old.types.get(device, "")
        found.append(DeviceMove(device, type_, change, *named, old.planned(device), now.planned(device)))
    return sorted(found, key=lambda move: (-len(move.loads) - len(move.unloads), move.device))


def _cost(old: Side | None, now: Side) -> list[AccuracyCost]:
    known = old.accuracy if old is not None else {}
    found = []
    for name in now.demand:
        best = now.accuracies[now.best[name]] if name in now.best else None
        missing = round(now.left_out.get(name, 0.0), 6)
        found.append(AccuracyCost(name, known.get(name), now.accuracy.get(name), best, missing))
    return sorted(found, key=lambda one: ((one.now or 0.0) - (one.best or 0.0), one.application))


def _sentence(
    plan: Plan, previous: Plan | None, old: Side | None, now: Side, causes: list[str], moves: list[DeviceMove]
) -> str:
    missing = f"; left out: {now.missing()}" if now.left_out else ""
    if previous is None or old is None:
        lacks = "no earlier plan is left to compare it with" if plan.inputs else "its inputs are not kept any more"
        serves = f"The plan serves {rate(plan.served)} of {items(plan.demand)}"
        return f"{serves} with {plan.accuracy:.1f}% of the best accuracy{missing}; {lacks}."
    why = causes[0][0].upper() + causes[0][1:] if causes else _TRIGGERS[plan.trigger]
    return f"{why}: {_does(old, now, moves)}, and {_accuracy(plan.accuracy, previous.accuracy, old, now)}{missing}."


def _does(old: Side, now: Side, moves: list[DeviceMove]) -> str:
    acts = [move for move in moves if move.loads or move.unloads]
    if not acts:
        return f"no device changed what it holds{_shifts(old, now)}"
    if len({(*move.loads, "", *move.unloads, bool(move.keeps)) for move in acts}) > 1:
        return f"{several(len(acts), 'device')} changed what they hold{_shifts(old, now)}"
    move, who, plural = acts[0], devices(move.device for move in acts), "" if len(acts) > 1 else "s"
    if not move.loads:
        return f"{who} unload{plural} {listed(move.unloads)}{_shifts(old, now)}"
    also = "" if move.unloads or not move.keeps else "also "
    instead = f" instead of {listed(move.unloads)}" if move.unloads else ""
    return f"{who} {also}hold{plural} {listed(move.loads)}{instead}{_shifts(old, now)}"


def _shifts(old: Side, now: Side) -> str:
    """The variant whose share of answers grew most; empty: none by much."""
    before, shares = old.shares(), now.shares()
    grown = {id_: share - before.get(id_, 0.0) for id_, share in shares.items() if now.owners.get(id_) in old.demand}
    most = max(grown, key=lambda id_: (grown[id_], id_), default=None)
    if most is None or grown[most] < SHARE_STEP:
        return ""
    was = before.get(most, 0.0)
    return f", {now.labels[most]} answers {shares[most]:.0%} of {now.owners[most]} instead of {was:.0%}"


def _accuracy(accuracy: float, before: float, old: Side, now: Side) -> str:
    # As people read them: 99.7 to 99.7 is no change.
    was, is_ = round(before, 1), round(accuracy, 1)
    better = sorted(now.labels[id_] for name, id_ in now.best.items() if name in old.best and id_ not in old.candidates)
    if better and was > is_:
        # The same answers are a smaller part of a better best.
        sets = "sets" if len(better) == 1 else "set"
        return f"accuracy is {is_}% where it was {was}%, as {listed(better)} now {sets} the best"
    if was == is_:
        return f"accuracy stays at {is_}%"
    return f"accuracy {'rises' if is_ > was else 'falls'} from {was}% to {is_}%"


#: the beginning of the sentence where no input changed beyond rounding
_TRIGGERS = {
    Plan.Trigger.PERIOD: "A regular plan, nothing new",
    Plan.Trigger.BURST: "Demand left the plan's band",
    Plan.Trigger.OVERLOAD: "Queries were refused",
    Plan.Trigger.CHANGE: "Variants, devices or settings changed",
    Plan.Trigger.MANUAL: "An operator asked for it",
}
