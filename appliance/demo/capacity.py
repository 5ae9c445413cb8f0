"""The appliance's capacity for the demo: what plans count on, read over REST."""

from __future__ import annotations

from collections.abc import Iterable

from .manifest import DemoApplication
from .rates import LoadCapacity
from .rest import client, pages


def measured(base_url: str, token: str, applications: Iterable[DemoApplication]) -> dict[str, LoadCapacity]:
    """Each application's part of the devices, which all of them share evenly.

    Raises RestError, or LookupError where something is not profiled yet or no device is up.
    """
    wanted = tuple(applications)
    found = {}
    with client(base_url, token) as rest:
        types = [device["type"] for device in pages(rest, "/devices/") if device["state"] == "up"]
        if not types:
            raise LookupError("no device is up")
        for application in wanted:
            points = pages(rest, f"/applications/{application.name}/frontier/")
            # On a box where not even one row fits the SLO, its rate is one row after the other.
            rates = {(one["variant"], one["device_type"]): one["rate"] or 1000 / one["fastest_ms"] for one in points}
            by_accuracy = sorted(application.variants, key=lambda variant: variant.accuracy)
            try:
                carried = [sum(rates[by_accuracy[at].name, kind] for kind in types) / len(wanted) for at in (-1, 0)]
            except KeyError as missing:
                raise LookupError("{}/{} has no profile on {}".format(application.name, *missing.args[0])) from None
            found[application.name] = LoadCapacity(*carried)
    return found
