"""A year of history: the size of its rows, and how fast ranges are answered.

Fills a database of its own (SQLite in a folder of its own, or ``NEREUS_DATABASE_URL``) with all rows that are kept, of
a day's rise and fall with noise, and a Redis of its own with the seconds of the last quarter of an hour; then sends the
REST requests of each kind. With ``--home`` the rows are added to that home's database instead, and nothing is measured:
for measuring the console.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DAY = 86400
RANGES = {
    "15 min": 900,
    "1 h": 3600,
    "6 h": 6 * 3600,
    "1 day": DAY,
    "4 days": 4 * DAY,
    "7 days": 7 * DAY,
    "30 days": 30 * DAY,
    "90 days": 90 * DAY,
    "1 year": 365 * DAY,
}
VARIANTS = 5
#: seconds of a day whose rows are alike
PART = 900
#: rows that one statement stores
AT_ONCE = 200


def main(arguments: list[str]) -> int:
    """Fill, measure, print."""
    parser = argparse.ArgumentParser(prog="benchmarks history", description=__doc__.partition("\n")[0])
    parser.add_argument("--applications", type=int, default=50)
    parser.add_argument("--devices", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--points", type=int, default=300, help="that each request asks for")
    parser.add_argument("--part", type=float, default=1.0, help="of the rows of each resolution, the newest ones")
    parser.add_argument("--home", help="add to this home's database (its appliance may run), and stop")
    options = parser.parse_args(arguments)
    if options.home:
        os.environ["NEREUS_HOME"] = options.home
        _fill(options)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NEREUS_HOME"] = folder
        _fill(options)
        with _redis():
            _measure(options)
    return 0


def _fill(options: argparse.Namespace) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
    import django

    django.setup()
    from django.core.management import call_command

    from registry.models import Application, Device
    from scheduler.history.folding import TIERS
    from scheduler.history.models import HistoryRow

    call_command("migrate", verbosity=0)
    own = list(Application.objects.order_by("name").values_list("name", flat=True)) if options.home else []
    devices = list(Device.objects.order_by("ref").values_list("ref", flat=True)) if options.home else []
    names = _names(
        own or [f"application-{i:02}" for i in range(options.applications)],
        devices or [f"node-{i // 8:02}/cuda{i % 8}" for i in range(options.devices)],
    )
    now, began, count = int(time.time()), time.perf_counter(), 0
    for tier in reversed(TIERS):
        for rows in _batches(tier, round(tier.keep * options.part), now, names):
            HistoryRow.objects.bulk_create(rows, ignore_conflicts=True)
            count += len(rows)
    print(f"{count} rows in {time.perf_counter() - began:.0f} s")


def _names(applications: list[str], devices: list[str]) -> dict[tuple[str, str], int]:
    from scheduler.history.models import HistoryName

    wanted = [("a", name) for name in applications]
    wanted += [("v", f"{name}/variant-{i}") for name in applications for i in range(VARIANTS)]
    wanted += [("d", ref) for ref in devices]
    HistoryName.objects.bulk_create((HistoryName(kind=k, name=n, used=0) for k, n in wanted), ignore_conflicts=True)
    return {(kind, name): pk for kind, name, pk in HistoryName.objects.values_list("kind", "name", "pk")}


def _batches(tier, rows: int, now: int, names: dict[tuple[str, str], int]) -> Iterator[list]:
    from scheduler.history.models import HistoryRow
    from scheduler.history.packing import pack

    last, made, packed = now - now % tier.resolution - tier.resolution, [], {}
    for index in range(rows, 0, -1):
        start = last - index * tier.resolution
        # Rows are compressed one by one, so days that are alike take as much as others.
        part = start % DAY // PART
        if part not in packed:
            packed[part] = pack(_bucket(start, tier.resolution, names), lambda *key: names[key])
        made.append(HistoryRow(resolution=tier.resolution, start=start, **packed[part]._asdict()))
        if len(made) == AT_ONCE:
            yield made
            made = []
    yield made


def _bucket(start: int, seconds: int, names: dict[tuple[str, str], int]):
    from scheduler.history.folding import Bucket

    bucket, noise = Bucket(seconds), random.Random(start)
    day = 1.2 + math.sin(2 * math.pi * (start % DAY) / DAY)
    for (kind, name), number in names.items():
        if kind == "a":
            arrived = round(seconds * (5 + number % 40) * day * noise.uniform(0.9, 1.1))
            late, dropped = round(arrived * noise.uniform(0, 0.01)), round(arrived * noise.uniform(0, 0.004))
            in_time, accuracy = arrived - late - dropped, noise.uniform(93, 99)
            answered, p95 = in_time + late, round(1000 * noise.uniform(20, 60))
            sums = [arrived, arrived, in_time, late, dropped, 0, round(in_time * accuracy * 9000)]
            sums += [round(in_time * accuracy * 10_000), answered * p95 // 2, answered * p95, 2 * p95]
            bucket.applications[name] = sums
            for i in range(VARIANTS):
                bucket.variants[f"{name}/variant-{i}"] = round(answered / VARIANTS * noise.uniform(0.8, 1))
        elif kind == "d":
            busy, watts = noise.uniform(0.2, 0.9), noise.uniform(60, 300)
            columns = [seconds, round(seconds * busy * 10_000), 0, round(seconds * noise.uniform(0, 5)), seconds << 32]
            bucket.devices[name] = [
                *columns,
                seconds,
                round(seconds * (350 + busy * 300)),
                seconds,
                round(seconds * watts * 1000),
            ]
    return bucket


@contextmanager
def _redis() -> Iterator[None]:
    """Run a Redis where the settings expect it.

    It has the last quarter of an hour's seconds of one gateway.
    """
    from django.conf import settings

    from appliance.redis_server import executable
    from registry import clock
    from scheduler import live, telemetry
    from tools.child import eventually

    socket = settings.REDIS_URL.removeprefix("unix://")
    Path(socket).parent.mkdir(parents=True, exist_ok=True)
    command = [executable(), "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: Path(socket).exists() and live.client().ping(), why="a Redis")
        now = int(clock.wall())
        for start in range(now - telemetry.KEEP_S, now, AT_ONCE):
            seconds = range(start, min(now, start + AT_ONCE))
            telemetry.record_all([telemetry.entry(telemetry.GATEWAY_STREAM, _second(t)) for t in seconds])
        yield
    finally:
        process.terminate()
        process.wait()


def _second(t: int) -> dict:
    """A gateway's second, as :func:`scheduler.telemetry.gateway_second` makes it."""
    from scheduler.history.models import HistoryName

    applications, noise = HistoryName.objects.filter(kind="a").values_list("name", flat=True), random.Random(t)
    return {"t": t, "gateway": "gateway", "ready": True, "serving": list(applications)} | {
        "applications": {name: _counts(noise, 5 + index % 40) for index, name in enumerate(applications)}
    }


