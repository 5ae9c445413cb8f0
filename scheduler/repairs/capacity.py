"""Shares of the cluster's capacity by device. Pure.

A device's share is the mean, over applications, of what the fastest variant serves on it alone of what it serves on all
devices; without profiles all devices count alike.
"""

from __future__ import annotations

from collections.abc import Collection

from scheduler.allocation.capacity import dedicated_capacity, profile_on
from scheduler.allocation.problem import ApplicationDemand, DeviceResources, Problem


def fastest(problem: Problem, application: ApplicationDemand, device: DeviceResources) -> float:
    """Items/s of the application's fastest variant alone there; 0: none is in time."""
    rates = [0.0]
    for variant in problem.variants:
        if variant.application != application.id or variant.excluded:
            continue
        profile = profile_on(variant, device)
        capacity = dedicated_capacity(profile, application.slo_s) if profile is not None else None
        if capacity is not None:
            rates.append(capacity.rate)
    return max(rates)


def shares(problem: Problem) -> dict[str, float]:
    by_application = []
    for application in problem.applications:
        by_type: dict[tuple[str, int | None], float] = {}
        rates = {}
        for device in problem.devices:
            alike = device.type, device.memory_bytes
            if alike not in by_type:
                by_type[alike] = fastest(problem, application, device)
            rates[device.id] = by_type[alike]
        total = sum(rates.values())
        if total > 0:
            by_application.append({name: rate / total for name, rate in rates.items()})
    if not by_application:
        return {device.id: 1 / len(problem.devices) for device in problem.devices}
    return {
        device.id: sum(each[device.id] for each in by_application) / len(by_application) for device in problem.devices
    }


def runnable(problem: Problem, devices: Collection[str]) -> int:
    types = {device.type for device in problem.devices if device.id in devices}
    return sum(bool(types & variant.profiles.keys()) for variant in problem.variants)
