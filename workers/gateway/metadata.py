"""What the gateway tells about itself: V2 metadata, readiness, statistics, health for operators. Read only."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from workers import __version__
from workers.protocol.gateways import ApplicationTotals
from workers.protocol.specs import ApplicationSpec, TensorSpec

from .catalog import NOT_CONFIGURED
from .dataplane import DataPlane, parse_version
from .executors import Executors
from .metrics import GatewayMetrics
from .plan import Adoption
from .stats import Statistics
from .totals import ByApplication, add

PLATFORM = "onnxruntime_onnx"
EXTENSIONS = ("binary_tensor_data", "parameters", "model_configuration", "model_repository", "statistics")


class Metadata:
    """Answers about the gateway, its applications and devices, as plain data."""

    def __init__(
        self,
        name: str,
        dataplane: DataPlane,
        executors: Executors,
        adoption: Adoption,
        statistics: Statistics,
        metrics: GatewayMetrics,
        control_state: Callable[[], str],
        elsewhere: Callable[[], Sequence[ByApplication]] = tuple,
    ):
        self._name = name
        self._dataplane = dataplane
        self._executors = executors
        self._adoption = adoption
        self._statistics = statistics
        self._metrics = metrics
        self._control_state = control_state
        self._elsewhere = elsewhere
        self._started = time.time()

    # --- readiness ---

    def not_ready(self) -> str:
        """Why the server is not ready; empty when it is: every planned application has a warm variant."""
        if not self._dataplane.catalog.configured:
            return NOT_CONFIGURED
        cold = self._adoption.cold
        return f"no warm variant yet of: {', '.join(cold)}" if cold else ""

    def model_not_ready(self, model: str, version: str | None) -> str:
        """Why an application (or one variant of it) is not ready; empty when it is. Raises NotFound."""
        spec = self._dataplane.catalog.application(model)
        variant = parse_version(self._dataplane.catalog, spec, version)
        if not self._adoption.routes.get(model):
            return f"model {model!r}: no device has a variant of it warm now"
        if variant is not None and all(known.name != variant for _, known in self._executors.warm(model)):
            return f"version {variant!r}: no device has this variant of {model} warm now"
        return ""

    # --- V2 metadata ---

    def server(self) -> dict[str, Any]:
        """Server metadata."""
        return {"name": "nereus", "version": __version__, "extensions": EXTENSIONS}

    def model(self, model: str, version: str | None) -> dict[str, Any]:
        """Model metadata; its versions are the planned variants. Raises NotFound."""
        spec = self._dataplane.catalog.application(model)
        variant = parse_version(self._dataplane.catalog, spec, version)
        return {
            "name": model,
            "versions": self._versions(spec, variant),
            "platform": PLATFORM,
            "inputs": [_tensor(tensor) for tensor in spec.signature.inputs],
            "outputs": [_tensor(tensor) for tensor in spec.signature.outputs],
        }

    def config(self, model: str, version: str | None) -> dict[str, Any]:
        """The part of Triton's model configuration that has a meaning here. Raises NotFound."""
        spec = self._dataplane.catalog.application(model)
        parse_version(self._dataplane.catalog, spec, version)
        return {
            "name": model,
            "platform": PLATFORM,
            "backend": "onnxruntime",
            "max_batch_size": self._dataplane.accounts.limits.query_rows,
            "input": [_configured(tensor) for tensor in spec.signature.inputs],
            "output": [_configured(tensor) for tensor in spec.signature.outputs],
            "parameters": {
                "slo_ms": {"string_value": f"{spec.slo_s * 1e3:g}"},
                "late": {"string_value": spec.late},
            },
        }

    def index(self, ready_only: bool) -> list[dict[str, str]]:
        """Repository index: one entry an application."""
        entries = []
        for name in sorted(self._dataplane.catalog.applications):
            why = self.model_not_ready(name, None)
            if not why:
                entries.append({"name": name, "version": "", "state": "READY", "reason": ""})
            elif not ready_only:
                entries.append({"name": name, "version": "", "state": "UNAVAILABLE", "reason": why})
        return entries

    def statistics(self, model: str | None, version: str | None) -> dict[str, Any]:
        """Inference statistics since the start, one entry an application, in Triton's form. Raises NotFound.

        They are kept by application, so asking for one variant gives its application's. Of several gateways on a box
        whichever is asked answers for all of them: of the others it knows the state of a moment ago.
        """
        catalog = self._dataplane.catalog
        if model is not None:
            parse_version(catalog, catalog.application(model), version)
        names = sorted(catalog.applications) if model is None else [model]
        elsewhere = self._elsewhere()
        return {"model_stats": [self._model_statistics(name, elsewhere) for name in names]}

    def _model_statistics(self, name: str, elsewhere: Sequence[ByApplication]) -> dict[str, Any]:
        own = msgspec.convert(self._statistics.total(name), ApplicationTotals, from_attributes=True)
        total = add(own, *(totals.get(name) for totals in elsewhere))
        done = total.success
        zero = {"count": 0, "ns": 0}
        return {
            "name": name,
            "version": "",
            "last_inference": int(total.last_success_unix * 1e3),
            "inference_count": total.rows,
            "execution_count": round(total.batches),
            "inference_stats": {
                "success": {"count": done, "ns": int(total.success_s * 1e9)},
                "fail": {"count": total.refused, "ns": 0},
                "queue": {"count": done, "ns": int(total.queue_s * 1e9)},
                "compute_input": zero,
                "compute_infer": {"count": done, "ns": int(total.run_s * 1e9)},
                "compute_output": zero,
                "cache_hit": zero,
                "cache_miss": zero,
            },
            "batch_stats": [],
        }

    def _versions(self, spec: ApplicationSpec, variant: str | None) -> list[str]:
        return [variant] if variant is not None else sorted(self._dataplane.catalog.variants(spec.name))

    # --- operators ---

    def health(self) -> dict[str, Any]:
        """State for operators: no names of keys, no query contents."""
        adoption = self._adoption
        why = self.not_ready()
        return {
            "status": "ready" if not why else "starting",
            "reason": why,
            "name": self._name,
            "uptime_s": round(time.time() - self._started, 1),
            "control_plane": self._control_state(),
            "plan": {"adopted": adoption.adopted, "newest": adoption.target.version},
            "in_flight": self._dataplane.accounts.queries,
            "held": self._dataplane.held,
            "suspect_inputs": self._dataplane.suspect_inputs,
            "late_binding": self._dataplane.late_binding,
            "applications": {
                name: {"routes": {device: round(share, 4) for device, share in adoption.routes.get(name, ())}}
                for name in sorted(self._dataplane.catalog.applications)
            },
            "devices": {
                device: {
                    "connected": state is not None,
                    "plan_version": state.plan_version if state is not None else None,
                    "warm": sorted({f"{v.application}/{v.name}" for v in state.warm}) if state is not None else [],
                    "draining": state.draining if state is not None else False,
                }
                for device, state in sorted(self._executors.states().items())
            },
        }

    def refresh_metrics(self) -> None:
        """Bring the gauges up to date, which nothing on the query path needs to do."""
        self._metrics.in_flight.set(self._dataplane.accounts.queries)
        self._metrics.held.set(self._dataplane.held)
        self._metrics.suspect_inputs.set(self._dataplane.suspect_inputs)
        outstanding = dict.fromkeys(self._executors.states(), 0)
        self._metrics.outstanding({**outstanding, **self._dataplane.outstanding})
        self._metrics.plan_version.set(self._adoption.adopted or 0)
        self._metrics.ready.set(0 if self.not_ready() else 1)


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.shape}


def _configured(spec: TensorSpec) -> dict[str, Any]:
    datatype = {"BYTES": "TYPE_STRING"}.get(spec.datatype, f"TYPE_{spec.datatype}")
    return {"name": spec.name, "data_type": datatype, "dims": spec.shape[1:]}
