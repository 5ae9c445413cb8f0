"""Live against simulated: the same queries, at the same times, answered by a real appliance with two one-core devices
and by the simulator with the profiles that this appliance measured just before.

Violations are counted strictly at the client. The utilisation is what the most accurate variants would need for every
query alone; how busy the devices were, and by how much batches took longer than profiled (neighbours on the same
cores: gateway, load and whoever else is there), is told beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import math
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from appliance.demo import v2
from appliance.demo.counts import Counts
from appliance.demo.drive import REFUSED
from appliance.demo.manifest import DemoApplication, applications
from appliance.demo.rest import client, expect, pages
from appliance.demo.wire import HttpPool
from scheduler.simulation import simulate
from scheduler.simulation.arrivals import Arrivals, Generator
from scheduler.simulation.profiles import Model
from scheduler.simulation.scenario import Control, Scenario
from tests.running import RunningAppliance, eventually
from workers.batching.latency import LatencyModel
from workers.gateway.menus import AROUND_S

#: load over what the most accurate variants can carry one query at a time
UTILISATIONS = (0.3, 0.6)
REPETITIONS = 3
SECONDS, QUICK_SECONDS = 20.0, 8.0
DEVICES = 2
SLO_MS = 150.0
PERIOD_S = 10.0
#: declared for the variants from the cheapest on; far apart, so that it shows when others are chosen
ACCURACIES = (80.0, 90.0, 100.0)
#: queries/s of each application while profiles are taken
LIGHT_QPS = 2.0
PATIENCE_S = 5.0
#: single queries to each application that tell what the way costs
PROBES = 20
SEED = 20


@dataclass(frozen=True)
class Profile:
    """A variant as measured: ``points`` are (batch, median seconds); ``sigma``: of a lognormal distribution around the
    median, from the 95th percentiles."""

    points: tuple[tuple[int, float], ...]
    sigma: float

    @property
    def model(self) -> LatencyModel:
        return LatencyModel(self.points)


#: by application and variant
Profiles = Mapping[tuple[str, str], Profile]


@dataclass(frozen=True)
class Live:
    """A replay. ``violation_ratio``: 0 to 1; ``accuracy``: normalised percent, None where nothing was in time;
    ``busy``: share of the devices' time; ``slowdown``: run time of batches over their profiles' medians."""

    queries: int
    violation_ratio: float
    accuracy: float | None
    p50_ms: float | None
    busy: float
    slowdown: float


@dataclass(frozen=True)
class Row:
    """One repetition. Differences in points (percent)."""

    utilisation: float
    live: Live
    violation_ratio: float
    accuracy: float | None
    p50_ms: float | None
    sigma: float
    way_ms: float

    @property
    def violations_apart(self) -> float:
        return abs(self.live.violation_ratio - self.violation_ratio) * 100

    @property
    def accuracy_apart(self) -> float:
        """Infinite where only one of the two answered anything in time."""
        if self.live.accuracy is None or self.accuracy is None:
            return 0.0 if self.live.accuracy is self.accuracy else math.inf
        return abs(self.live.accuracy - self.accuracy)


# --- what is served --------------------------------------------------------------------------------------------------


def chosen() -> tuple[DemoApplication, ...]:
    """The demo's applications with their three cheapest variants, and this benchmark's objective and accuracies."""
    return tuple(
        dataclasses.replace(
            application,
            slo_ms=SLO_MS,
            variants=tuple(
                dataclasses.replace(variant, accuracy=accuracy)
                for variant, accuracy in zip(application.variants, ACCURACIES, strict=False)
            ),
        )
        for application in applications()
    )


def register(base_url: str, token: str, wanted: Sequence[DemoApplication]) -> None:
    """Create the applications, upload their variants, and wait until all are profiled."""
    with client(base_url, token) as rest:
        for application in wanted:
            body = {"name": application.name, "slo_ms": application.slo_ms, "signature": application.signature}
            expect(rest.post("/applications/", json=body), f"registering {application.name}", 201)
            for variant in application.variants:
                with variant.path.open("rb") as file:
                    answer = rest.post(
                        f"/applications/{application.name}/variants/",
                        files={"file": file},
                        data={"name": variant.name, "accuracy": f"{variant.accuracy:g}"},
                    )
                expect(answer, f"uploading {application.name}/{variant.name}", 201)

        def ready() -> bool:
            states = [v["state"] for a in wanted for v in pages(rest, f"/applications/{a.name}/variants/")]
            if "failed" in states:
                raise RuntimeError("a variant could not be profiled")
            return set(states) == {"ready"}

        eventually(ready, timeout=180, why="all variants ready")


def profiles(base_url: str, token: str, wanted: Sequence[DemoApplication], again: bool) -> Profiles:
    """The profiles of the devices' type; ``again``: measured anew first."""
    with client(base_url, token) as rest:

        def measured() -> dict[tuple[str, str], dict]:
            found = [p for a in wanted for p in pages(rest, f"/applications/{a.name}/profiles/")]
            return {(profile["application"], profile["variant"]): profile for profile in found}

        found = measured()
        if again:
            before = {key: profile["measured"] for key, profile in found.items()}
            for application, variant in before:
                path = f"/applications/{application}/variants/{variant}/profile/"
                expect(rest.post(path), f"profiling {application}/{variant}", 200, 201, 202)

            def renewed() -> dict | None:
                now = measured()
                return now if all(now[key]["measured"] != at for key, at in before.items()) else None

            found = eventually(renewed, timeout=180, every=0.5, why="all profiles renewed")
    return {key: _profile(profile["latencies"]) for key, profile in found.items()}


