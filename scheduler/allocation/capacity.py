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
    """A dedicated device's capacity.

    Attributes:
        batch: b*, rows.
        latency_s: of b*, seconds.
        rate: P, items/s.
    """

    batch: int
    latency_s: float
    rate: float


@dataclass(frozen=True, slots=True)
class SliceCost:
    """Upper bound on the time that a slice of some rows takes.

    It is ``alpha_s`` + ``beta_s`` * rows, seconds, for 1 <= rows <= ``max_rows``.
    """

    alpha_s: float
    beta_s: float
    max_rows: int

    def seconds(self, rows: float) -> float:
        return self.alpha_s + self.beta_s * rows


def fits_memory(profile: LatencyProfile, device: DeviceResources) -> bool:
    """Whether the variant alone fits into the device's memory."""
    return device.memory_bytes is None or profile.memory_bytes <= device.memory_bytes


def profile_on(variant: CandidateVariant, device: DeviceResources) -> LatencyProfile | None:
    """Return the variant's profile on the device's type, or None.

    None: it does not run there, or does not fit into memory.
    """
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


def slice_cost(profile: LatencyProfile, limit_s: float) -> SliceCost | None:
    """Return the tightest safe line above latencies of at most ``limit_s`` seconds.

    Batches count up to the first one that takes too long. Between profiled sizes latency is linear, so that a line
    above the profiled points is above everything between; below the smallest profiled size it costs the smallest. The
    line is the one with the least sum of over-estimates among those (alpha, beta >= 0) above all points. Slices are
    bounded by the longest batches of each size.

    Returns:
        None: the smallest batch exceeds the limit.
    """
    points: list[tuple[int, float]] = []
    for batch, latency_s in profile.longest:
        if latency_s > limit_s:
            break
        points.append((batch, latency_s))
    if not points:
        return None
    if points[0][0] > 1:
        points.insert(0, (1, points[0][1]))
    # A best line touches one or two points: an edge of their upper hull, a flat line, or a line through the origin.
    lines = [(max(s for _, s in points), 0.0), (0.0, max(s / b for b, s in points))]
    for i, (b1, l1) in enumerate(points):
        for b2, l2 in points[i + 1 :]:
            beta = (l2 - l1) / (b2 - b1)
            lines.append((l1 - beta * b1, beta))
    safe = [
        (sum(alpha + beta * b for b, _ in points), alpha, beta)
        for alpha, beta in lines
        if alpha >= 0 and beta >= 0 and all(alpha + beta * b >= s * (1 - 1e-9) for b, s in points)
    ]
    _, alpha, beta = min(safe)
    return SliceCost(alpha, beta, points[-1][0])
