"""The trail of a plan: one sentence, then the reasons behind it.

They are what it was made from, the limit that binds, the moves and the cost.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from scheduler.models import Plan

from .sides import PlanSide, hosts_the_same, side
from .words import change, counted, devices, listed, points, rate

#: relative change of an application's demand from which it is a cause
DEMAND_STEP = 0.1
#: points of accuracy that make no difference to people
SAME_ACCURACY = 0.05
#: applications whose changes of demand are named one by one; more are one cause
MOST_NAMED = 3
#: change of a variant's share of the answers from which it is worth a word
SHARE_STEP = 0.05
#: a device's price, in points of accuracy, below which one more of them gains nothing
NO_GAIN = 0.01


@dataclass(frozen=True)
class DemandChange:
    """Planned demand of an application, items/s.

    Attributes:
        before: in the plan before; None: that plan did not know it.
    """

    application: str
    before: float | None
    now: float


@dataclass(frozen=True)
class DevicePrice:
    """At most so much would one more device of a type gain.

    Attributes:
        type: device type.
        devices: devices of the type in the plan.
        points: of accuracy over all queries; 0 where demand is left out.
        items: items/s of the best accuracy, where demand is left out; else 0.
        sentence: the same in words.
    """

    type: str
    devices: int
    points: float
    items: float
    sentence: str


@dataclass(frozen=True)
class DeviceMove:
    """Changes of a device's residents against the plan before.

    Residents are given as ``application/variant``.

    Attributes:
        device: its name.
        type: device type; empty: neither plan has it.
        change: ``new``, ``gone`` or ``changed``.
        loads: residents that it gets.
        unloads: residents that it loses.
        keeps: residents that stay.
        before: items/s planned on it before.
        now: items/s planned on it now.
    """

    device: str
    type: str
    change: str
    loads: list[str]
    unloads: list[str]
    keeps: list[str]
    before: float
    now: float


@dataclass(frozen=True)
class AccuracyCost:
    """Accuracy of an application, normalised percent.

    None: nothing of it is served, or it was not planned.
    """

    application: str
    before: float | None
    now: float | None
    best: float | None
    left_out: float


@dataclass(frozen=True)
class Trail:
    """Explain a plan against the one before; lists have the largest first.

    Attributes:
        version: the plan.
        previous: the version of the plan before; None: it cannot be compared with, since it is deleted, or an older
            release made it.
        sentence: all of it in one sentence.
        causes: changes since the plan before, in words.
        demand: planned demand by application.
        limit: the limit that binds, in words.
        prices: by device type; empty where the strategy has no prices.
        moves: devices whose residents differ from the plan before.
        shifted: items/s that moved between devices whose residents stay.
        cost: accuracy by application.
        accuracy_before: of the plan before, normalised percent.
        accuracy: of the plan, normalised percent.
        changed: whether any device hosts something else than before.
    """

    version: int
    previous: int | None
    sentence: str
    causes: list[str]
    demand: list[DemandChange]
    limit: str
    prices: list[DevicePrice]
    moves: list[DeviceMove]
    shifted: float
    cost: list[AccuracyCost]
    accuracy_before: float | None
    accuracy: float
    changed: bool


def plan_side(plan: Plan) -> PlanSide:
    """The facts of a stored plan."""
    return side(plan.stack, plan.inputs, plan.allocation)


def before(plan: Plan) -> Plan | None:
    """The plan before, if it is still kept."""
    return Plan.objects.filter(pk__lt=plan.pk).defer("problem", "wire", "reasons").first()


def webhook_event(plan: Plan) -> dict[str, object]:
    """A plan as a webhook's event."""
    found = trail(plan, before(plan))
    return {
        "version": found.version,
        "sentence": found.sentence,
        "accuracy": found.accuracy,
        "served": plan.served,
        "left_out": {one.application: one.left_out for one in found.cost if one.left_out},
    }


