"""Small workers, and a simulation of one that knows nothing of states or intervals."""

from __future__ import annotations

import random
from collections import deque

from scheduler.stacks.ramsis.solve import Policy
from scheduler.stacks.ramsis.worker import Worker, WorkerVariant, worker


def linear(name: str, accuracy: float, base_ms: float, row_ms: float, largest: int = 8) -> WorkerVariant:
    """A variant whose batches take a base and the same for each row."""
    return WorkerVariant(name, accuracy, tuple((base_ms + row_ms * rows) / 1e3 for rows in range(1, largest + 1)))


def three(slo_s: float = 0.1, lengths: int | None = 50, queue: int = 8) -> Worker:
    """A worker with a fast, a middling and a slow variant."""
    variants = [linear("fast", 60, 5, 4), linear("middle", 75, 12, 8), linear("slow", 90, 25, 16)]
    return worker(slo_s, variants, lengths, queue)


def observed(policy: Policy, arrivals: int, seed: int) -> tuple[float, float]:
    """(accuracy of queries in time, share of late ones) of a worker that gets every K-th Poisson arrival."""
    made, stream = policy.worker, policy.stream
    source = random.Random(seed)
    times, now = [], 0.0
    for _ in range(arrivals):
        now += source.gammavariate(stream.phases, 1 / stream.rate)
        times.append(now)
    seconds = made.seconds()
    queue: deque[float] = deque()
    coming = deque(times)
    free_at, kept, accuracy = 0.0, 0, 0.0
    while queue or coming:
        if not queue:
            free_at = max(free_at, coming[0])
        while coming and coming[0] <= free_at:
            queue.append(coming.popleft())
        waiting = min(len(queue), made.queue)
        slack = queue[0] + made.slo_s - free_at
        place = max((i for i, least in enumerate(made.slacks) if least <= slack + 1e-12), default=0)
        variant = policy.choice[waiting, place]
        batch = [queue.popleft() for _ in range(waiting)]
        free_at += seconds[variant, waiting]
        in_time = [arrived for arrived in batch if free_at <= arrived + made.slo_s + 1e-12]
        kept += len(in_time)
        accuracy += len(in_time) * made.variants[variant].accuracy
    return accuracy / kept, 1 - kept / arrivals