def _counts(noise: random.Random, mean: int) -> dict:
    arrived = round(mean * noise.uniform(0.5, 1.5))
    rest = {"late": 0, "dropped": 0, "failed": 0, "arrived_by_size": {}}
    latencies = {"p50_ms": noise.uniform(10, 30), "p95_ms": noise.uniform(20, 60)}
    accuracy = {"accuracy_sum": arrived * noise.uniform(90, 99), "normalized_sum": arrived * noise.uniform(93, 99)}
    return {"arrived": arrived, "arrived_rows": arrived, "in_time": arrived, **rest, **accuracy, **latencies} | {
        "by_variant": {f"variant-{i}": arrived // VARIANTS for i in range(VARIANTS)}
    }


def _measure(options: argparse.Namespace) -> None:
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.test import Client

    from registry import clock

    print(f"size: {_size() / 1e6:.0f} MB with {options.applications} applications, {options.devices} devices")
    print(f"milliseconds of CPU time of a request for {options.points} points, median of {options.rounds};", end=" ")
    print("in brackets the longest on the wall")
    print("| range | resolution | cluster | one application | all applications | one device |")
    print("|---|---|---|---|---|---|")
    client = Client(headers={"host": settings.ALLOWED_HOSTS[0].lstrip(".")})
    client.force_login(User.objects.create_superuser("reader"))
    kinds = ("", "applications/application-07/", "applications/", "devices/node-03/cuda1/")
    for label, seconds in {"15 min, now": 900, **RANGES}.items():
        # Except for the first beyond the seconds that Redis has.
        ago = 0 if "now" in label else 120

        def ask(kind: str, seconds: int = seconds, ago: int = ago):
            end = math.floor(clock.wall()) - ago
            query = {"begin": end - seconds, "end": end, "points": options.points}
            return client.get(f"/api/v1/history/{kind}", query)

        asks = [functools.partial(ask, kind) for kind in kinds]
        resolutions = dict.fromkeys(f"{ask().json()['resolution']} s" for ask in asks)
        shown = " | ".join(_median_ms(ask, options.rounds) for ask in asks)
        print(f"| {label} | {', '.join(resolutions)} | {shown} |", flush=True)


def _median_ms(ask, rounds: int) -> str:
    wall, cpu = [], []
    for _ in range(rounds):
        began, worked = time.perf_counter(), time.thread_time()
        ask()
        wall.append(1000 * (time.perf_counter() - began))
        cpu.append(1000 * (time.thread_time() - worked))
    return f"{statistics.median(cpu):.0f} ({max(wall):.0f})"


def _size() -> int:
    """Bytes of the whole database."""
    from django.db import connection

    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            cursor.execute("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
        else:
            cursor.execute("SELECT pg_database_size(current_database())")
        return cursor.fetchone()[0]
