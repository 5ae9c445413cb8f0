"""What must be true of a dispatcher's books between any two calls, counted anew from its devices."""

from __future__ import annotations

import math

import pytest

from workers.dispatch.late.binding import Dispatcher


def close(one: float, other: float) -> bool:
    return one == pytest.approx(other, rel=1e-9, abs=1e-7)


def check(dispatcher: Dispatcher, now: float, wake_at: float) -> None:
    """Raises AssertionError where something is wrong."""
    devices = dispatcher._fleet.devices.values()
    applications = dispatcher._fleet.applications
    for device in devices:
        _check_device(device, applications)
    for application in applications.values():
        demand = application.demand
        mine = [b for device in devices for b in (*device.booked, *device.granted) if b.application.demand is demand]
        may_grow = [batch for batch in mine if not batch.granted and batch.rows < batch.option.max_rows]
        assert len(demand.open) == len(may_grow), "a batch is open that may not grow, or the other way round"
        assert all(any(batch is other for other in demand.open) for batch in may_grow)
        assert demand.under_way == sum(len(batch.queries) for batch in mine)
        _check_groups(application, devices)
    for kind in {id(device.kind): device.kind for device in devices if device.kind is not None}.values():
        _check_kind(kind, now)
    assert not dispatcher._bookings.touched, "a device has changed that was not considered since"
    for device in devices:
        if device.booked and (device.granted or len(device.booked) > 1):
            assert device in dispatcher._bookings.behind, "nobody will take over what waits here"
        if device.booked:
            assert device.wake_at < math.inf, "nobody will look at what is booked here"
            assert any(when == device.wake_at and other is device for when, _, other in dispatcher._wakes._heap)
            assert wake_at <= device.wake_at


def _check_device(device, applications) -> None:
    assert device.up or not device.booked, "booked on a device that takes nothing"
    assert (device.kind is not None) == device.up
    assert len(device.granted) <= 2 and all(batch.granted for batch in device.granted)
    total = 0.0
    for batch in device.booked:
        assert not batch.granted and batch.device is device
        assert applications.get(batch.application.query_class) is batch.application
        assert batch.queries and all(query.booking is batch for query in batch.queries), "booked twice"
        assert {query.key for query in batch.queries} == {batch.key}, "unlike queries in one batch"
        assert batch.rows == sum(query.rows for query in batch.queries)
        assert batch.deadline == min(query.deadline for query in batch.queries)
        assert batch.rows <= batch.option.max_rows or len(batch.queries) == 1
        permitted = [query.query_class.permitted for query in batch.queries]
        assert all(some is None or batch.option.variant in some for some in permitted), (
            "a variant that is not permitted"
        )
        assert batch.option.key in {option.key for option in device.menus[batch.application.query_class].options}
        total += device.seconds(batch.option, batch.rows)
    assert close(device.booked_s, total)
    for application, _ in device.claims:
        assert applications.get(application.query_class) is application, "kept free for an application that is gone"
        assert any(host is device for host, _ in application.hosts)


def _check_groups(application, devices) -> None:
    hosts = [device for group in application.groups for device in group.devices()]
    expected = [device for device in devices if device.up and application.query_class in device.menus]
    assert {id(device) for device in hosts} == {id(device) for device in expected} and len(hosts) == len(expected)
    for group in application.groups:
        assert all(device.menus[application.query_class] is group.menu for device in group.devices())


def _check_kind(kind, now: float) -> None:
    count = busy = 0
    until = booked_s = 0.0
    for device in kind.devices:
        assert device.kind is kind
        # Of the end of others' work nothing tells but a wake, which may be overdue.
        works = bool(device.granted) or device.free_at > now or (device.counted and device.wake_at <= now)
        assert (device in kind.idle) == (not device.away and not works and not device.booked)
        if device.away:
            continue
        count += 1
        booked_s += device.booked_s
        if works:
            busy += 1
            until += device.free_at
    assert set(kind.idle) <= set(kind.devices)
    assert (kind.count, kind.busy) == (count, busy)
    assert close(kind.until_sum, until) and close(kind.booked_s, booked_s)
