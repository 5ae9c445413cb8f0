"""Checks of the invariants of late binding."""

from __future__ import annotations

import math

import pytest

from workers.dispatch.late.binding import LateBinding


def close(one: float, other: float) -> bool:
    return one == pytest.approx(other, rel=1e-9, abs=1e-7)


def check(binding: LateBinding, now: float, wake_at: float) -> None:
    """Raises AssertionError where something is wrong."""
    devices = binding._groups.devices.values()
    classes = binding._groups.classes
    for device in devices:
        _check_device(device, classes)
    for served in classes.values():
        demand = served.demand
        mine = [b for device in devices for b in (*device.scheduled, *device.dispatched) if b.served.demand is demand]
        may_grow = [batch for batch in mine if not batch.dispatched and batch.rows < batch.option.max_rows]
        assert len(demand.open) == len(may_grow), "a batch is open that may not grow, or the other way round"
        assert all(any(batch is other for other in demand.open) for batch in may_grow)
        assert demand.pending == sum(len(batch.queries) for batch in mine)
        _check_offers(served, devices)
    for group in {id(device.group): device.group for device in devices if device.group is not None}.values():
        _check_group(group, now)
    assert not binding._schedule.changed, "a device has changed that was not considered since"
    for device in devices:
        if device.scheduled:
            assert device.wake_at < math.inf, "no timer will wake this device's schedule"
            assert any(when == device.wake_at and other is device for when, _, other in binding._timers._heap)
            assert wake_at <= device.wake_at


def _check_device(device, classes) -> None:
    assert device.up or not device.scheduled, "scheduled on a device that takes nothing"
    assert (device.group is not None) == device.up
    assert len(device.dispatched) <= 2 and all(batch.dispatched for batch in device.dispatched)
    total = 0.0
    for batch in device.scheduled:
        assert not batch.dispatched and batch.device is device
        assert classes.get(batch.served.query_class) is batch.served
        assert batch.queries and all(query.reservation is batch for query in batch.queries), "scheduled twice"
        assert {query.key for query in batch.queries} == {batch.key}, "unlike queries in one batch"
        assert batch.rows == sum(query.rows for query in batch.queries)
        assert batch.deadline == min(query.deadline for query in batch.queries)
        assert batch.rows <= batch.option.max_rows or len(batch.queries) == 1
        permitted = [query.query_class.permitted for query in batch.queries]
        assert all(some is None or batch.option.variant in some for some in permitted), (
            "a variant that is not permitted"
        )
        assert batch.option.key in {option.key for option in device.option_sets[batch.served.query_class].options}
        total += device.seconds(batch.option, batch.rows)
    assert close(device.scheduled_s, total)
    for served, _ in device.dependents:
        assert classes.get(served.query_class) is served, "reserved for an application that is gone"
        assert any(other is device for other, _ in served.exclusive_devices)


def _check_offers(served, devices) -> None:
    offering = [device for offer in served.offers for device in offer.devices()]
    expected = [device for device in devices if device.up and served.query_class in device.option_sets]
    assert {id(device) for device in offering} == {id(device) for device in expected} and len(offering) == len(expected)
    for offer in served.offers:
        assert all(device.option_sets[served.query_class] is offer.option_set for device in offer.devices())


def _check_group(group, now: float) -> None:
    count = busy = 0
    per_s = until = slos = 0.0
    for device in group.devices:
        assert device.group is group
        assert not (device.away and device.dispatched)
        # No event but a wake reports the end of others' work, and the wake may be overdue.
        assert not device.away or device.free_at - device.rtt_s > now or device.wake_at <= device.free_at
        assert (device in group.idle) == (not (device.away or device.dispatched or device.scheduled))
        count += not device.away
        slos += sum(device.seconds(batch.option, batch.rows) / batch.served.slo_s for batch in device.scheduled)
        if device.dispatched:
            busy += 1
            slo_s = device.dispatched[-1].served.slo_s
            per_s += 1.0 / slo_s
            until += device.free_at / slo_s
    assert set(group.idle) <= set(group.devices)
    assert (group.count, group.busy) == (count, busy)
    assert close(group.per_s_sum, per_s) and close(group.until_sum, until) and close(group.scheduled_slos, slos)