def _profile(latencies: Sequence[Mapping]) -> Profile:
    points = tuple(sorted((point["batch"], point["p50_ms"] / 1000) for point in latencies))
    #: the standard normal distribution's 95th percentile is 1.645
    spreads = [math.log(max(point["p95_ms"] / point["p50_ms"], 1.0)) / 1.645 for point in latencies]
    return Profile(points, statistics.median(spreads))


def rates(measured: Profiles, wanted: Sequence[DemoApplication], utilisation: float) -> dict[str, float]:
    """Queries/s that keep the devices so busy with the most accurate variants alone, as much for each application."""
    found = {}
    for application in wanted:
        best = max(application.variants, key=lambda variant: variant.accuracy)
        alone_s = measured[application.name, best.name].model.seconds(1)
        found[application.name] = utilisation * DEVICES / len(wanted) / alone_s
    return found


# --- live ------------------------------------------------------------------------------------------------------------


class Client:
    """Sends queries when they are due, whether or not earlier ones were answered, and counts what comes back."""

    def __init__(self, url: str, key: str, wanted: Sequence[DemoApplication]):
        self._url, self._key = url, key
        self._wanted = {application.name: application for application in wanted}
        self.counts = Counts()
        #: (application, variant, rows of its batch) of each answer
        self.batches: list[tuple[str, str, int]] = []

    async def replay(self, arrivals: Arrivals, stop: threading.Event | None = None) -> None:
        """Send all arrivals and wait for the last answer."""
        pool = HttpPool(self._url, limit=4096, timeout_s=PATIENCE_S)
        try:
            requests = {name: v2.queries(pool, a, self._key) for name, a in self._wanted.items()}
            # Connections are made beforehand: a client that keeps them has them.
            await asyncio.gather(*(pool.get("/v2/health/live") for _ in range(16)))
            begun = time.monotonic() + 0.05
            for i, (due, index) in enumerate(zip(arrivals.times, arrivals.applications, strict=True)):
                delay = begun + due - time.monotonic()
                if delay > 0:
                    await asyncio.sleep(delay)
                if stop is not None and stop.is_set():
                    break
                name = arrivals.names[index]
                self._send(pool, requests[name][i % len(requests[name])], name, begun + due)
            until = time.monotonic() + PATIENCE_S + 2
            while pool.in_flight and time.monotonic() < until:
                await asyncio.sleep(0.02)
        finally:
            pool.close()

    async def probe(self, versions: Mapping[str, str]) -> list[float]:
        """Round trips (s) of single queries, one after the other, to these variants by application.

        Raises:
            RuntimeError: one was not answered.
        """
        pool = HttpPool(self._url, timeout_s=PATIENCE_S)
        loop, taken = asyncio.get_running_loop(), []
        try:
            for name, version in versions.items():
                path = f"/v2/models/{name}/infer".encode()
                pinned = f"/v2/models/{name}/versions/{version}/infer".encode()
                for request in v2.queries(pool, self._wanted[name], self._key)[:PROBES]:
                    answered: asyncio.Future[tuple] = loop.create_future()
                    began = time.monotonic()
                    pool.send(request.replace(path, pinned, 1), lambda *told, to=answered: to.set_result(told))
                    status, _, body = await answered
                    if status != 200:
                        raise RuntimeError(f"{name}/{version}: {status}: {body[:200]!r}")
                    taken.append(time.monotonic() - began)
                    await asyncio.sleep(0.02)
        finally:
            pool.close()
        return taken

    def _send(self, pool: HttpPool, request: bytes, name: str, due: float) -> None:
        counts = self.counts

        def answered(status: int | None, headers: dict[bytes, bytes], body: bytes) -> None:
            took_ms = (time.monotonic() - due) * 1000
            if status != 200:
                if status in REFUSED:
                    counts.refused += 1
                else:
                    counts.failed += 1
                return
            told = v2.answer(headers, body).parameters
            self.batches.append((name, told.variant, told.batch_size))
            counts.latencies_ms.append(took_ms)
            if took_ms > self._wanted[name].slo_ms:
                counts.late += 1
            else:
                counts.in_time += 1
                counts.accuracy_sum += told.accuracy or 0.0

        counts.sent += 1
        if not pool.send(request, answered):
            counts.sent -= 1
            counts.unsent += 1


