"""Routers that know the plan and nothing of queues: what the queue-aware one is compared with. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from workers.batching.latency import LatencyModel

from .pools import Pools
from .shares import Round

Shares = Sequence[tuple[str, float]]


class Turns(Protocol):
    """In which order an application's devices get its queries; :class:`~.shares.Round` is one."""

    def attend(self, names: Sequence[str]) -> None:
        """Who can be chosen from now on."""

    def take(self, rows: int, exclude: Collection[str]) -> str | None:
        """The next one; None: there is none."""


class _Pool:
    """The devices that will do for some of an application's queries."""

    def __init__(self, shares: Shares, turns: Turns):
        self._names = [name for name, _ in shares]
        self._changes = -1
        self._turns = turns

    def take(self, up: Collection[str], changes: int, rows: int, exclude: Collection[str]) -> str | None:
        # Picks are many, changes of what is up are few.
        if changes != self._changes:
            self._changes = changes
            self._turns.attend([name for name in self._names if name in up])
        return self._turns.take(rows, exclude)


class PlanOnlyRouter:
    """What the comparison routers share: routes, devices that are up, and no ear for queues. Queries that insist on the
    same devices take turns among themselves."""

    def __init__(self) -> None:
        self._shares: dict[str, Shares] = {}
        self._pools: dict[str, Pools[_Pool]] = {}
        self._up: set[str] = set()
        self._changes = 0

    def set_routes(self, routes: Mapping[str, Shares]) -> None:
        """See :class:`QueryRouter`; devices with share 0 are left out, and an application whose routes did not change
        goes on with its turns."""
        old_shares, old_pools = self._shares, self._pools
        self._shares = {
            name: [(device, share) for device, share in shares if share > 0] for name, shares in routes.items()
        }
        self._pools = {
            name: old_pools[name] if old_shares.get(name) == shares else self._fresh(shares)
            for name, shares in self._shares.items()
        }

    def _fresh(self, shares: Shares) -> Pools[_Pool]:
        def pool(allowed: Collection[str] | None) -> _Pool:
            able = [(device, share) for device, share in shares if allowed is None or device in allowed]
            return _Pool(able, self._turns(able))

        return Pools(pool)

    def _turns(self, shares: Shares) -> Turns:
        raise NotImplementedError

    def pick(
        self,
        application: str,
        now: float,
        budget_s: float,
        rows: int = 1,
        exclude: Collection[str] = (),
        allowed: Collection[str] | None = None,
    ) -> str | None:
        """See :class:`QueryRouter`; ``now`` and ``budget_s`` do not matter here."""
        pools = self._pools.get(application)
        return pools.of(allowed).take(self._up, self._changes, max(rows, 1), exclude) if pools is not None else None

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
        """See :class:`QueryRouter`."""
        self._up.discard(device)
        self._changes += 1

    def up(self, device: str) -> None:
        """See :class:`QueryRouter`."""
        self._up.add(device)
        self._changes += 1


class SharesRouter(PlanOnlyRouter):
    """The plan's shares (:class:`~.shares.Round`), without a look at queues."""

    def _turns(self, shares: Shares) -> Round:
        return Round(shares)
