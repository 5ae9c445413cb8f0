"""Far beyond capacity a device goes on to answer as much as it can.

That holds however much or little batches gain on it.

The dispatcher alone, under a virtual clock, with a device that does exactly as its profile says: what is lost here is
lost by deciding. Or with one whose speed wavers, as those do that share their machine: what is refused then is to be
refused at once all the same.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from workers.dispatch.binding import QueryClass, ServiceTerms
from workers.dispatch.late.binding import LateBinding
from workers.dispatch.latency import LatencyModel
from workers.dispatch.options import OptionSet, ServingOption

SLO_S, WAY_S, SECONDS = 0.2, 0.001, 2.5
SIZES = (1, 2, 4, 8, 16)


class Query:
    rows, key, query_class = 1, None, QueryClass("app")

    def __init__(self, now: float):
        self.arrived, self.deadline, self.reservation = now, now + SLO_S, None


def profile(batch_s: float, row_s: float) -> dict[int, float]:
    return {rows: batch_s + rows * row_s for rows in SIZES}


#: (accuracy, profile) of variants, the least accurate last
DEVICES = {
    "batches gain nothing": [(90, profile(0.0006, 0.02)), (84, profile(0.0006, 0.0085)), (76, profile(0.0006, 0.0034))],
    "batches gain much": [(90, profile(0.024, 0.008)), (84, profile(0.012, 0.003)), (76, profile(0.006, 0.001))],
    "batches are all": [(90, profile(0.016, 0.003)), (84, profile(0.008, 0.001)), (76, profile(0.004, 0.0003))],
}


def capacity(kind: str) -> float:
    """Items/s of the least accurate variant in full batches, one after the other."""
    return SIZES[-1] / DEVICES[kind][-1][1][SIZES[-1]]


@dataclass
class Served:
    """The outcomes of a load's queries.

    Attributes:
        offered: queries a second that arrived.
        goodput: queries a second that were answered in time.
        refused: seconds after which each refusal came.
    """

    offered: float
    goodput: float
    refused: list[float] = field(default_factory=list)

    def late_refusals(self) -> float:
        return sum(after > SLO_S / 4 for after in self.refused) / len(self.refused)


def steady(start: float, run_s: float) -> float:
    return run_s


def serve(kind: str, load: float, takes: Callable[[float, float], float] = steady, seconds: float = SECONDS) -> Served:
    """Serve a Poisson load of ``load`` times the capacity.

    The first SLO, in which queues fill, is left out of the figures.

    Args:
        takes: (start, seconds of the profile) -> seconds that a batch takes.
    """
    binding, draw = LateBinding(), random.Random(1)
    refused: list[float] = []
    options = [
        ServingOption(accuracy, accuracy, LatencyModel(list(of.items())), SIZES[-1]) for accuracy, of in DEVICES[kind]
    ]
    binding.configured({"app": ServiceTerms(SLO_S)}, 0.0)
    binding.rtt_changed("device", WAY_S)
    binding.offered({"device": {QueryClass("app"): OptionSet(options)}}, 0.0)
    wake_at = binding.device_changed("device", 0.0, up=True).wake_at
    rate = load * capacity(kind)
    arrival, free_at, served, arrived = draw.expovariate(rate), 0.0, 0, 0
    running: list[tuple[float, int, object, float]] = []
    number = itertools.count()
    now = 0.0
    while now < seconds:
        ended = running[0][0] if running else math.inf
        now = min(arrival, ended, wake_at)
        if now == ended:
            _, _, batch, run_s = heapq.heappop(running)
            if now >= SLO_S:
                served += sum(now <= query.deadline + 1e-9 for query in batch.queries)
            decisions = binding.finished(batch, now, run_s)
        elif now == arrival:
            arrived += now >= SLO_S
            decisions = binding.arrived([Query(now)], now)
            arrival += draw.expovariate(rate)
        else:
            decisions = binding.wake(now)
        wake_at = decisions.wake_at
        for batch in decisions.dispatches:
            start = max(free_at, now + WAY_S / 2)
            run_s = takes(start, batch.option.seconds(batch.rows))
            free_at = start + run_s
            heapq.heappush(running, (free_at + WAY_S / 2, next(number), batch, run_s))
        if now >= SLO_S:
            refused += [now - query.arrived for query in decisions.refusals]
    return Served(arrived / (seconds - SLO_S), served / (seconds - SLO_S), refused)


@pytest.mark.parametrize("kind", DEVICES)
def test_at_three_times_capacity_goodput_is_that_of_the_least_accurate_variant(kind):
    found = serve(kind, 3.0)
    assert found.goodput >= 0.95 * capacity(kind)
    assert not found.late_refusals()


@pytest.mark.parametrize("load", [1.0, 1.2])
def test_near_capacity_little_is_lost_where_batches_gain_nothing(load):
    found = serve("batches gain nothing", load)
    assert found.goodput >= 0.92 * min(found.offered, capacity("batches gain nothing"))


@pytest.mark.parametrize("kind", DEVICES)
def test_what_can_be_answered_is(kind):
    found = serve(kind, 0.7)
    # What is under way at the end is neither.
    assert found.goodput >= 0.95 * found.offered


def wavering(deviation: float, seconds: float) -> Callable[[float], float]:
    """Make a factor of run times over time: 1 with Ornstein-Uhlenbeck noise of such a time scale."""
    draw, stray, stays, strays = random.Random(3), 0.0, math.exp(-0.01 / seconds), []
    for _ in range(1000):
        stray = stays * stray + math.sqrt(1 - stays * stays) * draw.gauss(0.0, deviation)
        strays.append(max(0.5, 1.0 + stray))
    return lambda now: strays[int(now * 100)]


@pytest.mark.parametrize(("deviation", "seconds"), [(0.05, 0.02), (0.1, 0.05), (0.15, 0.3), (0.2, 1.0)])
@pytest.mark.parametrize("kind", ["batches gain nothing", "batches gain much"])
def test_where_a_device_wavers_queries_are_refused_at_once_all_the_same(kind, deviation, seconds):
    slower, lasting = wavering(deviation, seconds), 5.0
    found = serve(kind, 3.0, lambda start, run_s: run_s * slower(start), lasting)
    assert found.late_refusals() < 0.01
    mean = sum(slower(i / 100) for i in range(int(lasting * 100))) / (lasting * 100)
    assert found.goodput >= 0.92 * capacity(kind) / mean


def stalling(every_s: float, lasts_s: float, seconds: float) -> list[tuple[float, float]]:
    """Beginnings and ends of moments in which a device stands still."""
    draw, stalls, now = random.Random(8), [], 0.0
    while now < seconds:
        now += draw.expovariate(1 / every_s)
        stalls.append((now, now + draw.uniform(0.5, 1.5) * lasts_s))
        now = stalls[-1][1]
    return stalls


@pytest.mark.parametrize(("every_s", "lasts_s", "least"), [(0.5, 0.05, 0.88), (0.5, 0.1, 0.82)])
@pytest.mark.parametrize("load", [1.2, 3.0])
@pytest.mark.parametrize("kind", DEVICES)
def test_a_device_that_stalls_now_and_then_spends_the_rest_of_its_time_on_quick_runs(
    kind, load, every_s, lasts_s, least
):
    # Each time its schedule is given up, it has nothing to do for a moment in the midst of overload.
    lasting = 8.0
    stalls = stalling(every_s, lasts_s, lasting)

    def takes(start: float, run_s: float) -> float:
        end = start + run_s
        for begin, over in stalls:
            if begin < end and over > start:
                end += over - max(begin, start)
        return end - start

    found = serve(kind, load, takes, lasting)
    stalled = sum(over - begin for begin, over in stalls) / lasting
    assert found.goodput >= least * capacity(kind) * (1 - stalled)