def trail(plan: Plan, previous: Plan | None) -> Trail:
    """Return the trail of a plan against the one before, as far as inputs are kept."""
    if previous is not None and not previous.inputs:
        previous = None
    if not plan.inputs:
        return _forgotten(plan)
    now = plan_side(plan)
    old = plan_side(previous) if previous is not None else None
    moves = _moves(old, now)
    causes = _causes(old, now)
    prices = _prices(now)
    limit = _limit(now, prices)
    accuracy_before = previous.accuracy if previous is not None else None
    changed = old is None or not hosts_the_same(old, now)
    return Trail(
        version=plan.pk,
        previous=previous.pk if previous is not None else None,
        sentence=_sentence(plan, old, now, causes, moves, accuracy_before),
        causes=causes,
        demand=_demand(old, now),
        limit=limit,
        prices=prices,
        moves=moves,
        shifted=_shifted(old, now, {move.device for move in moves}),
        cost=_cost(old, now),
        accuracy_before=accuracy_before,
        accuracy=plan.accuracy,
        changed=changed,
    )


def _forgotten(plan: Plan) -> Trail:
    """The rest of a plan without inputs: an older release made it, and deleted them."""
    why = "A regular look" if plan.trigger == Plan.Trigger.PERIOD else _TRIGGERS[plan.trigger]
    return Trail(
        version=plan.pk,
        previous=None,
        sentence=(
            f"{why}: the plan served {plan.served:.1f} of {rate(plan.demand)} with "
            f"{plan.accuracy:.1f}% of the best accuracy; the state that it was made from is not kept any more."
        ),
        causes=[],
        demand=[],
        limit="Not known any more: the release that made this plan did not keep its inputs. See the reasons below.",
        prices=[],
        moves=[],
        shifted=0.0,
        cost=[],
        accuracy_before=None,
        accuracy=plan.accuracy,
        changed=plan.changed,
    )


def _demand(old: PlanSide | None, now: PlanSide) -> list[DemandChange]:
    known = old.demand if old is not None else {}
    found = [DemandChange(name, known.get(name), value) for name, value in now.demand.items()]
    return sorted(found, key=lambda one: (-abs(one.now - (one.before or 0.0)), one.application))


def _causes(old: PlanSide | None, now: PlanSide) -> list[str]:
    """Return the changes of the inputs since the plan before.

    Those come first that nobody can overlook.
    """
    if old is None:
        return []
    found = []
    if old.stack != now.stack:
        found.append(f"the stack changed from {old.stack} to {now.stack}")
    gone, new = sorted(set(old.types) - set(now.types)), sorted(set(now.types) - set(old.types))
    if gone:
        found.append(f"{_devices(gone)} left")
    if new:
        found.append(f"{_devices(new)} joined")
    for name in sorted(set(old.slos) & set(now.slos)):
        if old.slos[name] != now.slos[name]:
            found.append(f"the SLO of {name} changed from {old.slos[name]:g} ms to {now.slos[name]:g} ms")
    lost, added = old.candidates - now.candidates, now.candidates - old.candidates
    if added:
        found.append(f"{_noun('variant', added)} {listed(sorted(now.labels[one] for one in added))} became available")
    if lost:
        found.append(f"{_noun('variant', lost)} {listed(sorted(old.labels[one] for one in lost))} became unavailable")
    for name in sorted(set(old.demand) - set(now.demand)):
        found.append(f"application {name} is not planned for any more")
    return [*found, *_demand_causes(old, now)]


def _demand_causes(old: PlanSide, now: PlanSide) -> list[str]:
    """Demand that rose or fell: each application by itself, or many as one cause."""
    found, changes = [], _demand(old, now)
    new = [one for one in changes if one.before is None]
    rose = [one for one in changes if one.before is not None and one.now - one.before > DEMAND_STEP * one.now]
    fell = [one for one in changes if one.before is not None and one.before - one.now > DEMAND_STEP * one.before]
    if len(new) > MOST_NAMED:
        found.append(f"{len(new)} more applications are planned for, {rate(sum(one.now for one in new))}")
    else:
        found += [f"application {one.application} is planned for, {rate(one.now)}" for one in new]
    if len(rose) + len(fell) <= MOST_NAMED:
        moved = [one for one in changes if one in rose or one in fell]
        return [*found, *(_demand_cause([one], "rose" if one in rose else "fell") for one in moved)]
    by_size = sorted(((rose, "rose"), (fell, "fell")), key=lambda pair: -_moved(pair[0]))
    return [*found, *(_demand_cause(some, verb) for some, verb in by_size if some)]


def _moved(changes: list[DemandChange]) -> float:
    return sum(abs(one.now - (one.before or 0.0)) for one in changes)


