"""Watches a cluster while a row runs.

It records plans, which plan each gateway follows, and which devices each core has.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from typing import NamedTuple

import httpx2

from appliance.demo.rest import RestError
from benchmarks.faults.history import Event, Follows
from benchmarks.faults.observer import Plans
from benchmarks.watch import Sampling

from .boxes import HTTP_PORT, Box, Cluster

#: seconds between two samples
GATEWAYS_EVERY_S, PLANS_EVERY_S = 0.2, 0.7
#: Seconds that two samples of different gateways may be apart and still contradict each other.
TOGETHER_S = 0.1


class Seen(NamedTuple):
    """The core that a front uses, as the front reports it.

    Attributes:
        at: seconds of the steady clock.
        core: its name.
        devices: those that this core has.
    """

    at: float
    core: str
    devices: frozenset[str]


class Watch:
    """Samples in threads until it ends; a context manager.

    Attributes:
        events: for the checker.
        seen: by gateway.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.plans = Plans(cluster.rest)
        self.events: list[Event] = []
        self.seen: dict[str, list[Seen]] = {gateway.name: [] for gateway in cluster.gateways}
        samples: list[tuple[Callable[[], None], float]] = [
            (lambda gateway=gateway: self._gateway(gateway), GATEWAYS_EVERY_S) for gateway in cluster.gateways
        ]
        samples.append((self._new_plans, PLANS_EVERY_S))
        self._sampling = Sampling(samples)

    def __enter__(self) -> Watch:
        self._new_plans()
        self._sampling.start()
        return self

    def __exit__(self, *_error) -> None:
        self._sampling.stop()
        # Without these, answers that only a plan of the last moment allows are found wrong.
        with contextlib.suppress(RestError, httpx2.HTTPError):
            self._new_plans()

    def double_booked(self) -> set[str]:
        found: set[str] = set()
        names = list(self.seen)
        for place, one in enumerate(names):
            for other in names[place + 1 :]:
                found |= contradictions(self.seen[one], self.seen[other])
        return found

    def _gateway(self, gateway: Box) -> None:
        said = health(gateway)
        now = time.monotonic()
        self.events.append(Follows(gateway.name, said["plan"]["adopted"] or 0, now))
        self.seen[gateway.name].append(Seen(now, said["core"]["name"], frozenset(_connected(said))))

    def _new_plans(self) -> None:
        self.events += self.plans.new()


def health(gateway: Box) -> dict:
    """A gateway's health, as an operator on the network sees it.

    Raises:
        httpx2.HTTPError, ValueError: it does not answer.
    """
    return httpx2.get(f"http://{gateway.address}:{HTTP_PORT}/health", timeout=2, trust_env=False).json()


def connected(gateway: Box) -> set[str]:
    """Return the devices that the core of the gateway's queries has.

    Empty where the gateway does not answer.
    """
    try:
        return _connected(health(gateway))
    except (httpx2.HTTPError, ValueError):
        return set()


def ready(gateway: Box) -> bool:
    try:
        return health(gateway).get("status") == "ready"
    except (httpx2.HTTPError, ValueError):
        return False


def _connected(said: dict) -> set[str]:
    return {name for name, device in said.get("devices", {}).items() if device.get("connected")}


def contradictions(one: list[Seen], other: list[Seen]) -> set[str]:
    """Return devices that two cores had at once in two consecutive pairs of samples.

    The samples of a pair were taken within :data:`TOGETHER_S` of each other.
    """
    together = [a.devices & b.devices for a in one for b in other if abs(a.at - b.at) < TOGETHER_S and a.core != b.core]
    return {device for first, second in itertools.pairwise(together) for device in first & second}
