"""Routers that know the plan and nothing of queues: what the queue-aware one is compared with. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Container, Mapping, Sequence

from workers.batching.latency import LatencyModel


class Route:
    """A device in an application's routes, with its credit in the smooth weighted round robin."""

    __slots__ = ("credit", "device", "share")

    def __init__(self, device: str, share: float):
        self.device = device
        self.share = share
        self.credit = 0.0


class PlanOnlyRouter:
    """What the comparison routers share: routes, devices that are up, and no ear for queues."""

    def __init__(self) -> None:
        self._routes: dict[str, list[Route]] = {}
        self._usable: dict[str, list[Route]] = {}
        self._up: set[str] = set()

    def set_routes(self, routes: Mapping[str, Sequence[tuple[str, float]]]) -> None:
        """See :class:`QueryRouter`; devices with share 0 are left out, and an application whose routes did not change
        keeps its credits."""
        fresh = {}
        for name, shares in routes.items():
            shares = [(device, share) for device, share in shares if share > 0]
            old = self._routes.get(name, [])
            same = [(route.device, route.share) for route in old] == shares
            fresh[name] = old if same else [Route(device, share) for device, share in shares]
        self._routes = fresh
        self._look_again()

    def _look_again(self) -> None:
        """Picks are many, changes of what is up are few."""
        self._usable = {
            name: [route for route in routes if route.device in self._up] for name, routes in self._routes.items()
        }

    def pick(
        self,
        application: str,
        now: float,
        budget_s: float,
        rows: int = 1,
        exclude: Container[str] = (),
        allowed: Container[str] | None = None,
    ) -> str | None:
        """See :class:`QueryRouter`; ``now`` and ``budget_s`` do not matter here."""
        able = self._usable.get(application)
        if able and (exclude or allowed is not None):
            able = [r for r in able if r.device not in exclude and (allowed is None or r.device in allowed)]
        return self._choose(application, able, rows) if able else None

    def _choose(self, application: str, able: list[Route], rows: int) -> str:
        raise NotImplementedError

    def sent(self, device: str, application: str, rows: int, now: float) -> None:
        """Queues do not matter here."""

    def done(
        self,
        device: str,
        application: str,
        rows: int,
        now: float,
        served: bool,
        queue_s: float = 0.0,
        run_s: float = 0.0,
        batch_rows: int = 0,
    ) -> None:
        """Queues do not matter here."""

    def state(self, device: str, queued: Mapping[str, int], busy_s: float, draining: bool, now: float) -> None:
        """Queues do not matter here."""

    def service(self, device: str, application: str, latency: LatencyModel, max_batch: int) -> None:
        """Batch times do not matter here."""

    def down(self, device: str) -> None:
        self._up.discard(device)
        self._look_again()

    def up(self, device: str) -> None:
        self._up.add(device)
        self._look_again()


class SharesRouter(PlanOnlyRouter):
    """The plan's shares by smooth weighted round robin, without a look at queues: each query gives every device credit
    for its share, the one with most credit gets the query and pays for it."""

    def _choose(self, application: str, able: list[Route], rows: int) -> str:
        best, most, total = able[0], -math.inf, 0.0
        for route in able:
            share = route.share
            credit = route.credit = route.credit + share * rows
            total += share
            if credit > most:
                best, most = route, credit
        best.credit -= total * rows
        return best.device


class UniformRouter(PlanOnlyRouter):
    """Any of the application's devices, each as likely: the ablation without query assignment of Proteus, Section 6.1,
    and what its published simulator does."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._random = random.Random(f"{seed}:routing")

    def _choose(self, application: str, able: list[Route], rows: int) -> str:
        return able[int(self._random.random() * len(able))].device


class RoundRobinRouter(PlanOnlyRouter):
    """The application's devices in turn, whatever their shares."""

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[str, int] = {}

    def _choose(self, application: str, able: list[Route], rows: int) -> str:
        turn = self._next.get(application, 0)
        self._next[application] = turn + 1
        return able[turn % len(able)].device