def _demand_cause(changes: list[DemandChange], verb: str) -> str:
    most = changes[0]
    if len(changes) == 1:
        return f"demand for {most.application} {verb} {change(most.before or 0.0, most.now)}"
    total = change(sum(one.before or 0.0 for one in changes), sum(one.now for one in changes))
    return (
        f"demand for {len(changes)} applications {verb} {total} together, most for {most.application} "
        f"({change(most.before or 0.0, most.now)})"
    )


def _devices(names: Collection[str]) -> str:
    """``device box/cpu0``, or how many of which nodes."""
    return devices(names) if len(names) > MOST_NAMED else f"{_noun('device', names)} {listed(names)}"


def _noun(noun: str, names: Collection[str]) -> str:
    return noun if len(names) == 1 else f"{noun}s"


def _prices(now: PlanSide) -> list[DevicePrice]:
    """Return the relaxed problem's prices as gains of one more device.

    A whole device gains at most its price.
    """
    if now.weighted_demand <= 0:
        return []
    found = []
    for type_, price in now.prices.items():
        count = sum(one == type_ for one in now.types.values())
        if now.left_out:
            items = price / 100
            gain = 0.0
            does = f"serve up to {rate(items)} more" if items > 0.05 else "serve nothing more"
        else:
            items, gain = 0.0, price / now.weighted_demand
            does = f"give up to +{points(gain)} points of accuracy" if gain > NO_GAIN else "gain nothing"
        found.append(DevicePrice(type_, count, gain, items, f"One more {type_} would {does}."))
    return sorted(found, key=lambda one: (-one.points - one.items, one.type))


def _limit(now: PlanSide, prices: list[DevicePrice]) -> str:
    if now.left_out:
        worst = listed(f"{rate(value)} of {name}" for name, value in sorted(now.left_out.items(), key=lambda x: -x[1]))
        if prices and prices[0].items <= 0.05:
            return f"Demand is left out ({worst}), and more of these devices would not help: see the reasons below."
        return f"Devices' time: demand is left out ({worst})."
    short = [name for name, value in now.accuracy.items() if now.best.get(name, 0.0) - value > SAME_ACCURACY]
    if not now.accuracy:
        return "Nothing: no queries are planned."
    if not short:
        return "Nothing: every application is served by its best variant."
    names = listed(sorted(short))
    if prices and prices[0].points > NO_GAIN:
        return f"Devices' time, most of all on {prices[0].type}: with more of it, {names} could be more accurate."
    if prices:
        better = listed(now.labels[now.best_variant[name]] for name in sorted(short))
        return f"Latency or memory, not the number of devices: {better} {_unfit(short)}; see the reasons below."
    served = "is not served by its best variant" if len(short) == 1 else "are not served by their best variants"
    return f"{names} {served}; the stack {now.stack} has no prices that say why."


def _unfit(short: Collection[str]) -> str:
    why = "is too slow for its SLO, or too large" if len(short) == 1 else "are too slow for their SLOs, or too large"
    return f"would be more accurate, but {why}"


def _moves(old: PlanSide | None, now: PlanSide) -> list[DeviceMove]:
    if old is None:
        return []
    labels = {**old.labels, **now.labels}
    found = []
    for device in sorted({*old.types, *now.types, *old.residents, *now.residents}):
        had, has = old.residents.get(device, frozenset()), now.residents.get(device, frozenset())
        known, knows = device in old.types, device in now.types
        if had == has and known == knows:
            continue
        change = "changed" if known == knows else "new" if knows else "gone"
        found.append(
            DeviceMove(
                device=device,
                type=now.types.get(device) or old.types.get(device, ""),
                change=change,
                loads=sorted(labels.get(one, one) for one in has - had),
                unloads=sorted(labels.get(one, one) for one in had - has),
                keeps=sorted(labels.get(one, one) for one in has & had),
                before=_planned(old, device),
                now=_planned(now, device),
            )
        )
    return sorted(found, key=lambda move: (-len(move.loads) - len(move.unloads), move.device))


def _planned(one: PlanSide, device: str) -> float:
    return sum(value for (owner, _), value in one.rates.items() if owner == device)


def _shifted(old: PlanSide | None, now: PlanSide, moved: set[str]) -> float:
    """Return items/s that went to or from devices that keep their residents.

    It is half of the sum, as each move counts twice.
    """
    if old is None:
        return 0.0
    keys = {key for key in {*old.rates, *now.rates} if key[0] not in moved}
    return sum(abs(now.rates.get(key, 0.0) - old.rates.get(key, 0.0)) for key in keys) / 2


