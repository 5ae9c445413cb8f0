"""What it costs that several gateways book on the same devices: ``python -m benchmarks.gateways``.

Simulated are one to four gateways, each of which sees its share of an open-loop Poisson load. The load is a part of
what all devices can do with the quickest variant in its best batch. *violations* are queries that were late or refused,
*accuracy* is the mean over those in time.

*late-binding*: each gateway's dispatcher holds its own queries, and executors run granted batches in order of arrival.
*least-completion*: each gateway's router binds a query as it comes, and the device's batch policy decides among all
that wait there, by rates that serve the load. Dispatchers, routers and batch policies are the live ones.

Gateways know of each other's work what executors tell. *waiting*, as they do: ten times a second while rows wait.
*turns*: moreover, whenever a run begins or ends, the gateways whose run it is not. *changes*: the same whenever a batch
arrives, too.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence

from .made import run
from .run import EARLY, LATE, World

ONE = ((90.0, 0.005, 0.005),)
TWO = ((95.0, 0.020, 0.020), (85.0, 0.005, 0.005))
WORLDS = (
    World("one variant, 2 devices", ONE, 2),
    World("two variants, 2 devices", TWO, 2),
    World("two variants, 8 devices", TWO, 8),
)


def measure(loads: Sequence[float], counts: Sequence[int], seconds: float, seeds: int) -> Iterator[str]:
    """Rows of a Markdown table; medians over ``seeds`` runs."""
    yield "| world | load | gateways | routing | told | violations % | late % | accuracy | states/s |"
    yield "|---|---:|---:|---|---|---:|---:|---:|---:|"
    for world in WORLDS:
        for load in loads:
            for count in counts:
                for stack in (*(LATE if count > 1 else LATE[:1]), EARLY):
                    runs = [run(world, count, load, stack, seconds, 100 * seed).go() for seed in range(seeds)]
                    how = "least-completion | waiting" if stack == EARLY else f"late-binding | {stack}"
                    yield (
                        f"| {world.name} | {load:.0%} | {count} | {how} "
                        f"| {statistics.median(one.violations for one in runs):.2f} "
                        f"| {statistics.median(100 * one.late / one.sent for one in runs):.2f} "
                        f"| {statistics.median(one.accuracy for one in runs):.2f} "
                        f"| {statistics.median(one.told for one in runs) / seconds:.0f} |"
                    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loads", type=float, nargs="+", default=[0.7, 0.8, 0.9], help="parts of the capacity")
    parser.add_argument("--gateways", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=30.0, help="of each simulated run")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for line in measure(options.loads, options.gateways, options.seconds, options.seeds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
