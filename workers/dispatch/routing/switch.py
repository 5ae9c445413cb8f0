"""One router that can become another while queries are under way. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from workers.batching.latency import LatencyModel

from . import DEFAULT, create

Routes = Mapping[str, Sequence[tuple[str, float]]]


class SwitchingRouter:
    """A :class:`~.router.QueryRouter` that works by the router of a name, which may change at any time.

    It keeps what a router must know to take over: routes, which devices are up, how they serve, their latest reports,
    and the rows under way. A new router begins with all of it, so that the answers to queries that its predecessor
    sent settle what was counted for them, and nothing else.
    """

    def __init__(self, name: str = DEFAULT, seed: int = 0):
        self._seed = seed
        self._routes: Routes = {}
        self._up: set[str] = set()
        self._service: dict[tuple[str, str], tuple[LatencyModel, int]] = {}
        self._states: dict[str, tuple[Mapping[str, int], float, bool, float]] = {}
        self._under_way: dict[tuple[str, str], int] = {}
        self.name = name
        self._router = create(name, seed)

    def switch(self, name: str, now: float) -> bool:
        """Work by the router ``name`` from now on; False where that is so already. Credits and what the old router had
        learned of devices' pace start anew.

        Raises:
            UnknownRouting: no such router; the one at work stays.
        """
        if name == self.name:
            return False
        router = create(name, self._seed)
        for device in sorted(self._up):
            router.up(device)
        for (device, application), (latency, max_batch) in self._service.items():
            router.service(device, application, latency, max_batch)
        router.set_routes(self._routes)
        for (device, application), rows in self._under_way.items():
            router.sent(device, application, rows, now)
        for device, (queued, busy_s, draining, at) in self._states.items():
            router.state(device, queued, busy_s, draining, at)
        self.name, self._router = name, router
        return True

    # --- a router ----------------------------------------------------------------------------------------------------

    def set_routes(self, routes: Routes) -> None:
        self._router.set_routes(routes)
        self._routes = routes
        # Devices come and go over months: one that is down, unrouted and owes nothing is forgotten.
        kept = self._up | {device for shares in routes.values() for device, _ in shares}
        kept |= {device for device, _ in self._under_way}
        self._service = {key: service for key, service in self._service.items() if key[0] in kept}

    def pick(
        self,
        application: str,
        now: float,
        budget_s: float,
        rows: int = 1,
        exclude: Collection[str] = (),
        allowed: Collection[str] | None = None,
    ) -> str | None:
        return self._router.pick(application, now, budget_s, rows, exclude, allowed)

    def sent(self, device: str, application: str, rows: int, now: float) -> None:
        key = (device, application)
        self._under_way[key] = self._under_way.get(key, 0) + rows
        self._router.sent(device, application, rows, now)

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
        key = (device, application)
        left = self._under_way.get(key, 0) - rows
        if left > 0:
            self._under_way[key] = left
        else:
            self._under_way.pop(key, None)
        self._router.done(device, application, rows, now, served, queue_s, run_s, batch_rows)

    def state(self, device: str, queued: Mapping[str, int], busy_s: float, draining: bool, now: float) -> None:
        self._router.state(device, queued, busy_s, draining, now)
        self._states[device] = (queued, busy_s, draining, now)

    def service(self, device: str, application: str, latency: LatencyModel, max_batch: int) -> None:
        self._router.service(device, application, latency, max_batch)
        self._service[device, application] = (latency, max_batch)

    def up(self, device: str) -> None:
        self._up.add(device)
        self._router.up(device)

    def down(self, device: str) -> None:
        self._up.discard(device)
        self._states.pop(device, None)
        self._router.down(device)
