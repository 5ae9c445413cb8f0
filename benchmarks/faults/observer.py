"""Watches an appliance while a row runs.

It records plans, members' versions, counters and demand.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import httpx2

from benchmarks.watch import Sampling

from .history import Arrived, Event, Follows, Mark, Planned
from .site import Site

#: seconds between two samples
MEMBERS_EVERY_S, CONTROL_EVERY_S = 0.2, 0.5
GATEWAY_STREAM = "nereus:gateway_seconds"
#: plans before the first sample that may still be in force
EARLIER = 3


class Plans:
    """Plans as they are made, read by REST.

    Args:
        rest: makes a client; a context manager.
    """

    def __init__(self, rest: Callable[[], AbstractContextManager[httpx2.Client]]) -> None:
        self._rest = rest
        self.by_version: dict[int, Planned] = {}

    def new(self) -> list[Planned]:
        """Those since the last call. Raises httpx2.HTTPError."""
        with self._rest() as rest:

            def read(path: str) -> Any:
                return rest.get(path, timeout=10).raise_for_status().json()

            listed = sorted(plan["version"] for plan in read("/plans/")["results"])
            oldest = min(self.by_version, default=0)
            wanted = [one for one in listed if one >= oldest] if self.by_version else listed[-EARLIER:]
            found = [planned(read(f"/plans/{one}/")) for one in wanted if one not in self.by_version]
        self.by_version |= {plan.version: plan for plan in found}
        return found

    def newest(self) -> Planned | None:
        return self.by_version[max(self.by_version)] if self.by_version else None


class Observer:
    """Samples in threads until it ends; a context manager.

    Attributes:
        events: in the order in which they were found.
    """

    def __init__(self, site: Site):
        self._site = site
        self._lock = threading.Lock()
        self._plans = Plans(site.box.rest)
        self._stream = "0"
        self.events: list[Event] = []
        self._sampling = Sampling(
            [
                (self._members, MEMBERS_EVERY_S),
                (self._new_plans, CONTROL_EVERY_S),
                (self._demand, CONTROL_EVERY_S),
            ]
        )

    def __enter__(self) -> Observer:
        # Begin with a sample of each, so that earlier counts are left out.
        with contextlib.suppress(Exception):
            self._stream = self._site.redis.xrevrange(GATEWAY_STREAM, count=1)[0][0]
        for sample in (self._members, self._new_plans):
            with contextlib.suppress(Exception):
                sample()
        self._sampling.start()
        return self

    def __exit__(self, *_error) -> None:
        self._sampling.stop()
        # Counters lag behind answers.
        time.sleep(MEMBERS_EVERY_S)
        for sample in (self._members, self._new_plans, self._demand, self._same_plans):
            with contextlib.suppress(Exception):
                sample()

    def mark(self, name: str) -> float:
        """Record a moment; returns it."""
        at = time.monotonic()
        self._add(Mark(name, at))
        return at

    def _add(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)

    # --- samples ---

    def _members(self) -> None:
        for member, version in self._site.versions().items():
            self._add(Follows(member, version, time.monotonic()))
        for counted in self._site.counters():
            self._add(counted)

    def _new_plans(self) -> None:
        for plan in self._plans.new():
            self._add(plan)

    def _same_plans(self) -> None:
        with self._site.box.rest() as rest:
            for version in sorted(self._plans.by_version)[-5:]:
                answer = rest.get(f"/plans/{version}/", timeout=10)
                if answer.status_code == 200:
                    self._add(planned(answer.json()))

    def _demand(self) -> None:
        for entry, fields in self._site.redis.xrange(GATEWAY_STREAM, min=f"({self._stream}"):
            second = json.loads(fields["d"])
            queries = {name: counts["arrived"] for name, counts in second["applications"].items()}
            self._add(Arrived(entry, second["gateway"], queries))
            self._stream = entry


def planned(plan: dict[str, Any]) -> Planned:
    wire = plan["wire"]
    residents = [
        (resident["variant"], device["device"])
        for device in wire["devices"]
        for resident in (*device["residents"], *device["standby_residents"])
    ]
    made = datetime.fromisoformat(plan["created"]).timestamp()
    return Planned(
        version=plan["version"],
        at=time.monotonic() - (time.time() - made),
        digest=hashlib.sha256(json.dumps(wire, sort_keys=True).encode()).hexdigest()[:16],
        allowed=tuple((variant["application"], variant["name"], device) for variant, device in residents),
        accuracy={f"{variant['application']}/{variant['name']}": variant["accuracy"] for variant, _ in residents},
    )
