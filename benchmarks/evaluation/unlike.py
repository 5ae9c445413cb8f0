"""A world of unlike GPUs: four types, and one application that bursts.

Loads take a second, and few variants are resident.

Two types are the published ones; the other two have run times between and above theirs. The load is what leaves the
fluid reference a few points below the most accurate variants. It begins at a fifth of it, as the published traces begin
low, and lasts for minutes: what arrives before the first loads can have ended is then less than what may be violated.
"""

from __future__ import annotations

import csv
import json
import math
import random
from pathlib import Path

from .worlds import PROTEUS, QUICK_S, World

#: run times of the types: ampere's to the power of the first, times pascal's to that of the second, times the third
TYPES = {"ampere": (1.0, 0.0, 1.0), "turing": (0.5, 0.5, 1.0), "pascal": (0.0, 1.0, 1.0), "kepler": (0.0, 1.0, 1.5)}
DEVICES = 15
RESIDENTS = {"ampere": 4, "turing": 3, "pascal": 3, "kepler": 2}
LOAD_S = 1.0
#: seconds and queries/s of all applications, split by Zipf's law: nearly all that the devices carry, and about half
DURATION_S, RATE, HALF_RATE = 300, 3500.0, 2000.0
#: the share of it that arrives at the start, and the second from which all of it does
START, RISE_S = 0.2, 30.0
#: published ones
APPLICATIONS = 9
#: the application that bursts, how many times as much then arrives of it, and from when to when
BURSTING, FACTOR, BURSTS = "resnet", 3.0, tuple((float(at), at + 8.0) for at in range(50, 300, 40))


def world(data: Path, into: Path, quick: bool, rate: float = RATE) -> World:
    """The world.

    Args:
        data: folder with the published ``profiles.csv``.
        into: where profiles and trace are written in the simulator's format.
        rate: queries/s of all applications.
    """
    into.mkdir(parents=True, exist_ok=True)
    if (data / PROTEUS["profiles"]).exists():
        applications = _profiles(data / PROTEUS["profiles"], into / "profiles.csv")
        (into / "trace.csv").write_text("arrival_ms,application\n" + "".join(_arrivals(applications, rate)))
    values = {
        **PROTEUS,
        "name": f"unlike GPUs, {rate:g}/s",
        "trace": "trace.csv",
        "devices": dict.fromkeys(TYPES, DEVICES),
        "max_resident": RESIDENTS,
        "load_time_s": LOAD_S,
        # Evenly, not by Zipf's law: nobody knows the mix before the start.
        "control": {"initial_qps": round(START * rate / APPLICATIONS)},
    }
    return World(json.dumps(values), into, QUICK_S if quick else None)


def _profiles(published: Path, made: Path) -> list[str]:
    """Write the profiles of all types and return the applications."""
    latency, accuracy = PROTEUS["latency"], "accuracy_normalized"
    known: dict[tuple[str, str, str, str], dict[str, float]] = {}
    with published.open(newline="") as file:
        for row in csv.DictReader(file):
            key = row["application"], row["variant"], row[accuracy], row["batch"]
            known.setdefault(key, {})[row["device_type"]] = float(row[latency])
    lines = [f"application,variant,{accuracy},device_type,batch,{latency}\n"]
    for key, ms in known.items():
        application, variant, value, batch = key
        if {"ampere", "pascal"} <= ms.keys():
            for kind, (first, second, times) in TYPES.items():
                taken = math.exp(first * math.log(ms["ampere"]) + second * math.log(ms["pascal"])) * times
                lines.append(f"{application},{variant},{value},{kind},{batch},{taken:.4f}\n")
    made.write_text("".join(lines))
    return list(dict.fromkeys(application for application, *_ in known))


def _arrivals(applications: list[str], total: float) -> list[str]:
    """Poisson arrivals with a fixed seed."""
    numbers, times = random.Random(1), []
    parts = sum(1 / place for place in range(1, len(applications) + 1))
    for place, application in enumerate(applications, 1):
        rate, at = total / place / parts, 0.0
        peak = rate * (FACTOR if application == BURSTING else 1.0)
        while (at := at + numbers.expovariate(peak)) < DURATION_S:
            bursting = application == BURSTING and any(start <= at < end for start, end in BURSTS)
            risen = START + (1 - START) * min(1.0, at / RISE_S)
            if numbers.random() < risen * (1.0 if bursting else rate / peak):
                times.append((at, application))
    return [f"{at * 1000:.6f},{application}\n" for at, application in sorted(times)]
