"""What the least accurate variant can answer in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workers.protocol.specs import DeviceStats

from .recording.driver import Recorder
from .variants import FASTEST, SLO_S, VariantStack

#: of the SLO: what a closed loop's queries should take together, so that all are in time and the device is never idle
FILLED = 0.5
#: connections, and share of the time, of the trial that tells how many that are
TRIAL, TRIAL_SHARE = 8, 0.3


@dataclass(frozen=True)
class Capacity:
    """``rate``: queries a second answered in time. ``missed``: queries that were not. ``device``: the executor's
    seconds meanwhile."""

    rate: float
    missed: int
    connections: int
    device: Sequence[DeviceStats]


def capacity(stack: VariantStack, recorder: Recorder, file: Path, seconds: float, grpc: bool = False) -> Capacity:
    """Of a closed loop at saturation.

    Raises:
        LoadError: the load generator failed.
    """
    trial = _closed(stack, recorder, file, TRIAL, TRIAL_SHARE * seconds, grpc)
    return _closed(stack, recorder, file, max(TRIAL, round(FILLED * SLO_S * trial.rate)), seconds, grpc)


def _closed(
    stack: VariantStack, recorder: Recorder, file: Path, connections: int, seconds: float, grpc: bool
) -> Capacity:
    load = stack.load(FASTEST, file, grpc, connections=connections, closed_s=seconds)
    records, summary = recorder.run(load, SLO_S)
    ended, began = records.rows["ended"], summary.began
    rate = float(np.count_nonzero(records.in_time & (ended < seconds))) / seconds
    missed = len(records) - int(np.count_nonzero(records.in_time))
    return Capacity(rate, missed, connections, stack.device_seconds(began + 1, began + seconds))
