"""A variant that is loaded on this device, and why it still is."""

from __future__ import annotations

from enum import StrEnum

from workers.batching.base import Candidate
from workers.protocol import shapes
from workers.protocol.frames import WarmVariant
from workers.protocol.specs import ApplicationSpec, ProfilePoint, Resident, VariantSpec

from .estimates import LatencyEstimate
from .runtime import Model


class Role(StrEnum):
    """``WARMING``: ready, its plan not yet in force. ``PLANNED``: part of the plan in force. ``LEAVING``: of an older
    plan, and gateways may still route by it. ``STANDBY``: nobody's any more, kept so that a swap back is instant."""

    WARMING = "warming"
    PLANNED = "planned"
    LEAVING = "leaving"
    STANDBY = "standby"


class Loaded:
    """A warm variant with its model, its latencies here and its place in the plan.

    ``rate``: rows/s the plan expects of it. ``memory_bytes``: its share of the device's memory. ``used_at``: when it
    last ran or was planned. ``plan_version``: the plan that it left (while leaving). ``closing``: about to be unloaded;
    takes no new queries.
    """

    def __init__(self, resident: Resident, application: ApplicationSpec, model: Model, path: str, now: float):
        self.model = model
        self.path = path
        self.role = Role.WARMING
        self.used_at = now
        self.plan_version = 0
        self.closing = False
        self.served = 0.0
        #: (rows, seconds) of warm-up runs, for a resident that comes without a profile
        self.warm_runs: list[tuple[int, float]] = []
        self._profiled: tuple[tuple[ProfilePoint, ...], int | None] | None = None
        self.update(resident, application)

    def update(self, resident: Resident, application: ApplicationSpec) -> None:
        """Take over what a newer plan says; latencies start afresh only with another profile."""
        self.variant: VariantSpec = resident.variant
        self.application = application
        self.max_batch = max(1, resident.max_batch)
        self.rate = resident.rate
        self.memory_bytes = max(resident.memory_bytes, resident.variant.size_bytes)
        points = resident.profile
        if not points:
            points = tuple(ProfilePoint(rows, took, took, took) for rows, took in dict(self.warm_runs).items()) or (
                # A guess that lets the first batch go; the observed inflation corrects it.
                ProfilePoint(1, application.slo_s / 8, application.slo_s / 8, application.slo_s / 8),
            )
        largest = max(application.sizes, default=0) if shapes.has_open(application.signature) else None
        profiled = ((*points, *resident.smaller), largest)
        if profiled != self._profiled:
            self._profiled = profiled
            self.estimate = LatencyEstimate(*profiled)

    @property
    def id(self) -> int:
        return self.variant.id

    @property
    def accuracy(self) -> float:
        """Percent in the application's metric; 0 where it is not known."""
        return self.variant.accuracy if self.variant.accuracy is not None else 0.0

    def candidate(self, now: float, extent: int = 0) -> Candidate:
        """What a batch policy sees of this variant. ``extent``: of the queries in question, see ``estimates``."""
        return Candidate(
            self.id,
            self.accuracy,
            self.estimate.model(now, extent),
            self.max_batch,
            planned=self.role is Role.PLANNED,
            typical=self.estimate.at(extent).typical,
        )

    def wire(self) -> WarmVariant:
        """What gateways see of this variant."""
        return WarmVariant(
            self.id, self.variant.name, self.variant.application, self.accuracy, self.role is Role.PLANNED
        )
