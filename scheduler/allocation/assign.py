"""Assignment of residents to devices at the least switching cost.

This is a transportation problem. Devices of a group with the same variants loaded are one class, and so are bins with
the same residents, so that thousands of devices make a small problem. Its linear program has integer solutions (its
matrix is totally unimodular), and SCIP's LP solver finds one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyscipopt import LP

from .problem import DeviceResources
from .solver import solved


def assign(
    devices: Sequence[DeviceResources], bins: Sequence[frozenset[str]], saving: Callable[[str], float]
) -> list[DeviceResources]:
    """The device for each bin (a set of variant ids), no more bins than devices.

    ``saving``: what keeping a loaded variant saves, above 0. Among equal choices, the devices with the fewest loaded
    variants take new ones, in the devices' order.
    """
    wanted = frozenset().union(*bins) if bins else frozenset()
    kinds: dict[frozenset[str], list[DeviceResources]] = {}
    for device in devices:
        kinds.setdefault(device.loaded & wanted, []).append(device)
    asked: dict[frozenset[str], int] = {}
    for bin_ in bins:
        asked[bin_] = asked.get(bin_, 0) + 1
    flow = _flow([(kind, len(some)) for kind, some in kinds.items()], list(asked.items()), saving)
    queues = {kind: sorted(some, key=lambda d: len(d.loaded)) for kind, some in kinds.items()}
    given: dict[frozenset[str], list[DeviceResources]] = {bin_: [] for bin_ in asked}
    for (kind, bin_), count in flow.items():
        given[bin_] += queues[kind][:count]
        del queues[kind][:count]
    order = {device.id: i for i, device in enumerate(devices)}
    spare = sorted((d for some in queues.values() for d in some), key=lambda d: (len(d.loaded), order[d.id]))
    for bin_, count in asked.items():
        more = count - len(given[bin_])
        given[bin_] += spare[:more]
        del spare[:more]
        given[bin_].sort(key=lambda d: order[d.id], reverse=True)
    return [given[bin_].pop() for bin_ in bins]


def keep_loaded(devices: Sequence[DeviceResources], counts: Mapping[str, int]) -> dict[str, str]:
    """The variant by device id with the fewest loads; ``counts[m]`` devices get m."""
    copies = [variant for variant, count in counts.items() for _ in range(count)]
    hosts = assign(devices, [frozenset([variant]) for variant in copies], lambda _variant: 1.0)
    return {device.id: variant for device, variant in zip(hosts, copies, strict=True)}


def _flow(
    kinds: list[tuple[frozenset[str], int]], asked: list[tuple[frozenset[str], int]], saving: Callable[[str], float]
) -> dict[tuple[frozenset[str], frozenset[str]], int]:
    """Devices by (loaded variants of a class of devices, variants of a class of bins).

    Only pairs of classes that keep a variant loaded are counted.
    """
    pairs = [
        (i, j, sum(saving(v) for v in sorted(loaded & bin_)))
        for i, (loaded, _) in enumerate(kinds)
        if loaded
        for j, (bin_, _) in enumerate(asked)
        if loaded & bin_
    ]
    if not pairs:
        return {}
    lp = LP(sense="maximize")
    sides = [float(n) for _, n in kinds] + [float(n) for _, n in asked]
    lp.addRows([[]] * len(sides), [0.0] * len(sides), sides)
    largest = max(gain for _, _, gain in pairs)
    lp.addCols(
        [[(i, 1.0), (len(kinds) + j, 1.0)] for i, j, _ in pairs],
        [gain / largest for _, _, gain in pairs],
        [0.0] * len(pairs),
        [1e20] * len(pairs),
    )
    solved(lp)
    return {(kinds[i][0], asked[j][0]): round(x) for (i, j, _), x in zip(pairs, lp.getPrimal(), strict=True) if x > 0.5}
