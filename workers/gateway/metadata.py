"""V2 metadata, readiness, statistics and health, as plain data. Read only."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from workers import __version__
from workers.protocol.gateways import ApplicationTotals, CoreStatus
from workers.protocol.specs import Signature, TensorSpec

from .catalog import NOT_CONFIGURED
from .front import Front
from .totals import total as total_of

PLATFORM = "onnxruntime_onnx"
EXTENSIONS = ("binary_tensor_data", "parameters", "model_configuration", "model_repository", "statistics")


class Metadata:
    """Answers about the gateway, its applications and devices, as plain data.

    Args:
        core: gives the core's status.
        elsewhere: gives the totals of the box's other fronts.
    """

    def __init__(
        self,
        name: str,
        front: Front,
        core: Callable[[], CoreStatus],
        control_state: Callable[[], str],
        elsewhere: Callable[[], Mapping[str, ApplicationTotals]],
    ):
        self._name = name
        self._front = front
        self._core = core
        self._control_state = control_state
        self._elsewhere = elsewhere
        self._started = time.monotonic()

    # --- readiness ---

    def not_ready(self) -> str:
        """Explain why the server is not ready; empty: every planned application is warm."""
        if not self._front.catalog.configured:
            return NOT_CONFIGURED
        cold = self._core().cold
        return f"no warm variant yet of: {', '.join(cold)}" if cold else ""

    def model_not_ready(self, model: str, version: str | None) -> str:
        """Explain why an application, or one variant of it, is not ready; empty: it is."""
        _, variant = self._front.catalog.resolve(model, version)
        if not self._core().routes.get(model):
            return f"model {model!r}: no device has a warm variant of it now"
        ready = [device for device in self._core().devices.values() if not device.draining]
        if variant is not None and not any((model, variant) in device.warm for device in ready):
            return f"version {variant!r}: no device has this variant of {model} warm now"
        return ""

    # --- V2 metadata ---

    def server(self) -> dict[str, Any]:
        return {"name": "nereus", "version": __version__, "extensions": EXTENSIONS}

    def model(self, model: str, version: str | None) -> dict[str, Any]:
        """Model metadata; its versions are the planned variants. Raises NotFound."""
        spec, variant = self._front.catalog.resolve(model, version)
        return {
            "name": model,
            "versions": [variant] if variant is not None else sorted(self._front.catalog.variants(model)),
            "platform": PLATFORM,
            "inputs": [_tensor(tensor, spec.signature) for tensor in spec.signature.inputs],
            "outputs": [_tensor(tensor, spec.signature) for tensor in spec.signature.outputs],
        }

    def config(self, model: str, version: str | None) -> dict[str, Any]:
        spec, _ = self._front.catalog.resolve(model, version)
        return {
            "name": model,
            "platform": PLATFORM,
            "backend": "onnxruntime",
            "max_batch_size": self._front.accounts.limits.query_rows if spec.signature.batch else 0,
            "input": [_configured(tensor) for tensor in spec.signature.inputs],
            "output": [_configured(tensor) for tensor in spec.signature.outputs],
            "parameters": {"slo_ms": {"string_value": f"{spec.slo_s * 1e3:g}"}, "late": {"string_value": spec.late}},
        }

    def index(self, ready_only: bool, client: str) -> list[dict[str, str]]:
        entries = []
        for name in self._front.catalog.reached(client):
            why = self.model_not_ready(name, None)
            if not why:
                entries.append({"name": name, "version": "", "state": "READY", "reason": ""})
            elif not ready_only:
                entries.append({"name": name, "version": "", "state": "UNAVAILABLE", "reason": why})
        return entries

    def statistics(self, model: str | None, version: str | None, client: str) -> dict[str, Any]:
        """Return inference statistics of the applications that a key reaches, in Triton's form. Raises NotFound.

        A request for one variant gets its application's. Each of several fronts answers for all.
        """
        catalog = self._front.catalog
        if model is not None:
            catalog.resolve(model, version)
        names = catalog.reached(client) if model is None else [model]
        return {"model_stats": [self._model_statistics(name) for name in names]}

    def _model_statistics(self, name: str) -> dict[str, Any]:
        total, elsewhere = self._front.accounts.totals[name], self._elsewhere().get(name)
        if elsewhere is not None:
            total = total_of([total, elsewhere])
        done = total.in_time + total.late
        zero = {"count": 0, "ns": 0}
        return {
            "name": name,
            "version": "",
            "last_inference": int(total.last_success_unix * 1e3),
            "inference_count": total.rows,
            "execution_count": round(total.batches),
            "inference_stats": {
                "success": {"count": done, "ns": int(total.success_s * 1e9)},
                "fail": {"count": total.dropped + total.failed, "ns": 0},
                "queue": {"count": done, "ns": int(total.queue_s * 1e9)},
                "compute_input": zero,
                "compute_infer": {"count": done, "ns": int(total.run_s * 1e9)},
                "compute_output": zero,
                "cache_hit": zero,
                "cache_miss": zero,
            },
            "batch_stats": [],
        }

    # --- operators ---

    def status(self) -> str:
        return "starting" if self.not_ready() else "ready"

    def health(self) -> dict[str, Any]:
        core = self._core()
        return {
            "status": self.status(),
            "reason": self.not_ready(),
            "name": self._name,
            "uptime_s": round(time.monotonic() - self._started, 1),
            "control_plane": self._control_state(),
            "plan": {"adopted": core.adopted, "newest": core.newest},
            "in_flight": self._front.accounts.queries,
            "core": {"name": core.name, "leads": core.leads},
            "held": core.held,
            "suspect_inputs": core.suspect_inputs,
            "applications": {
                name: {"routes": {device: round(share, 4) for device, share in core.routes.get(name, ())}}
                for name in sorted(self._front.catalog.applications)
            },
            "devices": {
                device: {
                    "connected": known.connected,
                    "plan_version": known.plan_version,
                    "warm": sorted({f"{application}/{variant}" for application, variant in known.warm}),
                    "draining": known.draining,
                }
                for device, known in core.devices.items()
            },
        }


def _tensor(spec: TensorSpec, signature: Signature) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.shape if signature.batch else spec.shape[1:]}


def _configured(spec: TensorSpec) -> dict[str, Any]:
    datatype = {"BYTES": "TYPE_STRING"}.get(spec.datatype, f"TYPE_{spec.datatype}")
    return {"name": spec.name, "data_type": datatype, "dims": spec.shape[1:]}
