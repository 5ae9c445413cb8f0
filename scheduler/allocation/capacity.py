"""Capacity of one device with one variant, for the allocation MILPs. Pure.

Source: Ahmad et al., "Proteus: A High-Throughput Inference-Serving System with Accuracy Scaling" (ASPLOS '24),
Section 4, "Estimation of throughput capacity". Only profiled batch sizes are considered.
"""

from __future__ import annotations

from dataclasses import dataclass

from .problem import CandidateVariant, DeviceResources, LatencyProfile

#: Longest batch on a dedicated device as a share of the SLO: a query waits for one batch and runs in the next one.
DEDICATED_SHARE_OF_SLO = 0.5


@dataclass(frozen=True, slots=True)
class Capacity:
    """``batch``: b*, rows; ``latency_s``: of b*; ``rate``: P, items/s."""

    batch: int
    latency_s: float
    rate: float


def fits_memory(profile: LatencyProfile, device: DeviceResources) -> bool:
    return device.memory_bytes is None or profile.memory_bytes <= device.memory_bytes


def profile_on(variant: CandidateVariant, device: DeviceResources) -> LatencyProfile | None:
    """None: it does not run there, or does not fit into memory."""
    profile = variant.profiles.get(device.type)
    return profile if profile is not None and profile.points and fits_memory(profile, device) else None


def dedicated_capacity(profile: LatencyProfile, slo_s: float) -> Capacity | None:
    """Return the capacity of a device that hosts nothing else (Eq. 5).

    P(d,m,q) = b* / latency(b*), items/s, for a device that is wholly available. b* is the *fastest* batch, the largest
    b / latency(b), among those with latency <= SLO / 2. The paper takes the largest one, which is slower in some
    profiles; a batch never takes more than b* rows for the same reason (two batches of b* finish before one of twice as
    many rows). Among equally fast batches b* is the smaller one, which answers sooner. Where batches of one size take
    different times, the longest must be within SLO / 2, and the mean gives the rate.

    Returns:
        None: no batch is within SLO / 2.
    """
    best: Capacity | None = None
    for (batch, latency_s), (_, longest_s) in zip(profile.points, profile.longest, strict=True):
        if longest_s > slo_s * DEDICATED_SHARE_OF_SLO:
            continue
        rate = batch / latency_s
        if best is None or rate > best.rate * (1 + 1e-12):
            best = Capacity(batch, latency_s, rate)
    return best
