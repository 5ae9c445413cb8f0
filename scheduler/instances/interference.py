"""Interfered devices, on which plans count less.

On them, instances run slower than profiled while others of their type do not. INFaaS (Section 4.1) moves an interfered
instance to idle resources of its worker, else to the least loaded worker. Here the plan does, whichever strategy makes
it: such a device counts with the part of its time that the profiles would need, so that work moves to other devices as
far as these have room. Where all devices of a type are slow, the profile is wrong, which is drift: the variant is
measured again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from redis.exceptions import RedisError

from registry import clock
from scheduler import live
from scheduler.control.requests import request_plan
from workers import log
from workers.dispatch.instance_states import InstanceState

from .states import Instance, instances

logger = log.get("interference")

#: by device: ratio, since when it was slow, when it was seen so last, and whether plans go by it
KEY = live.key("interfered")
#: seconds for which it must last, longer than one look
CONFIRMED_S = 8.0
#: ratio from which a device counts as recovered, and seconds after which one that runs nothing is tried again
RECOVERED, FORGOTTEN_S = 1.2, 300.0
#: at most so much of a device is taken off plans
LARGEST_RATIO = 2.0


def slow_devices(found: Iterable[Instance]) -> tuple[dict[str, float], set[str]]:
    slow: dict[str, float] = {}
    kinds: dict[str, str] = {}
    well: set[str] = set()
    for instance in found:
        if not instance.device:
            continue
        kinds[instance.device] = instance.device_type
        if instance.state is InstanceState.INTERFERED:
            slow[instance.device] = min(slow.get(instance.device, instance.ratio), instance.ratio)
        elif 0 < instance.ratio <= RECOVERED:
            well.add(instance.device)
    well -= slow.keys()
    comparable = {kinds[device] for device in well}
    return {device: ratio for device, ratio in slow.items() if kinds[device] in comparable}, well


def watch() -> None:
    """Remember which devices are interfered, and ask for a plan when that changes."""
    slow, well = slow_devices(instances())
    before = _read()
    was = _planned(before)
    after: dict[str, dict[str, Any]] = {}
    for device, one in before.items():
        if device in slow:
            after[device] = {**one, "ratio": slow[device], "seen": clock.stamp()}
        elif device not in well and clock.age(one["seen"]) < FORGOTTEN_S:
            after[device] = one
    for device, ratio in slow.items():
        if device not in after:
            after[device] = {"ratio": ratio, "since": clock.stamp(), "seen": clock.stamp(), "planned": False}
    for one in after.values():
        one["planned"] = one["planned"] or clock.age(one["since"]) >= CONFIRMED_S
    if before or after:
        live.client().set(KEY, json.dumps(after))
    now = _planned(after)
    if was != now:
        logger.info("interference", devices=sorted(now), recovered=sorted(was - now))
        changes = [f"slower than profiled: {', '.join(sorted(now - was))}"] if now - was else []
        changes += [f"as profiled again, or not tried for long: {', '.join(sorted(was - now))}"] if was - now else []
        request_plan("change", "; ".join(changes))


def interfered_shares() -> dict[str, float]:
    try:
        return {
            device: 1.0 / min(one["ratio"], LARGEST_RATIO)
            for device, one in _read().items()
            if one["planned"] and clock.age(one["seen"]) < FORGOTTEN_S
        }
    except RedisError:
        return {}


def _planned(known: Mapping[str, Mapping[str, Any]]) -> set[str]:
    return {device for device, one in known.items() if one["planned"]}


def _read() -> dict[str, dict[str, Any]]:
    return json.loads(live.client().get(KEY) or "{}")