def live(appliance: RunningAppliance, wanted: Sequence[DemoApplication], arrivals: Arrivals, known: Profiles) -> Live:
    """Replay ``arrivals`` against the appliance."""
    one = Client(appliance.http, appliance.credentials["api_key"], wanted)
    before = _busy_s(appliance)
    began = time.monotonic()
    uvloop.run(one.replay(arrivals))
    took = time.monotonic() - began
    busy_s = _busy_s(appliance) - before
    counts = one.counts
    # Of a batch of n rows n answers tell, each of them for its part.
    models = {key: profile.model for key, profile in known.items()}
    expected_s = sum(models[name, variant].seconds(rows) / rows for name, variant, rows in one.batches)
    return Live(
        queries=counts.sent + counts.unsent,
        violation_ratio=1 - counts.in_time / max(1, counts.sent + counts.unsent),
        accuracy=counts.accuracy_sum / counts.in_time if counts.in_time else None,
        p50_ms=statistics.median(counts.latencies_ms) if counts.latencies_ms else None,
        busy=busy_s / took / DEVICES,
        slowdown=busy_s / expected_s if expected_s else 1.0,
    )


def _busy_s(appliance: RunningAppliance) -> float:
    """Seconds that the executors have run batches so far."""
    text = httpx.get(f"{appliance.node_http}/metrics", timeout=10).text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "nereus_executor_busy_seconds_total"
    )


def way_s(appliance: RunningAppliance, wanted: Sequence[DemoApplication]) -> float:
    """What a query costs beside its run (s): the mean round trip of single queries, less what executors ran for them.

    The queries insist on a variant, and so wait for no company.
    """
    with appliance.inference() as http:
        versions = {a.name: http.get(f"/v2/models/{a.name}").raise_for_status().json()["versions"][0] for a in wanted}
    one = Client(appliance.http, appliance.credentials["api_key"], wanted)
    before = _busy_s(appliance)
    taken = uvloop.run(one.probe(versions))
    return max(0.0, (sum(taken) - (_busy_s(appliance) - before)) / len(taken) - AROUND_S)


class Light:
    """A little load in the background, so that profiles are taken with everything up and awake."""

    def __init__(self, appliance: RunningAppliance, wanted: Sequence[DemoApplication]):
        names = tuple(application.name for application in wanted)
        arrivals = Generator("poisson", 600.0, dict.fromkeys(names, LIGHT_QPS)).arrivals(names, SEED)
        self._stop = threading.Event()
        one = Client(appliance.http, appliance.credentials["api_key"], wanted)
        self._thread = threading.Thread(target=lambda: uvloop.run(one.replay(arrivals, self._stop)), daemon=True)

    def __enter__(self) -> Light:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)


# --- simulated -------------------------------------------------------------------------------------------------------


def scenario(wanted: Sequence[DemoApplication], arrivals: Arrivals, known: Profiles, way: float, seed: int) -> Scenario:
    """The same, for the simulator: profiles as the gateway reads them, run times spread as the profiles were."""
    models = []
    for application in wanted:
        for variant in application.variants:
            model = known[application.name, variant.name].model
            # Each batch size has a point of its own: live, batches between two profiled ones are not padded.
            points = tuple((rows, model.seconds(rows) + AROUND_S) for rows in range(1, model.largest + 1))
            models.append(Model(application.name, variant.name, variant.accuracy, {"cpu": points}))
    return Scenario(
        name="fidelity",
        models=tuple(models),
        arrivals=arrivals,
        devices=tuple((f"cpu-{i}", "cpu") for i in range(DEVICES)),
        slo_s={application.name: application.slo_ms / 1000 for application in wanted},
        network_s=way / 2,
        profile_noise=statistics.median(profile.sigma for profile in known.values()),
        seed=seed,
        control=Control(period_s=PERIOD_S, initial_qps=1.0),
    )


