"""Nodes, gateways and devices."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from registry import reach
from registry.models import Device, Gateway, Member, Node
from scheduler import words
from scheduler.models import Plan
from scheduler.repairs.capacity import runnable
from scheduler.repairs.facts import Facts
from scheduler.repairs.repair import Action, Repair, Severity

#: seconds that an executor may take to come back, and to start for the first time
RESTART_S, START_S = 10.0, 60.0
#: seconds that members may take to reconnect after the control plane itself was away
RECONNECT_S = 30.0
#: a certificate that ends so soon should have been renewed ten days ago
CERTIFICATE_SOON = timedelta(days=10)
#: seconds that a renewal may take once a clock was set
RENEW_S = 120.0
#: seconds after which work on a cordoned node's box should be done
CORDONED_S = 3600.0
#: two plans' demands may differ by this share for their accuracies to be compared
ALIKE = 0.2


def lost_devices(facts: Facts) -> Iterator[Repair]:
    for device in facts.devices:
        if device.node.connected and device.state not in Device.SERVING:
            yield _lost(facts, device, facts.capacity[device.ref])


def _lost(facts: Facts, device: Device, share: float) -> Repair:
    gone = device.detail == Device.GONE
    if gone:
        title = f"Device {device.ref} is gone from its node"
        action = Action(
            "Check its driver and power, or NEREUS_CPU_DEVICES and NEREUS_GPU, and restart the node. Forget it if it "
            "is gone for good.",
            "Forget",
            "DELETE",
            "device",
            {"ref": device.ref},
            f"Forget {device.ref}? It is added again if its node has it again.",
        )
    else:
        title = f"Device {device.ref} is {'down' if device.state == Device.State.DOWN else 'not starting'}"
        detail = f" Reported: {device.detail}." if device.detail else ""
        action = Action(
            f"Its executor is restarted automatically.{detail} If that does not help, read the log of "
            f"{device.node.name}, and check driver and power."
        )
    effect = [f"{words.percent(share)} of this appliance's capacity is lost.", *_falls(facts, device)]
    total, left = len(facts.problem.variants), {usable.ref for usable in facts.usable}
    can = runnable(facts.problem, left)
    if can < total:
        effect.append(f"{total - can} of {words.several(total, 'variant')} cannot run.")
    return Repair(
        key=f"device:{device.ref}",
        severity=Severity.ERROR,
        title=title,
        effect=" ".join(effect),
        action=action,
        since=device.changed,
        lasting_s=START_S if device.state == Device.State.STARTING else RESTART_S,
    )


def _falls(facts: Facts, device: Device) -> Iterator[str]:
    """The cost of the loss by plans that were made for about the same demand."""
    plans, now = Plan.objects.only("accuracy", "demand", "served"), facts.plan
    before = plans.filter(created__lt=device.changed).first()
    if before is None or now is None or now.pk == before.pk:
        return
    if abs(now.demand - before.demand) > ALIKE * max(now.demand, before.demand):
        return
    if before.accuracy - now.accuracy >= 0.05:
        yield f"Planned accuracy is {now.accuracy:.1f}%, {before.accuracy:.1f}% before."
    if before.served - now.served > 0.01 * before.served:
        yield f"Plans serve {words.rate(now.served)} items/s, {words.rate(before.served)} before."


def not_connected(facts: Facts) -> Iterator[Repair]:
    for member in facts.members:
        if member.state != Member.State.APPROVED or member.connected:
            continue
        kind = member.word
        yield Repair(
            key=f"{kind}:{member.name}",
            severity=Severity.ERROR,
            title=f"{kind.capitalize()} {member.name} is not connected",
            effect=_without(facts, member),
            action=Action(
                "Start it, or check its network and log: it reconnects automatically. Remove it if it is gone.",
                "Remove",
                "DELETE",
                kind,
                {"name": member.name},
                f"Remove {kind} {member.name}? It needs a join token to come back.",
            ),
            since=member.last_seen or member.created,
            lasting_s=RECONNECT_S,
        )


def _without(facts: Facts, member: Node | Gateway) -> str:
    if isinstance(member, Node):
        mine = [device.ref for device in facts.devices if device.node_id == member.pk]
        share = sum(facts.capacity[ref] for ref in mine)
        return f"{words.several(len(mine), 'device')} with {words.percent(share)} of this appliance's capacity."
    away = [gateway for gateway in facts.gateways if not gateway.connected]
    where = f" Clients of {member.address} are served by its last plan, if at all." if member.address else ""
    return f"Gateways without new plans and keys: {len(away)} of {len(facts.gateways)}.{where}"


def behind(facts: Facts) -> Iterator[Repair]:
    for member in facts.members:
        if not member.behind:
            continue
        kind = member.word
        keys = ", and accepts deleted API keys" if kind == "gateway" else ""
        yield Repair(
            key=f"behind:{kind}:{member.name}",
            severity=Severity.ERROR,
            title=f"{kind.capitalize()} {member.name} has not applied its configuration",
            effect=f"{_held(facts, member)}It still uses an older plan and older applications{keys}.",
            action=Action("Check its log for errors; restart it if this persists."),
            since=member.behind_since,
        )


def _held(facts: Facts, member: Node | Gateway) -> str:
    versions = [
        device.plan_version
        for device in facts.devices
        if isinstance(member, Node) and device.node_id == member.pk and device.plan_version
    ]
    if not versions or facts.plan is None or min(versions) >= facts.plan.pk:
        return ""
    return f"{words.several(facts.plan.pk - min(versions), 'plan')} behind. "


def certificates(facts: Facts) -> Iterator[Repair]:
    for member in facts.members:
        if member.state != Member.State.APPROVED or not member.key_hash or member.certificate_until is None:
            continue
        left = member.certificate_until - facts.now
        if left > CERTIFICATE_SOON and not member.certificate_lapsed:
            continue
        kind, ends = member.word, f"{member.certificate_until:%Y-%m-%d %H:%M} UTC"
        if member.certificate_lapsed:
            title = f"The certificate of {kind} {member.name} has ended"
            effect = f"It ended at {ends} while the {kind} was away; members on other boxes refuse its connections."
        else:
            title = f"The certificate of {kind} {member.name} is not renewed"
            effect = f"It ends at {ends}; members on other boxes then refuse the {kind} if it is not connected."
        advice = (
            "Read its log for why: it asks for another one each hour, and at each start."
            if member.connected
            else "Connect it to the control plane: it has another one as soon as it joins. Revoke it if it is gone."
        )
        yield Repair(
            key=f"certificate:{kind}:{member.name}",
            severity=Severity.ERROR if member.certificate_lapsed else Severity.WARNING,
            title=title,
            effect=effect,
            action=Action(advice),
            lasting_s=RENEW_S,
        )


def waiting(facts: Facts) -> Iterator[Repair]:
    for member in facts.members:
        if member.state != Member.State.PENDING:
            continue
        kind = member.word
        yield Repair(
            key=f"waiting:{kind}:{member.name}",
            severity=Severity.WARNING,
            title=f"{kind.capitalize()} {member.name} waits for approval",
            effect="None of its devices serves until then." if kind == "node" else "It answers no queries until then.",
            action=Action(
                "Approve it if you know it; refuse it on the page Nodes if not.",
                "Approve",
                address=f"{kind}-approve",
                arguments={"name": member.name},
            ),
            since=member.created,
        )


def claimed(facts: Facts) -> Iterator[Repair]:
    for member in facts.members:
        if not member.claimed:
            continue
        kind = member.word
        token = f" with join token {member.claim_with.name}" if member.claim_with else ""
        yield Repair(
            key=f"claim:{kind}:{member.name}",
            severity=Severity.WARNING,
            title=f"Another box claims to be {kind} {member.name}",
            effect=f"It joins from {member.claim_address or 'an unknown address'}{token}; the member keeps its place "
            "until you decide.",
            action=Action(
                "Accept it if you replaced or reinstalled that box; the credential in use then ends. Refuse it on the "
                "page Nodes if not, and delete the join token.",
                "Accept",
                address=f"{kind}-claim",
                arguments={"name": member.name},
                confirm=f"Give the name {member.name} to the other box?",
            ),
            since=member.claimed_at,
        )


def unreachable(facts: Facts) -> Iterator[Repair]:
    gateways = facts.gateways
    for node in _nodes(facts):
        mine = [device for device in facts.devices if device.node_id == node.pk and device.node.connected]
        cut_off = [device for device in mine if reach.why_unreachable(device, gateways)]
        if not cut_off:
            continue
        share = sum(facts.capacity[device.ref] for device in cut_off)
        tried = [device for device in cut_off if device.unreached_since is not None]
        yield Repair(
            key=f"unreachable:{node.name}",
            severity=Severity.ERROR,
            title=f"No gateway reaches the devices of {node.name}",
            effect=f"{words.several(len(cut_off), 'device')} with {words.percent(share)} of this appliance's capacity "
            "left out of plans.",
            action=Action(_reach_again(node, tried, gateways)),
            since=min((device.unreached_since for device in tried), default=None),
        )


def _reach_again(node: Node, tried: list[Device], gateways: list[Gateway]) -> str:
    if not tried:
        return f"Start a gateway on the box of {node.name}, or revoke that node."
    names = sorted({one.gateway for device in tried for one in reach.unreached_by(device, gateways)})
    who = words.listed(names) if names else "the gateways"
    where = ", ".join(sorted({device.address for device in tried if device.address})) or "its sockets on that box"
    return (
        f"Check the network and firewalls between {who} and {node.name} ({where}): executors are up and nobody reaches "
        "them. Plans use them again as soon as a gateway does."
    )


def cordoned(facts: Facts) -> Iterator[Repair]:
    for node in _nodes(facts):
        if node.cordoned_at is None or (facts.now - node.cordoned_at).total_seconds() < CORDONED_S:
            continue
        share = sum(facts.capacity[device.ref] for device in facts.devices if device.node_id == node.pk)
        yield Repair(
            key=f"cordoned:{node.name}",
            severity=Severity.WARNING,
            title=f"Node {node.name} is cordoned",
            effect=f"Plans leave out {words.percent(share)} of this appliance's capacity.",
            action=Action(
                "Uncordon it when the work on its box is done.",
                "Uncordon",
                "DELETE",
                "node-cordon",
                {"name": node.name},
            ),
            since=node.cordoned_at,
        )


def _nodes(facts: Facts) -> list[Node]:
    return [member for member in facts.members if isinstance(member, Node)]
