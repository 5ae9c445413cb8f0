"""Records plans, members' versions, counters and demand while a row runs."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import httpx2

from appliance.demo.rest import expect
from benchmarks.watch import Sampling, may_fail

from .history import Arrived, Event, Follows, Mark, Planned
from .site import Site

#: seconds between two samples
MEMBERS_EVERY_S, CONTROL_EVERY_S = 0.2, 0.5
GATEWAY_STREAM = "nereus:gateway_seconds"
#: plans before the first sample that may still be in force
EARLIER = 3


class Plans:
    def __init__(self, rest: Callable[[], AbstractContextManager[httpx2.Client]]) -> None:
        self._rest = rest
        self.by_version: dict[int, Planned] = {}

    def new(self) -> list[Planned]:
        """Those since the last call. Raises httpx2.HTTPError, RestError."""
        with self._rest() as rest:
            answer = expect(rest.get("/plans/", timeout=10), "reading plans", 200).json()
            listed = sorted(plan["version"] for plan in answer["results"])
            oldest = min(self.by_version, default=0)
            wanted = [one for one in listed if one >= oldest] if self.by_version else listed[-EARLIER:]
            found = [_read(rest, version) for version in wanted if version not in self.by_version]
        self.by_version |= {plan.version: plan for plan in found}
        return found

    def again(self) -> list[Planned]:
        """The latest plans as they are now: a version has one content."""
        with self._rest() as rest:
            return [_read(rest, version) for version in sorted(self.by_version)[-5:]]

    def newest(self) -> Planned | None:
        return self.by_version[max(self.by_version)] if self.by_version else None


class Observer:
    """Samples in threads; ``events`` are in the order in which they were found."""

    def __init__(self, site: Site):
        self._site = site
        self.plans = Plans(site.rest)
        self._stream = "0"
        self.events: list[Event] = []
        control = [(self._new_plans, CONTROL_EVERY_S), (self._demand, CONTROL_EVERY_S)]
        self._sampling = Sampling([(self._members, MEMBERS_EVERY_S), *control])

    def __enter__(self) -> Observer:
        # Begin with a sample of each, so that earlier counts are left out.
        with may_fail("the first entry of the stream"):
            self._stream = self._site.redis.xrevrange(GATEWAY_STREAM, count=1)[0][0]
        self._once(self._members, self._new_plans)
        self._sampling.start()
        return self

    def __exit__(self, *_error) -> None:
        self._sampling.stop()
        # Counters lag behind answers.
        time.sleep(MEMBERS_EVERY_S)
        self._once(self._members, self._new_plans, self._demand, lambda: self.events.extend(self.plans.again()))

    @staticmethod
    def _once(*samples: Callable[[], None]) -> None:
        for sample in samples:
            with may_fail("a sample"):
                sample()

    def mark(self, name: str) -> float:
        at = time.monotonic()
        self.events.append(Mark(name, at))
        return at

    def _members(self) -> None:
        for member, version in self._site.versions().items():
            self.events.append(Follows(member, version, time.monotonic()))
        self.events += self._site.counters()

    def _new_plans(self) -> None:
        self.events += self.plans.new()

    def _demand(self) -> None:
        for entry, fields in self._site.redis.xrange(GATEWAY_STREAM, min=f"({self._stream}"):
            second = json.loads(fields["d"])
            queries = {name: counts["arrived"] for name, counts in second["applications"].items()}
            self.events.append(Arrived(entry, second["gateway"], queries))
            self._stream = entry


def _read(rest: httpx2.Client, version: int) -> Planned:
    plan: dict[str, Any] = expect(rest.get(f"/plans/{version}/", timeout=10), "reading a plan", 200).json()
    wire = plan["wire"]
    residents = [
        (resident["variant"], device["device"])
        for device in wire["devices"]
        for resident in (*device["residents"], *device["relief"])
    ]
    made = datetime.fromisoformat(plan["created"]).timestamp()
    return Planned(
        version=plan["version"],
        at=time.monotonic() - (time.time() - made),
        digest=hashlib.sha256(json.dumps(wire, sort_keys=True).encode()).hexdigest()[:16],
        allowed=tuple((variant["application"], variant["name"], device) for variant, device in residents),
        accuracy={f"{variant['application']}/{variant['name']}": variant["accuracy"] for variant, _ in residents},
    )
