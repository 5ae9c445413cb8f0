"""Seconds of gateways from Redis give the same figures as buckets, whatever gateways report."""

from __future__ import annotations

import random

import numpy as np
import pytest

from registry import clock
from scheduler import live, telemetry
from scheduler.history import figures, reading, recent
from scheduler.history.folding import APPLICATION, Bucket, add_gateway_second

pytestmark = pytest.mark.usefixtures("clean_redis")


def counts(noise: random.Random) -> dict:
    arrived = noise.randrange(50)
    late, dropped = noise.randrange(5), noise.randrange(3)
    return {"arrived": arrived, "arrived_rows": 2 * arrived, "in_time": arrived, "late": late, "dropped": dropped} | {
        "failed": noise.randrange(2),
        "accuracy_sum": arrived * noise.uniform(80, 99),
        "normalized_sum": arrived * noise.uniform(80, 99),
        "p50_ms": noise.uniform(1, 20),
        "p95_ms": noise.uniform(20, 60),
        "by_variant": {f"v{i}": noise.randrange(9) for i in range(3)},
        "arrived_by_size": {"8": arrived},
    }


def seconds(now: int) -> list[dict]:
    """Seconds of two gateways, one of which has two in some seconds and none in the next."""
    noise, made = random.Random(7), []
    for ago in range(40, 1, -1):
        for gateway in ("front", "other"):
            t = now - ago - (gateway == "other" and ago % 7 == 0)
            names = [name for name in ("digits", "sounds", "idle") if noise.random() < 0.8]
            applications = {name: counts(noise) if name != "idle" else {"arrived": 0} for name in names}
            made.append({"t": t, "gateway": gateway, "ready": True, "serving": [], "applications": applications})
    return made


def buckets(entries: list[dict]) -> dict[int, Bucket]:
    made, last = {}, {}
    for second in entries:
        t = second["t"] + (last.get(second["gateway"]) == second["t"])
        last[second["gateway"]] = t
        add_gateway_second(made.setdefault(t, Bucket(seconds=1)), second)
    return made


def series(on: figures.Grid, made: dict[int, Bucket], name: str | None) -> dict[str, list]:
    sums, nothing = figures.Sums(on, APPLICATION), [0] * len(APPLICATION)
    rows = [one.total() if name is None else one.applications.get(name, nothing) for one in made.values()]
    sums.add(np.array(list(made)), np.array([one.seconds for one in made.values()]), np.array(rows))
    return figures.application_series(sums)


def test_seconds_give_the_same_figures_as_buckets():
    now = int(clock.wall())
    for second in seconds(now):
        telemetry.record(telemetry.GATEWAY_STREAM, second)
    # As they are read: their seconds may come out one later than they were stored.
    made = buckets(telemetry.gateway_seconds(120))
    on = figures.grid(now - 60, now, 1, 30)
    assert figures.application_series(recent.total(on, recent.read(120))) == series(on, made, None)
    listed = recent.by_application(on, recent.read(120))
    assert sorted(listed) == ["digits", "sounds"], "one without queries is not listed"
    for name, sums in listed.items():
        assert figures.application_series(sums) == series(on, made, name)
    one = recent.read(120, "digits")
    assert figures.application_series(recent.total(on, one)) == series(on, made, "digits")
    for variant, points in recent.by_variant(on, one).items():
        expected = sum(bucket.variants.get(f"digits/{variant}", 0) for bucket in made.values())
        assert points.sum() == expected > 0


def test_without_a_second_there_are_no_figures_and_what_cannot_be_read_is_left_out():
    now = int(clock.wall())
    asked = reading.Range(now - 60, now)
    assert set(reading.series(asked, 60)["demand"]) == {None}
    assert set(reading.series(asked, 60, "digits")["demand"]) == {None}
    assert reading.applications(asked, 60)["applications"] == []
    for text in ('{"gateway": 3}', "nothing", '{"gateway": "g", "applications": {"digits": {"arrived": "many"}}}'):
        live.client().xadd(telemetry.GATEWAY_STREAM, {"d": text, "at": clock.stamp()})
    assert recent.read(60).rows.shape == (0, len(APPLICATION))
    assert recent.read(60, "digits").rows.shape == (0, len(APPLICATION))
