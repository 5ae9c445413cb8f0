"""The appliance's capacity for the demo, by its profiles, read over REST."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scheduler.allocation.capacity import dedicated_capacity
from scheduler.allocation.problem import LatencyProfile

from .manifest import DemoApplication
from .rates import LoadCapacity
from .rest import client, pages


def throughput(latencies: Iterable[Mapping], slo_ms: float, latency: str = "p95_ms") -> float:
    """Return the queries/s of a device that runs one variant, by ``latency``.

    If no batch has a p95 of at most half the SLO, the quickest one counts.
    """
    points = sorted(latencies, key=lambda point: point["batch"])
    seconds, slowest = (tuple((point["batch"], point[name] / 1000) for point in points) for name in (latency, "p95_ms"))
    capacity = dedicated_capacity(LatencyProfile(seconds, slowest=slowest), slo_ms / 1000)
    if capacity is not None:
        return capacity.rate
    quickest = min(points, key=lambda point: point["p95_ms"])
    return 1000 * quickest["batch"] / quickest[latency]


def capacity(
    application: DemoApplication, profiles: Iterable[Mapping], device_types: Iterable[str], applications: int
) -> LoadCapacity:
    """One application's part of the devices, which ``applications`` share evenly.

    Args:
        profiles: as the REST API gives them: ``variant``, ``device_type``, ``latencies``.
        device_types: one entry a device that is up.

    Raises:
        LookupError: a variant has no profile on a device type, or there is no device.
    """
    # Latencies for queries of any size.
    latencies = {(p["variant"], p["device_type"]): [x for x in p["latencies"] if not x.get("size")] for p in profiles}
    found = {key: some for key, some in latencies.items() if some}
    types = list(device_types)
    if not types:
        raise LookupError("no device is up")

    def carried(variant: str, latency: str) -> float:
        total = 0.0
        for kind in types:
            if (variant, kind) not in found:
                raise LookupError(f"{application.name}/{variant} has no profile on {kind}")
            total += throughput(found[variant, kind], application.slo_ms, latency)
        return total / applications

    by_accuracy = sorted(application.variants, key=lambda variant: variant.accuracy)
    # The capacity to exceed is an upper estimate, by mean latency, the one not to exceed a lower estimate: measured on
    # a busy box, a costly variant's p95 may be several times its mean.
    return LoadCapacity(
        most_accurate=carried(by_accuracy[-1].name, "mean_ms"), least_accurate=carried(by_accuracy[0].name, "p95_ms")
    )


def measured(base_url: str, token: str, applications: Iterable[DemoApplication]) -> dict[str, LoadCapacity]:
    """Capacities by application, of profiles and devices.

    Raises RestError, or LookupError where something is not profiled yet or no device is up.
    """
    wanted = tuple(applications)
    with client(base_url, token) as rest:
        types = [device["type"] for device in pages(rest, "/devices/") if device["state"] == "up"]
        return {
            application.name: capacity(
                application, pages(rest, f"/applications/{application.name}/profiles/"), types, len(wanted)
            )
            for application in wanted
        }
