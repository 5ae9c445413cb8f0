"""A variant that is loaded on this device, and its role in plans."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from workers.protocol import shapes
from workers.protocol.frames import WarmVariant
from workers.protocol.specs import ApplicationSpec, ProfilePoint, Resident, VariantSpec

from .estimates import LatencyEstimate
from .independence import KeptBatch
from .request_shapes import CheckedShapes
from .runtime import RunnableModel


class Role(StrEnum):
    """The part that a loaded variant has in plans.

    ``WARMING``: ready, its plan not yet in force. ``PLANNED``: part of the plan in force. ``LEAVING``: of an older
    plan, and gateways may still route by it. ``STANDBY``: in no plan, kept so that a swap back is instant.
    """

    WARMING = "warming"
    PLANNED = "planned"
    LEAVING = "leaving"
    STANDBY = "standby"


class Loaded:
    """A warm variant with its model, its latencies here and its place in the plan.

    Attributes:
        used_at: when it last ran or was planned, in seconds on the monotonic clock.
        plan_version: the plan that it left, while it is leaving.
        closing: it is about to be unloaded, and takes no new queries.
        wants_batch: the next batch of several queries is to be kept in ``kept``, for :mod:`.lull_checks`.
        checked_at: when such a batch was last checked, in seconds on the monotonic clock.
    """

    def __init__(self, resident: Resident, application: ApplicationSpec, model: RunnableModel, now: float):
        self.model = model
        self.role = Role.WARMING
        self.used_at = now
        self.plan_version = 0
        self.closing = False
        self.wants_batch = False
        self.kept: KeptBatch | None = None
        self.checked_at = 0.0
        self._profiled: tuple | None = None
        #: estimates of smaller size classes that take less, ascending
        self._smaller: list[tuple[int, LatencyEstimate]] = []
        self.update(resident, application)

    def update(self, resident: Resident, application: ApplicationSpec) -> None:
        """Follow a newer plan; latencies start afresh only with another profile."""
        self.variant: VariantSpec = resident.variant
        if resident.variant.alone:
            self.model.alone = True
        self.id = resident.variant.id
        # Percent in the application's metric, and of its best variant; 0 where it is not known.
        self.accuracy = resident.variant.accuracy or 0.0
        self.accuracy_normalized = resident.variant.accuracy_normalized or 0.0
        self.application = application
        self.max_batch = max(1, resident.max_batch)
        self.memory_bytes = max(resident.memory_bytes, resident.variant.size_bytes)
        # Without a profile a guess lets the first batch go; observed run times correct it.
        guess_s = application.slo_s / 8
        points = resident.profile or (ProfilePoint(1, guess_s, guess_s, guess_s),)
        largest = max(application.sizes, default=0) if shapes.has_open(application.signature) else None
        profiled = points, resident.smaller, largest
        if profiled != self._profiled:
            self._profiled = profiled
            self.estimate = LatencyEstimate(points, largest)
            sizes = sorted({point.size for point in resident.smaller})
            self._smaller = [(size, LatencyEstimate(shapes.of_class(resident.smaller, size), size)) for size in sizes]
            self._estimates = [self.estimate, *(estimate for _, estimate in self._smaller)]

    def at(self, extent: int) -> LatencyEstimate:
        """Return the estimate for queries of this extent (:class:`.CheckedShape`); 0: any."""
        if extent:
            for size, estimate in self._smaller:
                if extent <= size:
                    return estimate
        return self.estimate

    @property
    def ratio(self) -> float:
        """Moving average of observed over profiled run time, of all sizes; 0 before any."""
        batches = sum(estimate.batches for estimate in self._estimates)
        observed = sum(estimate.batches * estimate.ratio for estimate in self._estimates)
        return observed / batches if batches else 0.0

    def drifted(self, now: float) -> float | None:
        """See :meth:`.LatencyEstimate.drifted`: of the first size class that did."""
        ratios = (estimate.drifted(now) for estimate in self._estimates)
        return next((ratio for ratio in ratios if ratio is not None), None)

    def wire(self) -> WarmVariant:
        """The variant as gateways see it."""
        return WarmVariant(
            self.id, self.variant.name, self.variant.application, self.accuracy, self.role is Role.PLANNED
        )


class DeviceResidents:
    """The device's contents: warm variants by id, request shapes by application."""

    def __init__(self) -> None:
        self.variants: dict[int, Loaded] = {}
        self.applications: dict[str, CheckedShapes] = {}

    def keep_applications(self, specs: Mapping[str, ApplicationSpec]) -> None:
        """Replace the applications; request shapes of changed ones are checked anew."""
        present = self.applications
        self.applications = {
            name: present[name] if name in present and present[name].spec == spec else CheckedShapes(spec)
            for name, spec in specs.items()
        }

    def tightest_slo_s(self) -> float:
        """Seconds; 1 where there is no application."""
        return min((application.spec.slo_s for application in self.applications.values()), default=1.0)
