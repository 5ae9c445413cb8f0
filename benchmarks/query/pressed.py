"""What the least accurate variant can answer in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workers.protocol.specs import DeviceStats

from .recording.driver import Recorder
from .variants import FASTEST, SLO_S, VariantStack

#: connections of the trials that tell how many saturate the device, and the share of the time that each trial takes
TRIALS, TRIAL_SHARE = (8, 16, 32, 64, 128), 0.2
#: more connections must bring so much more; trials end where two in a row do not
BETTER = 1.03


@dataclass(frozen=True)
class Capacity:
    """``rate``: queries a second answered in time. ``missed``: queries that were not. ``device``: the executor's
    seconds meanwhile."""

    rate: float
    missed: int
    connections: int
    device: Sequence[DeviceStats]


def capacity(
    stack: VariantStack, recorder: Recorder, file: Path, seconds: float, grpc: bool = False, connections: int = 0
) -> Capacity:
    """Of a closed loop with so many connections; 0: with as many as bring the most answers in time.

    Raises:
        LoadError: the load generator failed.
    """
    connections = connections or _saturating(stack, recorder, file, seconds, grpc)
    return _closed(stack, recorder, file, connections, seconds, grpc)


def _saturating(stack: VariantStack, recorder: Recorder, file: Path, seconds: float, grpc: bool) -> int:
    best, vain = None, 0
    for connections in TRIALS:
        trial = _closed(stack, recorder, file, connections, TRIAL_SHARE * seconds, grpc)
        if best is None or trial.rate > BETTER * best.rate:
            best, vain = trial, 0
        elif (vain := vain + 1) == 2:
            break
    return best.connections


def _closed(
    stack: VariantStack, recorder: Recorder, file: Path, connections: int, seconds: float, grpc: bool
) -> Capacity:
    load = stack.load(FASTEST, file, grpc, connections=connections, closed_s=seconds)
    records, summary = recorder.run(load, SLO_S)
    ended, began = records.rows["ended"], summary.began
    rate = float(np.count_nonzero(records.in_time & (ended < seconds))) / seconds
    missed = len(records) - int(np.count_nonzero(records.in_time))
    return Capacity(rate, missed, connections, stack.device_seconds(began + min(1.0, seconds / 4), began + seconds + 1))