# --- both ------------------------------------------------------------------------------------------------------------


def measure(quick: bool = False) -> list[Row]:
    """A row for each utilisation and repetition; ``quick``: the highest utilisation only, shorter, profiled once."""
    seconds = QUICK_SECONDS if quick else SECONDS
    wanted = chosen()
    names = tuple(application.name for application in wanted)
    cores = sorted(os.sched_getaffinity(0))
    table = []
    with tempfile.TemporaryDirectory(prefix="nereus-fidelity-") as folder:
        appliance = RunningAppliance(
            Path(folder) / "home",
            environment={
                "NEREUS_CPU_DEVICES": ";".join(str(cores[i % len(cores)]) for i in range(DEVICES)),
                "NEREUS_PLAN_PERIOD_S": f"{PERIOD_S:g}",
            },
        )
        try:
            appliance.start()
            token = appliance.credentials["api_token"]
            with Light(appliance, wanted):
                register(appliance.console, token, wanted)
            with appliance.inference() as http:
                eventually(lambda: http.get("/v2/health/ready").status_code == 200)
            for repetition in range(REPETITIONS):
                with Light(appliance, wanted):
                    known = profiles(appliance.console, token, wanted, again=repetition > 0 and not quick)
                way = way_s(appliance, wanted)
                for utilisation in UTILISATIONS[-1:] if quick else UTILISATIONS:
                    seed = SEED + repetition
                    generator = Generator("poisson", seconds, rates(known, wanted, utilisation))
                    arrivals = generator.arrivals(names, seed)
                    table.append(_both(appliance, wanted, arrivals, known, utilisation, way, seed))
                    print(_line(table[-1]), file=sys.stderr, flush=True)
        finally:
            appliance.stop()
    return table


def _both(appliance, wanted, arrivals, known, utilisation: float, way: float, seed: int) -> Row:
    served = live(appliance, wanted, arrivals, known)
    simulated = scenario(wanted, arrivals, known, way, seed)
    summary = simulate(simulated, "nereus").summary
    return Row(
        utilisation=utilisation,
        live=served,
        violation_ratio=summary["violation_ratio"],
        accuracy=summary["effective_accuracy"],
        p50_ms=summary["median_latency_ms"],
        sigma=simulated.profile_noise,
        way_ms=way * 1000,
    )


def _line(row: Row) -> str:
    def number(value: float | None) -> str:
        return "–" if value is None else f"{value:.2f}"

    one = row.live
    return (
        f"| {row.utilisation:.0%} | {one.queries:,} | {one.violation_ratio:.2%} | {row.violation_ratio:.2%} "
        f"| {row.violations_apart:.2f} | {number(one.accuracy)} | {number(row.accuracy)} | {row.accuracy_apart:.2f} "
        f"| {number(one.p50_ms)} | {number(row.p50_ms)} | {one.busy:.0%} | {one.slowdown:.2f} | {row.sigma:.2f} "
        f"| {row.way_ms:.1f} |"
    )


def render(table: Sequence[Row]) -> str:
    """A Markdown table of all repetitions, and the medians of what they differ by."""
    lines = [
        "| utilisation | queries | violations live | simulated | apart, points | accuracy live | simulated "
        "| apart, points | median ms live | simulated | devices busy | run time / profile | spread | way ms |",
        "|---:" * 14 + "|",
        *map(_line, table),
        "",
    ]
    for utilisation in dict.fromkeys(row.utilisation for row in table):
        rows = [row for row in table if row.utilisation == utilisation]
        lines.append(
            f"At {utilisation:.0%}, median of {len(rows)}: violations "
            f"{statistics.median(row.violations_apart for row in rows):.2f} points apart, accuracy "
            f"{statistics.median(row.accuracy_apart for row in rows):.2f} points."
        )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity", description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="the highest utilisation only, and shorter")
    print(render(measure(parser.parse_args().quick)))
