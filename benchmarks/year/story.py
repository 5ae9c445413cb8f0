"""The events of the year, the checks, and the page."""

from __future__ import annotations

import bisect
import contextlib
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2

from appliance.demo.rest import RestError, client, expect
from benchmarks.faults import history
from benchmarks.faults.checker import queries_of
from benchmarks.faults.clients import Stream, Work
from benchmarks.figures import markdown
from benchmarks.harness import Appliance, ClientProcess, Variant, upload_variant
from benchmarks.models import tiny
from tools.waiting import eventually

from . import sizes
from .faked import DAY_S, HOUR_S, FakedClock, Step, steps

APPLICATION = "numbers"
#: far above what a query takes: what fails failed for another reason than a busy machine
SLO_MS = 30_000.0
PLAN_PERIOD_S = 5.0
#: queries/s
RATE = 5.0
START_S, READY_S = 600.0, 600.0
#: seconds until each member has a valid certificate again once the clock was set
CERTIFIED_S = 90.0
#: a certificate's time from its issue, and days within which it is renewed once more than enough
LONGEST, RENEWED_DAYS = timedelta(days=30, hours=1), 25


@dataclass
class Found:
    """Results of a run.

    Attributes:
        late: (day, what was not at every member within the time allowed).
        plans: regular plans that were made each day.
        waits: the longest that a plan or key took to be everywhere, in seconds, by what it was.
        certificates: ends of the certificates that each member had at the end of a day.
        refused: what the audit log says of certificates that were refused or ended.
    """

    late: list[tuple[int, str]] = field(default_factory=list)
    plans: dict[int, int] = field(default_factory=dict)
    waits: dict[str, float] = field(default_factory=dict)
    samples: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    sent: int = 0
    slowest_s: float = 0.0
    failed: dict[tuple[int, str], int] = field(default_factory=dict)
    certificates: dict[str, set[str]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def took(self, what: str, seconds: float) -> None:
        self.waits[what] = max(self.waits.get(what, 0.0), seconds)


class Year:
    def __init__(self, folder: Path, days: int, seconds: float, within_s: float = 5.0) -> None:
        self.days, self.seconds, self._within_s = days, seconds, within_s
        self._folder = folder
        self._clock = FakedClock(folder / "clock")
        environment = {
            **self._clock.environment,
            "NEREUS_CPU_DEVICES": "1x1",
            "NEREUS_GPU": "0",
            "NEREUS_PLAN_PERIOD_S": f"{PLAN_PERIOD_S:g}",
            # As many as are made before figures must be flat.
            "NEREUS_KEEP_PLANS": str(max(10, int(days * seconds / PLAN_PERIOD_S / 10))),
        }
        self._appliance = Appliance(folder / "home", environment=environment)
        #: when each day began
        self._days: list[float] = []
        self._made: tuple[str, str] | None = None
        self._uploaded: str | None = None
        self.found = Found()

    def run(self) -> Found:
        """Live through all days.

        Raises:
            RuntimeError, TimeoutError: the appliance does not start or serve.
        """
        appliance, found = self._appliance, self.found
        appliance.start(START_S)
        try:
            appliance.register(APPLICATION, SLO_MS, [Variant("first", tiny(self._folder), 90.0)], pinned=False)
            self._wait_serving("after the first upload")
            self._begin_load()
            for step in steps(self.days):
                self._live(step)
            self._end_load()
            found.refused = self._refused()
        finally:
            appliance.stop()
        return found

    def _wait_serving(self, when: str) -> None:
        with self._appliance.inference() as inference:
            path = f"/v2/models/{APPLICATION}/ready"
            eventually(lambda: inference.get(path).status_code == 200, READY_S, why=f"serving {when}")

    def _rest(self) -> httpx2.Client:
        return client(self._appliance.console, self._appliance.credentials["api_token"])

    def _begin_load(self) -> None:
        appliance, model = self._appliance, tiny(self._folder)
        stream = Stream(APPLICATION, "http", RATE, list(model.row), [model.rows(1).tobytes()], {})
        port, key = appliance.ports[1], appliance.credentials["api_key"]
        work = Work(str(self._folder / "clients.jsonl"), port, key, [stream], patience_s=SLO_MS / 1e3)
        self._load = ClientProcess("benchmarks.faults.clients", work).start()

    def _end_load(self) -> None:
        """End the load, and count how its queries ended."""
        self._load.stop()
        for query in queries_of(history.read(self._load.file)):
            self.found.sent += 1
            self.found.slowest_s = max(self.found.slowest_s, query.took_s)
            if query.end.end != "ok":
                day = bisect.bisect(self._days, query.sent.at)
                how = f"{query.end.status} {query.end.note[:120]}"
                self.found.failed[day, how] = self.found.failed.get((day, how), 0) + 1

    def _live(self, step: Step) -> None:
        self._days.append(time.monotonic())
        ends = time.monotonic() + self.seconds
        before = self._newest()
        if step.boot is not None:
            self._boot(step.boot, step.day)
            ends = time.monotonic() + self.seconds
        if step.back:
            self._clock.move_by(-3 * HOUR_S)
            time.sleep(self.seconds)
            ends = time.monotonic() + self.seconds
        self._clock.move_by(DAY_S)
        moved = time.monotonic()
        if step.week:
            self._week(step.day)
        self._plan_everywhere(step.day)
        self._certified(step.day)
        time.sleep(max(0.0, ends - time.monotonic()))
        # A plan is due each period; the day before last saw the end of one, perhaps.
        self.found.plans[step.day] = self._newest() - before
        if time.monotonic() - moved > 3 * PLAN_PERIOD_S and self.found.plans[step.day] == 0:
            self.found.late.append((step.day, "no regular plan"))
        with contextlib.suppress(OSError):
            self.found.samples.append((step.day, sizes.sample(self._appliance)))

    def _boot(self, year: int, day: int) -> None:
        right = self._clock.offset
        self._end_load()
        self._appliance.stop()
        self._appliance.output = ""
        self._clock.boot_in(year)
        self._appliance.start(START_S)
        self._wait_serving(f"after the boot in {year}")
        self._begin_load()
        time.sleep(max(self.seconds, 2 * PLAN_PERIOD_S))
        self._plan_everywhere(day)
        self._certified(day)
        self._clock.move_to(right)

    def _newest(self) -> int:
        with self._rest() as rest:
            answer = rest.get("/plans/", params={"limit": 1})
            return expect(answer, "reading plans", 200).json()["results"][0]["version"]

    def _held(self) -> int:
        gateway = httpx2.get(f"{self._appliance.http}/health", timeout=30).json()["plan"]["newest"]
        node = httpx2.get(f"{self._appliance.node_http}/health", timeout=30).json()["plan_version"]
        return min(gateway or 0, node or 0)

    def _plan_everywhere(self, day: int) -> None:
        newest = self._newest()
        self._soon(day, "plan", lambda: self._held() >= newest)

    def _certified(self, day: int) -> None:
        """Wait until every member has a valid certificate, and record it if none comes.

        It must be valid by the control plane's clock.
        """
        try:
            eventually(self._valid, CERTIFIED_S, every=0.5, why="valid certificates")
        except TimeoutError:
            self.found.late.append((day, "a member's certificate: never valid"))

    def _valid(self) -> bool:
        now = datetime.fromtimestamp(time.time() + self._clock.offset, UTC)
        try:
            with self._rest() as rest:
                answers = [
                    expect(rest.get(f"/{kind}/"), f"reading {kind}", 200).json() for kind in ("nodes", "gateways")
                ]
        except (RestError, httpx2.HTTPError):
            return False
        members = [member for answer in answers for member in answer["results"]]
        for member in members:
            certificate = member["certificate"]
            if certificate is None or certificate["lapsed"]:
                return False
            if not now < datetime.fromisoformat(certificate["until"]) <= now + LONGEST:
                return False
        for member in members:
            self.found.certificates.setdefault(member["name"], set()).add(member["certificate"]["until"])
        return len(members) == 2

    def _refused(self) -> list[str]:
        with self._rest() as rest:
            entries = []
            for kind in ("node", "gateway"):
                answer = expect(rest.get("/audit/", params={"kind": kind}), "reading the audit log", 200)
                entries += answer.json()["results"]
        wrong = ("refused a certificate", "certificate ended")
        return [f"{each['ref']}: {each['action']}: {each['after']}" for each in entries if each["action"] in wrong]

    def _soon(self, day: int, what: str, holds) -> None:
        started = time.monotonic()
        try:
            eventually(holds, 60 + self._within_s, every=0.1, why=what)
        except TimeoutError:
            self.found.late.append((day, f"{what}: never"))
            return
        took = time.monotonic() - started
        self.found.took(what, took)
        if took > self._within_s:
            self.found.late.append((day, f"{what}: after {took:.1f} s"))

    def _week(self, day: int) -> None:
        """An upload, a key made and a key deleted; those before are deleted."""
        with self._rest() as rest:
            answer = expect(rest.post("/api-keys/", json={"name": f"key-{day}"}), "making a key", 201).json()
            self._soon(day, "new key accepted", lambda: self._admitted(answer["key"]))
            if self._made is not None:
                name, key = self._made
                expect(rest.delete(f"/api-keys/{name}/"), "deleting a key", 204)
                self._soon(day, "deleted key refused", lambda: not self._admitted(key))
            self._made = f"key-{day}", answer["key"]
            if self._uploaded is not None:
                path = f"/applications/{APPLICATION}/variants/{self._uploaded}/"
                answer = rest.delete(path, params={"drain": "true"})
                if answer.status_code not in (202, 204):
                    expect(answer, "deleting a variant", 204)
            self._uploaded = f"v{day}"
            model = tiny(self._folder, self._uploaded, seed=day)
            upload_variant(rest, APPLICATION, Variant(self._uploaded, model, 90.0))

    def _admitted(self, key: str) -> bool:
        headers = {"Authorization": f"Bearer {key}"}
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1.0] * 4}]}
        url = f"{self._appliance.http}/v2/models/{APPLICATION}/infer"
        return httpx2.post(url, json=body, headers=headers, timeout=30).status_code == 200


