"""Learn from answers and refusals: corrections and backoff. Pure."""

from __future__ import annotations

from typing import Any, Protocol

from .latency_correction import LatencyCorrections
from .options import ServingOption

#: seconds without a run after which the corrections of slow options decay, and between two decays
DECAY_AFTER_S = 10.0
DECAY_EVERY_S = 1.0
#: seconds without batches after a device declined queries; each time longer until it answers, up to the largest
BACKOFF_S = 0.02
BACKOFF_FACTOR = 4.0
LARGEST_BACKOFF_S = 1.0


class CorrectedDevice(Protocol):
    """A device of either binding; ``measured_at``: its latest run; ``decay_at``: when corrections may decay next."""

    corrections: LatencyCorrections
    dispatched: list[Any]
    measured_at: float
    decay_at: float
    backoff_s: float
    backoff_until: float

    def recount(self) -> None:
        pass


def learn(device: CorrectedDevice, option: ServingOption, rows: int, run_s: float, now: float) -> None:
    expected_s = option.seconds(rows)
    ratio = (run_s + option.row_transfer_s * rows) / expected_s
    if ratio < 1.0 and option.at_most:
        ratio = 1.0
    device.measured_at = now
    if device.corrections.learn(option, ratio, expected_s, now):
        device.recount()


def decay_corrections(device: CorrectedDevice, now: float) -> bool:
    """Whether any changed. Slow options get no batches that would show a recovery."""
    if now < device.decay_at:
        return False
    device.decay_at = now + DECAY_EVERY_S
    silent = now - device.measured_at > DECAY_AFTER_S and not device.dispatched
    if not device.corrections.decay(now, DECAY_AFTER_S, (batch.option for batch in device.dispatched), silent):
        return False
    if silent:
        device.measured_at = now
    device.recount()
    return True


def back_off(device: CorrectedDevice, now: float) -> None:
    """A device declined queries: send it nothing until ``backoff_until``."""
    device.backoff_s = min(device.backoff_s * BACKOFF_FACTOR, LARGEST_BACKOFF_S) if device.backoff_s else BACKOFF_S
    device.backoff_until = now + device.backoff_s
