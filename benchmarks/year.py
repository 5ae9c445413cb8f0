"""A year in an hour: an appliance whose wall clock moves a day every few seconds.

It is a whole appliance under light load. The wall clock is libfaketime's, in every process of the appliance except
Redis; the monotonic clock is left alone. After a quarter of the days the clock goes back by three hours; after half of
them the appliance boots in 1970, after three quarters in 2040, and each time the clock is corrected while it runs.
Every seventh day a model is uploaded, a key is made, and those of the week before are deleted. Each day the newest plan
must be at every member, a new key accepted and a deleted one refused within 5 s, regular plans must go on, and each
member's certificate must be valid by the control plane's clock; none may be refused, and no query may fail, except
while the appliance itself is stopped.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import os
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2

from appliance import redis_server
from appliance.demo.rest import RestError, expect, pages
from benchmarks.faults import history
from benchmarks.faults.checker import queries_of
from benchmarks.faults.clients import ClientProcess, Stream, Work
from tools.child import free_ports
from tools.waiting import eventually

from .figures import heading
from .harness import Appliance, Variant, between, upload_variant
from .models import tiny

APPLICATION = "numbers"
#: far above what a query takes: what fails failed for another reason than a busy machine
SLO_MS = 30_000.0
PLAN_PERIOD_S, DAY_S, HOUR_S = 5.0, 86_400.0, 3_600.0
#: queries/s
RATE = 5.0
START_S = 600.0
#: seconds until each member has a valid certificate again once the clock was set
CERTIFIED_S = 90.0
#: a certificate's time from its issue, and days within which it is renewed once more than enough
LONGEST, RENEWED_DAYS = timedelta(days=30, hours=1), 25


class FakedClock:
    """The wall clock of processes that run with :attr:`environment`: the real one plus ``offset`` seconds."""

    def __init__(self, file: Path) -> None:
        import libfaketime

        self._file = file
        self.move_to(0.0)
        self.environment = {
            "LD_PRELOAD": f"{Path(libfaketime.__file__).parent}/vendor/libfaketime/src/libfaketime.so.1",
            "FAKETIME_TIMESTAMP_FILE": str(file),
            # Else a running process would see only after 10 s that the clock was moved.
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            # gunicorn keeps monotonic times in a file's status.
            "NO_FAKE_STAT": "1",
        }

    def move_to(self, offset: float) -> None:
        """Set the offset; processes see it within a second, one after the other."""
        self.offset = offset
        partial = self._file.with_suffix(".new")
        partial.write_text(f"{offset:+.1f}\n")
        os.replace(partial, self._file)


class Year:
    """The story, and what was found.

    Attributes:
        wrong: what does not hold, each in a line.
        waits: the longest that a plan or key took to be everywhere, in seconds, by what it was.
        certificates: ends of the certificates that each member had at the end of a day.
    """

    def __init__(self, folder: Path, days: int, seconds: float, within_s: float) -> None:
        self.days, self.seconds, self._within_s = days, seconds, within_s
        self._folder = folder
        self._clock = FakedClock(folder / "clock")
        self._redis_port = free_ports(1)[0]
        environment = {
            **self._clock.environment,
            # Debian's does not start under libfaketime.
            "NEREUS_REDIS_URL": f"redis://127.0.0.1:{self._redis_port}/0",
            "NEREUS_CPU_DEVICES": "1x1",
            "NEREUS_GPU": "0",
            "NEREUS_PLAN_PERIOD_S": f"{PLAN_PERIOD_S:g}",
        }
        self._box = Appliance(folder / "home", environment=environment)
        #: when each day began
        self._began: list[float] = []
        self._key: tuple[str, str] | None = None
        self._uploaded: str | None = None
        self.wrong: list[str] = []
        self.plans, self.sent, self.failed, self.slowest_s = 0, 0, 0, 0.0
        self.waits: dict[str, float] = defaultdict(float)
        self.certificates: dict[str, set[str]] = defaultdict(set)

    def run(self) -> None:
        command = [redis_server.executable(), "--port", str(self._redis_port), "--save", "", "--dir", str(self._folder)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            self._box.start(START_S)
            self._box.register(APPLICATION, SLO_MS, [Variant("first", tiny(self._folder), 90.0)], pinned=False)
            self._begin_load()
            boots = {self.days // 2: 1970, 3 * self.days // 4: 2040}
            for day in range(1, self.days + 1):
                self._live(day, boots.get(day), day == max(1, self.days // 4))
            self._end_load()
            self._look()
        finally:
            self._box.stop()
            server.terminate()
            server.wait(30)

    def _begin_load(self) -> None:
        with self._box.inference() as inference:
            ready = f"/v2/models/{APPLICATION}/ready"
            eventually(lambda: inference.get(ready).status_code == 200, START_S, why="serving")
        model = tiny(self._folder)
        stream = Stream(APPLICATION, "http", RATE, list(model.row), [model.rows(1).tobytes()], {})
        port, key = self._box.ports[1], self._box.credentials["api_key"]
        work = Work(str(self._folder / "clients.jsonl"), port, key, [stream], patience_s=SLO_MS / 1e3)
        self._load = ClientProcess(work).start()

    def _end_load(self) -> None:
        self._load.stop()
        failed: Counter[tuple[int, str]] = Counter()
        for query in queries_of(history.read(self._load.file)):
            self.sent += 1
            self.slowest_s = max(self.slowest_s, query.took_s)
            if query.end.end != "ok":
                failed[bisect.bisect(self._began, query.sent.at), f"{query.end.status} {query.end.note[:120]}"] += 1
        self.failed += failed.total()
        self.wrong += [f"day {day}: {count} queries failed: {how}" for (day, how), count in sorted(failed.items())]

    # --- a day ---

    def _live(self, day: int, boot: int | None, back: bool) -> None:
        self._began.append(time.monotonic())
        before = self._newest()
        if boot is not None:
            self._boot(day, boot)
        if back:
            self._clock.move_to(self._clock.offset - 3 * HOUR_S)
            time.sleep(self.seconds)
        self._clock.move_to(self._clock.offset + DAY_S)
        moved = time.monotonic()
        if day % 7 == 1:
            self._week(day)
        self._everywhere(day)
        time.sleep(max(0.0, moved + self.seconds - time.monotonic()))
        made = self._newest() - before
        self.plans += made
        if time.monotonic() - moved > 3 * PLAN_PERIOD_S and not made:
            self.wrong.append(f"day {day}: no regular plan")

    def _boot(self, day: int, year: int) -> None:
        """The appliance starts with the clock of a box whose battery is dead, or was set wrongly."""
        right = self._clock.offset
        self._end_load()
        self._box.stop()
        self._box.output = ""
        self._clock.move_to((year - 1970) * 365.25 * DAY_S + HOUR_S - time.time())
        self._box.start(START_S)
        self._begin_load()
        time.sleep(max(self.seconds, 2 * PLAN_PERIOD_S))
        self._everywhere(day)
        self._clock.move_to(right)

    def _newest(self) -> int:
        with self._box.rest() as rest:
            answer = rest.get("/plans/", params={"limit": 1})
            return expect(answer, "reading plans", 200).json()["results"][0]["version"]

    def _everywhere(self, day: int) -> None:
        """The newest plan, and a valid certificate, must be at every member."""
        newest = self._newest()
        self._soon(day, "plan", self._within_s, lambda: self._held() >= newest)
        self._soon(day, "certificate", CERTIFIED_S, self._certified)

    def _held(self) -> int:
        gateway = httpx2.get(f"{self._box.http}/health", timeout=30).json()["plan"]["newest"]
        node = httpx2.get(f"{self._box.node_http}/health", timeout=30).json()["plan_version"]
        return min(gateway or 0, node or 0)

    def _certified(self) -> bool:
        """Whether both members' certificates are valid by the control plane's clock."""
        now = datetime.fromtimestamp(time.time() + self._clock.offset, UTC)
        with contextlib.suppress(RestError, httpx2.HTTPError), self._box.rest() as rest:
            members = [*pages(rest, "/nodes/"), *pages(rest, "/gateways/")]
            held = {one["name"]: one["certificate"] for one in members if one["certificate"] is not None}
            untils = {name: one["until"] for name, one in held.items() if not one["lapsed"]}
            if len(untils) == 2 and all(now < datetime.fromisoformat(end) <= now + LONGEST for end in untils.values()):
                for name, end in untils.items():
                    self.certificates[name].add(end)
                return True
        return False

    def _soon(self, day: int, what: str, within_s: float, holds) -> None:
        began = time.monotonic()
        try:
            eventually(holds, 60 + within_s, every=0.1, why=what)
        except TimeoutError:
            self.wrong.append(f"day {day}: {what}: never")
            return
        took = time.monotonic() - began
        self.waits[what] = max(self.waits[what], took)
        if took > within_s:
            self.wrong.append(f"day {day}: {what}: after {took:.1f} s")

    def _week(self, day: int) -> None:
        """An upload, a key made and a key deleted; those before are deleted."""
        with self._box.rest() as rest:
            key = expect(rest.post("/api-keys/", json={"name": f"key-{day}"}), "making a key", 201).json()["key"]
            self._soon(day, "new key accepted", self._within_s, lambda: self._admitted(key))
            if self._key is not None:
                name, deleted = self._key
                expect(rest.delete(f"/api-keys/{name}/"), "deleting a key", 204)
                self._soon(day, "deleted key refused", self._within_s, lambda: not self._admitted(deleted))
            self._key = f"key-{day}", key
            if self._uploaded is not None:
                path = f"/applications/{APPLICATION}/variants/{self._uploaded}/"
                expect(rest.delete(path, params={"drain": "true"}), "deleting a variant", 202, 204)
            self._uploaded = f"v{day}"
            model = tiny(self._folder, self._uploaded, seed=day)
            upload_variant(rest, APPLICATION, Variant(self._uploaded, model, 90.0))

    def _admitted(self, key: str) -> bool:
        headers = {"Authorization": f"Bearer {key}"}
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1.0] * 4}]}
        url = f"{self._box.http}/v2/models/{APPLICATION}/infer"
        return httpx2.post(url, json=body, headers=headers, timeout=30).status_code == 200

    def _look(self) -> None:
        """Add what does not hold at the end to :attr:`wrong`."""
        with self._box.rest() as rest:
            for kind in ("node", "gateway"):
                log = expect(rest.get("/audit/", params={"kind": kind}), "reading the log", 200).json()
                for each in log["results"]:
                    if each["action"] in ("refused a certificate", "certificate ended"):
                        self.wrong.append(f"{each['ref']}: {each['action']}: {each['after']}")
        renewed = min(map(len, self.certificates.values()), default=0)
        if self.days > RENEWED_DAYS and renewed < self.days // RENEWED_DAYS:
            self.wrong.append(f"certificates were not renewed: {dict(self.certificates)}")

    def page(self) -> str:
        waits = "; ".join(f"{what}: {took:.1f} s" for what, took in self.waits.items())
        certificates = "; ".join(f"{name}: {len(ends)}" for name, ends in sorted(self.certificates.items()))
        parts = [
            f"{self.days} days of {self.seconds:g} s; {self.sent} queries, {self.failed} failed; slowest "
            f"{self.slowest_s:.2f} s. {self.plans} plans. Longest until at every member: {waits}. Certificates at "
            f"days' ends: {certificates}.",
            "**does not hold**:\n\n" + "\n".join(f"- {line}" for line in self.wrong) if self.wrong else "holds",
        ]
        return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks year", description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=365, choices=range(8, 3651), metavar="8..3650", help="default: 365")
    parser.add_argument("--seconds", type=between(1.0, 600.0), default=10.0, help="for each day (default: 10)")
    parser.add_argument(
        "--within",
        type=between(1.0, 600.0),
        default=5.0,
        help="seconds until plans and keys must be at every member (default: 5)",
    )
    given = parser.parse_args(arguments)
    print(heading("A year in an hour", __doc__), flush=True)
    with tempfile.TemporaryDirectory(prefix="nereus-y-") as folder:
        year = Year(Path(folder), given.days, given.seconds, given.within)
        year.run()
    print(year.page())
    return 1 if year.wrong else 0
