"""The device's statistics, one second at a time, for the control plane."""

from __future__ import annotations

from dataclasses import dataclass

from workers.protocol.specs import DeviceStats, VariantStats

from .loaded import Loaded

#: share of a second's rows, and number of them, from which refusals are called an overload
OVERLOAD_SHARE = 0.05
OVERLOAD_ROWS = 3


@dataclass(slots=True)
class _Ran:
    application: str
    rows: int = 0
    batches: int = 0
    busy_s: float = 0.0


class DeviceSecond:
    def __init__(self, now: float):
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._began = now
        self._busy_s = 0.0
        self._profiling_s = 0.0
        self._ran: dict[int, _Ran] = {}
        self._arrived: dict[str, int] = {}
        self._refused: dict[str, int] = {}

    def arrived(self, application: str, rows: int) -> None:
        self._arrived[application] = self._arrived.get(application, 0) + rows

    def refused(self, application: str, rows: int) -> None:
        """Rows refused as late or because the queue was full."""
        self._refused[application] = self._refused.get(application, 0) + rows

    def batch(self, loaded: Loaded, rows: int, run_s: float) -> None:
        ran = self._ran.get(loaded.id)
        if ran is None:
            ran = self._ran[loaded.id] = _Ran(loaded.variant.application)
        ran.rows += rows
        ran.batches += 1
        ran.busy_s += run_s
        self._busy_s += run_s

    def profiled(self, took_s: float) -> None:
        self._profiling_s += took_s

    def overloads(self) -> list[tuple[str, int, int]]:
        """Return (application, rows arrived, rows refused) of likely overloads."""
        return [
            (name, max(self._arrived.get(name, 0), refused), refused)
            for name, refused in self._refused.items()
            if refused >= max(OVERLOAD_ROWS, OVERLOAD_SHARE * self._arrived.get(name, 0))
        ]

    def close(
        self, now: float, device: str, queued_rows: int, memory_bytes: int, plan_version: int, loaded: dict[int, Loaded]
    ) -> DeviceStats:
        """Close the second that ends at ``now``. Call :meth:`overloads` before."""
        elapsed = max(now - self._began, 1e-6)
        variants = tuple(
            VariantStats(
                variant=id,
                application=ran.application,
                rows=ran.rows,
                batches=ran.batches,
                busy_s=ran.busy_s,
                drift=loaded[id].ratio if id in loaded else 0.0,
            )
            for id, ran in sorted(self._ran.items())
        )
        stats = DeviceStats(
            device=device,
            busy=min(1.0, self._busy_s / elapsed),
            profiling=min(1.0, self._profiling_s / elapsed),
            queued_rows=queued_rows,
            memory_bytes=memory_bytes,
            plan_version=plan_version,
            variants=variants,
        )
        self._begin(now)
        return stats