def complaints(found: Found, days: int) -> list[str]:
    """Broken promises, each in a line; empty: none."""
    lines = [f"day {day}: {count} queries failed: {how}" for (day, how), count in sorted(found.failed.items())]
    lines += [f"day {day}: {what}" for day, what in found.late]
    lines += found.refused
    if days > RENEWED_DAYS and min(map(len, found.certificates.values()), default=0) < days // RENEWED_DAYS:
        lines.append(f"certificates were not renewed: {found.certificates}")
    lines += [
        f"{one.name} grew by {one.grown:.1f} MiB from day {_flat_from(days)} on, at most {one.allowed:.1f} are allowed"
        for one in sizes.growths(found.samples, _flat_from(days))
        if not one.holds
    ]
    return lines


def _flat_from(days: int) -> int:
    return max(1, days // 6)


def page(found: Found, days: int, seconds: float) -> str:
    wrong = complaints(found, days)
    waits = "; ".join(f"{what}: {took:.1f} s" for what, took in found.waits.items())
    grown = [
        {"": one.name, "median MiB": one.median, "growth MiB": one.grown, "at most": one.allowed}
        for one in sizes.growths(found.samples, _flat_from(days))
    ]
    parts = [
        f"{days} days of {seconds:g} s; {found.sent} queries, {sum(found.failed.values())} failed; "
        f"slowest {found.slowest_s:.2f} s. {sum(found.plans.values())} plans. Longest until at every member: {waits}.",
        "Certificates at days' ends: "
        + "; ".join(f"{name}: {len(ends)} different ones" for name, ends in sorted(found.certificates.items()))
        + f"; {len(found.refused)} refused or ended.",
        markdown(sizes.table(found.samples)),
        *([f"From day {_flat_from(days)} on:", markdown(grown)] if grown else []),
        "holds" if not wrong else "**does not hold**:\n\n" + "\n".join(f"- {line}" for line in wrong),
    ]
    return "\n\n".join(parts)
