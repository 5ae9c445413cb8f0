"""The network between the core and its devices: round trips, and transfer times of tensors. Pure."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from workers.protocol.datatypes import ITEM_BYTES
from workers.protocol.specs import ApplicationSpec, TensorSpec

from .in_flight import InFlightQuery

#: samples in the window, and between two updates of the estimate
RTT_WINDOW, EVERY = 256, 16
RTT_QUANTILE = 0.99
#: the estimate before its first update, and at most, so that outliers cannot hold up later queries
INITIAL_S, LONGEST_S = 0.002, 0.2
#: bytes of a batch below which its time on the way is the round trip: TCP sends about as much at once
LARGE_BYTES = 32 * 1024
#: batches of which a high quantile counts, so that a stall of the network does not
WINDOW, QUANTILE = 32, 0.8
#: another estimate is used once it differs by this factor: offers are made anew for it
STEP = 1.25
#: bounds of an estimate: 20 GB/s is as if there were no network, slower than 100 KB/s is an outage
LEAST, MOST = 5e-11, 1e-5
#: seconds without a large batch after which the estimate is halved, and again: a device that seems too far away for
#: any batch would never show that the network has recovered
STALE_S = 10.0


class RttEstimator:
    """A high quantile of the round trip over the latest :data:`RTT_WINDOW` queries.

    A sample is the core's round trip less the executor's queue and run times (seconds).
    """

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=RTT_WINDOW)
        self._new = 0
        self.seconds = INITIAL_S

    def begin(self, sample_s: float) -> bool:
        """Add a sample, which raises the estimate at once if it is the first one; whether it changed.

        A device far away must not get queries that would come back late.
        """
        before = self.seconds
        if not self._samples:
            self.seconds = min(LONGEST_S, max(before, sample_s))
        return self.add(sample_s) or self.seconds != before

    def add(self, sample_s: float) -> bool:
        """Add a sample; whether the estimate changed. Sorting is rare."""
        samples = self._samples
        samples.append(sample_s if sample_s > 0.0 else 0.0)
        self._new += 1
        if self._new < EVERY or (4 * self._new < RTT_WINDOW and len(samples) == RTT_WINDOW):
            return False
        self._new = 0
        ordered, before = sorted(samples), self.seconds
        self.seconds = min(LONGEST_S, ordered[int(RTT_QUANTILE * (len(ordered) - 1))])
        return self.seconds != before


class TransferEstimator:
    """Seconds a byte to a device on another box and back, for inputs and outputs.

    A batch's time on the way, less the round trip of a small one, by its bytes.

    Attributes:
        byte_s: the estimate in use; 0 before the first large batch.
    """

    def __init__(self) -> None:
        self.byte_s = 0.0
        self._samples: deque[float] = deque(maxlen=WINDOW)
        self._sampled_at = -math.inf

    def add(self, nbytes: int, on_the_way_s: float, now: float) -> bool:
        """Learn from a batch of at least :data:`LARGE_BYTES`.

        Args:
            on_the_way_s: beyond the executor's work and the round trip of a small batch.

        Returns:
            Whether another estimate is in use.
        """
        self._sampled_at = now
        self._samples.append(min(MOST, max(0.0, on_the_way_s) / nbytes))
        ordered = sorted(self._samples)
        return self._use(ordered[int(QUANTILE * (len(ordered) - 1))])

    def stale(self, now: float) -> bool:
        """Halve an estimate that no batch has tested for :data:`STALE_S`; whether it did."""
        if not self.byte_s or now - self._sampled_at < STALE_S:
            return False
        self._samples.clear()
        self._sampled_at = now
        return self._use(self.byte_s / 2)

    def _use(self, byte_s: float) -> bool:
        if byte_s < LEAST:
            byte_s = 0.0
        elif self.byte_s / STEP < byte_s < self.byte_s * STEP:
            return False
        changed, self.byte_s = byte_s != self.byte_s, byte_s
        return changed


class Network:
    """The estimates of all devices.

    Args:
        rtt_changed: called with a device and its round trip in seconds.

    Attributes:
        rtts: by device.
        transfers: the same, of devices on other boxes.
        transfers_changed: :meth:`byte_s` of some device has changed since this was last set to False.
    """

    def __init__(self, rtt_changed: Callable[[str, float], None]) -> None:
        self.rtts: defaultdict[str, RttEstimator] = defaultdict(RttEstimator)
        self.transfers: dict[str, TransferEstimator] = {}
        self.transfers_changed = False
        self._rtt_changed = rtt_changed

    def byte_s(self, device: str) -> float:
        """Seconds that a byte is on the way to a device on another box; 0 on this one."""
        estimator = self.transfers.get(device)
        return 0.0 if estimator is None else estimator.byte_s

    def echoed(self, device: str, around_s: float, now: float) -> None:
        """Learn how far away a device is, also while no query goes there."""
        estimator = self.rtts[device]
        if estimator.begin(around_s):
            self._rtt_changed(device, estimator.seconds)
        self.transfers_changed |= self.transfers.setdefault(device, TransferEstimator()).stale(now)

    def learn(self, device: str, flights: Sequence[InFlightQuery], nbytes: int, around_s: float, now: float) -> None:
        """Learn from a batch's answer of ``nbytes``, of which ``around_s`` were spent neither queued nor running."""
        estimator, transfer = self.rtts[device], self.transfers.get(device)
        if transfer is not None:
            nbytes += sum([flight.query.terms.nbytes for flight in flights])
            if nbytes >= LARGE_BYTES:
                self.transfers_changed |= transfer.add(nbytes, around_s - estimator.seconds, now)
                return
        if estimator.add(around_s):
            self._rtt_changed(device, estimator.seconds)

    def lost(self, device: str) -> None:
        self.rtts.pop(device, None)
        self.transfers.pop(device, None)


def row_bytes(spec: ApplicationSpec, size: int) -> int:
    """Bytes of a row of a size class, in and out; text counts as nothing."""
    largest = size or max(spec.sizes, default=0)
    return sum(_row_bytes(tensor, largest) for tensor in (*spec.signature.inputs, *spec.signature.outputs))


def _row_bytes(tensor: TensorSpec, largest: int) -> int:
    open_size = largest or tensor.most or 1
    return ITEM_BYTES.get(tensor.datatype, 0) * math.prod(open_size if n < 0 else n for n in tensor.shape[1:])
