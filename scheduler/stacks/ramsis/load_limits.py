"""The baselines of RAMSIS' Section 7: one variant for all queries. Pure.

They batch by Clipper's rule and route to the shortest queue, as its Appendix I does. Each has for a limit the most load
that the variant carries on all workers. Jellyfish+ asks for throughput in batches within half of the SLO,
ModelSwitching for a 99th percentile of response times within the SLO, which it measures beforehand: here in a
simulation of the workers, with a fixed seed.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection, Hashable
from functools import lru_cache
from heapq import heappop, heappush

import msgspec

from workers.dispatch.policy_tables import LoadPolicy, constant
from workers.dispatch.published.clipper import ClipperPolicy
from workers.dispatch.published.papers.ramsis import in_order, named_place
from workers.dispatch.published.policy import BatchPolicy, Decision, QueueView
from workers.dispatch.published.routing import Router

from .load_policies import MOST_LOADS, InTime
from .worker import Worker

#: loads are tried in steps of this part of the capacity; the paper has 40 steps
STEPS = 40
#: workers of one simulation at most: of more, each would get too few queries to show an overload
MOST_WORKERS = 64.0
#: queries of one simulation, of which the first are not counted
QUERIES, WARM = 6_000, 1_000
QUANTILE = 0.99
#: Clipper's batch limit: rows more after a full batch in time, and the factor after a late one
INCREASE, BACKOFF = 1, 0.9


def jellyfish(worker: Worker, workers: float) -> tuple[LoadPolicy, ...]:
    """The most load of each useful variant, by throughput."""
    limits = []
    for variant in worker.variants:
        within = [(rows / s) for rows, s in enumerate(variant.seconds, 1) if s <= worker.slo_s / 2]
        limits.append(workers * max(within, default=0.0))
    return _policies(worker, limits)


def model_switching(worker: Worker, workers: float, in_time: InTime = lambda: True) -> tuple[LoadPolicy, ...]:
    """The most load of each variant that carries more than any more accurate one.

    Args:
        in_time: asked before each variant is measured but the first, the fastest.
    """
    simulated = min(workers, MOST_WORKERS)
    limits = []
    for place in range(len(worker.variants)):
        if limits and not in_time():
            break
        limits.append(most_load(worker, place, simulated) * workers / simulated)
    return _policies(worker, limits)


def _policies(worker: Worker, limits: list[float]) -> tuple[LoadPolicy, ...]:
    """Return the useful variants by the load that they carry.

    Those that carry no more than a more accurate one are left out. Where there are more than a plan may have, it is
    every second, third or so: the loads of those left out have the next faster one.
    """
    order = sorted(range(len(limits)), key=lambda place: (-worker.variants[place].accuracy, -limits[place]))
    kept: list[LoadPolicy] = []
    for place in order:
        if limits[place] > (kept[-1].load if kept else 0.0):
            kept.append(constant(limits[place], place))
    every = -(-len(kept) // MOST_LOADS) or 1
    return tuple(kept[(len(kept) - 1) % every :: every])


@lru_cache(maxsize=1024)
def most_load(worker: Worker, place: int, workers: float) -> float:
    """At which 99% of its queries are in time, in :data:`STEPS`; 0: at none."""
    count = max(1, int(workers))
    seconds = worker.variants[place].seconds
    capacity = worker.capacity() * workers
    low, high = 0, STEPS
    # The quantile rises with the load, apart from chance: bisection.
    while low < high:
        middle = (low + high + 1) // 2
        if response_s(seconds, capacity * middle / STEPS, count, worker.slo_s) <= worker.slo_s:
            low = middle
        else:
            high = middle - 1
    return capacity * low / STEPS


def response_s(seconds: tuple[float, ...], load: float, workers: int, slo_s: float) -> float:
    """Return the simulated 99th percentile of response times, seconds.

    Poisson arrivals join the shortest queue, and workers take batches by Clipper's rule. A backlog that only grows
    counts as 4 * SLO.
    """
    source, now = random.Random(0), 0.0
    queues: list[deque[float]] = [deque() for _ in range(workers)]
    here, limit, busy = [0] * workers, [1.0] * workers, [False] * workers
    ends: list[tuple[float, int, int]] = []
    responses: list[float] = []
    largest = len(seconds)

    def begin(server: int, at: float) -> None:
        rows = min(len(queues[server]), int(limit[server]), largest)
        busy[server] = rows > 0
        if rows:
            heappush(ends, (at + seconds[rows - 1], server, rows))

    def end() -> None:
        at, server, rows = heappop(ends)
        batch = [at - queues[server].popleft() for _ in range(rows)]
        responses.extend(batch)
        here[server] -= rows
        if batch[0] > slo_s:
            limit[server] = max(1.0, limit[server] * BACKOFF)
        elif rows >= int(limit[server]):
            limit[server] = min(largest, limit[server] + INCREASE)
        begin(server, at)

    for number in range(QUERIES):
        now += source.expovariate(load)
        while ends and ends[0][0] <= now:
            end()
        shortest = min(here)
        first = number % workers
        server = next(place % workers for place in range(first, first + workers) if here[place % workers] == shortest)
        queues[server].append(now)
        here[server] += 1
        if not busy[server]:
            begin(server, now)
        # A backlog that only grows needs no more queries.
        if shortest * seconds[-1] / largest > 4 * slo_s:
            return 4 * slo_s
    while ends:
        end()
    return sorted(responses[WARM:])[int(QUANTILE * (QUERIES - WARM))]


class ByLoadPolicy(BatchPolicy):
    """Runs one variant for all queries of a load: Jellyfish+ and ModelSwitching.

    Batches are Clipper's adaptive ones. Above all loads that the plan has a variant for, the fastest one runs.
    """

    def __init__(self) -> None:
        self._batching = ClipperPolicy()

    def decide(self, view: QueueView) -> Decision:
        candidates = in_order(view)
        chosen = candidates[named_place(view, candidates, 1, 0.0)]
        return self._batching.decide(msgspec.structs.replace(view, candidates=[chosen]))

    def observe(self, rows: int, late: int) -> None:
        self._batching.observe(rows, late)


class ShortestQueueRouter(Router):
    """Chooses the device with the fewest rows.

    Where the next one by the plan's shares is among several such devices, it is chosen.
    """

    def pick(
        self,
        application: str,
        rows: int,
        able: Collection[Hashable],
        budget_s: float,
        expected_s: Callable[[Hashable], float],
        queued: Callable[[Hashable], int],
    ) -> Hashable | None:
        following = super().pick(application, rows, able, budget_s, expected_s, queued)
        if following is None:
            return None
        chosen, fewest = following, queued(following)
        for device, _ in self._orders[application][0]:
            if not fewest:
                break
            if device in able and (rows_there := queued(device)) < fewest:
                chosen, fewest = device, rows_there
        return chosen
