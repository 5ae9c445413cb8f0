"""``python -m tests.compiled.left_behind``: how many pieces of memory thousands of queries leave behind in the compiled
dispatcher and reader, printed as JSON, for one round after the other."""

from __future__ import annotations

import gc
import itertools
import json
import random
import sys

from workers import compiled

if not compiled.use():
    raise RuntimeError("not compiled")

from workers.batching.latency import LatencyModel
from workers.dispatch.dispatcher import Dispatcher
from workers.dispatch.menu import Menu, Option
from workers.protocol.specs import Signature, TensorSpec
from workers.protocol.v2 import V2Error
from workers.protocol.v2_repeated import Reader

QUERIES = 3000


class Query:
    def __init__(self, now: float, within: float, rows: int):
        self.arrived, self.deadline, self.rows, self.key, self.booking = now, now + within, rows, None, None


def dispatch() -> None:
    """Three devices with more than they can do: queries are granted, refused, withdrawn and booked again."""
    chance = random.Random(1)
    dispatcher = Dispatcher()
    dispatcher.set_applications({"app": (0.2, False)}, 0.0)
    for device in range(3):
        options = [Option(i, 70.0 + 10 * i, LatencyModel([(1, 0.01 * i), (8, 0.04 * i)]), 8) for i in (1, 2)]
        dispatcher.set_menus(device, {"app": Menu(options)}, 0.0)
        dispatcher.set_up(device, True, 0.0)
    now = 0.0
    for _ in range(QUERIES // 5):
        now += chance.expovariate(100.0)
        queries = [Query(now, chance.choice([0.05, 0.2]), chance.choice([1, 1, 2])) for _ in range(5)]
        dispatcher.submit("app", queries[0], now)
        dispatcher.submit_all([("app", query) for query in queries[1:]], now)
        dispatcher.withdraw(chance.choice(queries), now)
        dispatcher.wake(now)
        for batch in dispatcher.grants[:]:
            if chance.random() < 0.1:
                dispatcher.lost(batch.device.name, now)
                dispatcher.declined(batch.queries, now)
                dispatcher.set_up(batch.device.name, True, now)
            else:
                dispatcher.ended(batch, now, batch.option.seconds(batch.rows) * chance.uniform(0.9, 1.5))
        dispatcher.grants.clear()
        dispatcher.refused.clear()


def read() -> None:
    """Queries that are new, known, and wrong."""
    signature = Signature((TensorSpec("x", "FP32", (-1, 2)),), (TensorSpec("y", "FP32", (-1, 2)),))
    reader = Reader(signature, 8)
    for number in range(QUERIES // 10):
        for name, size in (("x", 8), ("x", 4), ("z", 8)):
            about = {"name": name, "shape": [1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}
            text = json.dumps({"id": str(number), "inputs": [about]}).encode()
            try:
                reader.parse(text + bytes(size), len(text))
            except V2Error:
                assert (name, size) != ("x", 8)


def main() -> None:
    held = []
    for _ in range(4):
        dispatch()
        read()
        gc.collect()
        held.append(sys.getallocatedblocks())
    # The first round fills what is kept on purpose.
    print(json.dumps([after - before for before, after in itertools.pairwise(held[1:])]))


if __name__ == "__main__":
    main()