def _cost(old: PlanSide | None, now: PlanSide) -> list[AccuracyCost]:
    known = old.accuracy if old is not None else {}
    found = [
        AccuracyCost(
            name, known.get(name), now.accuracy.get(name), now.best.get(name), round(now.left_out.get(name, 0.0), 6)
        )
        for name in now.demand
    ]
    return sorted(found, key=lambda one: ((one.now or 0.0) - (one.best or 0.0), one.application))


def _sentence(
    plan: Plan,
    old: PlanSide | None,
    now: PlanSide,
    causes: list[str],
    moves: list[DeviceMove],
    accuracy_before: float | None,
) -> str:
    """All of it in one sentence that can be repeated to a colleague."""
    if old is None or accuracy_before is None:
        does = f"The plan serves {rate(now.served)} with {plan.accuracy:.1f}% of the best accuracy"
        return f"{does}{_missing(now)}; no earlier plan is left to compare it with."
    why = causes[0][0].upper() + causes[0][1:] if causes else _TRIGGERS[plan.trigger]
    return f"{why}: {_does(old, now, moves)}, and {_accuracy(plan, old, now, accuracy_before)}{_missing(now)}."


def _does(old: PlanSide, now: PlanSide, moves: list[DeviceMove]) -> str:
    """What devices do about it, and who answers instead."""
    acts = [move for move in moves if move.loads or move.unloads]
    if not acts:
        return f"no device changed what it holds{_shifts(old, now)}"
    alike = {(tuple(move.loads), tuple(move.unloads), bool(move.keeps)) for move in acts}
    if len(alike) == 1:
        return _act(acts[0], devices(move.device for move in acts), len(acts) > 1) + _shifts(old, now)
    return f"{counted(len(acts), 'device')} changed what they hold{_shifts(old, now)}"


def _shifts(old: PlanSide, now: PlanSide) -> str:
    """The variant whose share of answers grew most; empty: none by much."""
    before, shares = old.shares(), now.shares()
    grown = {id_: share - before.get(id_, 0.0) for id_, share in shares.items() if now.owners.get(id_) in old.demand}
    most = max(grown, key=lambda id_: (grown[id_], id_), default=None)
    if most is None or grown[most] < SHARE_STEP:
        return ""
    was = before.get(most, 0.0)
    return f", {now.labels[most]} answers {shares[most]:.0%} of {now.owners[most]} instead of {was:.0%}"


def _accuracy(plan: Plan, old: PlanSide, now: PlanSide, before: float) -> str:
    """The price in accuracy."""
    # As people read them: 99.7 to 99.7 is no change.
    was, is_ = round(before, 1), round(plan.accuracy, 1)
    better = [id_ for name, id_ in now.best_variant.items() if name in old.best and id_ not in old.candidates]
    if better and was > is_:
        # The same answers are a smaller part of a better best.
        best = listed(sorted(now.labels[id_] for id_ in better))
        return f"accuracy is {is_}% where it was {was}%, as {best} now {'sets' if len(better) == 1 else 'set'} the best"
    if was == is_:
        return f"accuracy stays at {is_}%"
    return f"accuracy {'rises' if is_ > was else 'falls'} from {was}% to {is_}%"


def _act(move: DeviceMove, who: str, several: bool) -> str:
    """A change that one device makes, or several alike."""
    hold = "hold" if several else "holds"
    if move.loads and move.unloads:
        return f"{who} {hold} {listed(move.loads)} instead of {listed(move.unloads)}"
    if move.loads:
        return f"{who} {'also ' if move.keeps else ''}{hold} {listed(move.loads)}"
    return f"{who} {'give' if several else 'gives'} up {listed(move.unloads)}"


def _missing(now: PlanSide) -> str:
    if not now.left_out:
        return ""
    worst = sorted(now.left_out.items(), key=lambda one: -one[1])
    return f"; left out: {listed(f'{rate(value)} of {name}' for name, value in worst)}"


#: the beginning of the sentence where no input changed beyond rounding
_TRIGGERS = {
    Plan.Trigger.PERIOD: "A regular look found nothing new",
    Plan.Trigger.BURST: "Demand left the plan's band",
    Plan.Trigger.OVERLOAD: "Queries were refused",
    Plan.Trigger.CHANGE: "Variants, devices or settings changed",
    Plan.Trigger.MANUAL: "An operator asked for it",
}
