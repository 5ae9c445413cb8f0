"""What the data plane takes of a core while nothing is asked of it: the gateway with its link to the control plane, and
the executor with three models warm and its node connected. The node's daemon is not part of it."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from .alone import Alone
from .models import MODELS
from .stack import Stack
from .table import Row

SETTLE_S = 2.0


def section(seconds: float) -> list[Row]:
    """One row."""
    with tempfile.TemporaryDirectory(prefix="nereus-q-") as home:
        folder = Path(home)
        models = [make(folder) for make in MODELS.values()]
        core = min(os.sched_getaffinity(0))
        profiles = {model.name: Alone(model, core).profile(0.01) for model in models}
        with Stack(folder, models, profiles) as stack:
            time.sleep(SETTLE_S)
            before, began = stack.cpu_s(), time.perf_counter()
            time.sleep(seconds)
            after, took = stack.cpu_s(), time.perf_counter() - began
    shares = {name: 100 * (after[name] - before[name]) / took for name in after}
    return [
        {"seconds": took, **{f"{name} %": share for name, share in shares.items()}, "% of a core": sum(shares.values())}
    ]
