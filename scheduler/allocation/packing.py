"""Packing of resident counts onto devices.

Its limits are the slice budget, memory and the residents allowed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from .groups import IdenticalDevices
from .matching import best_assignment
from .problem import DeviceResources
from .proteus import DedicatedOption
from .residents import ResidentCapacity, dedicated_resident
from .sharing_model import Choices, dedicated_names, shared_names
from .time_slices import SliceOption, slice_budget_s


@dataclass
class Bin:
    """A device being packed.

    Attributes:
        revisit_s: its revisit period, seconds; 0: dedicated.
        residents: with the rows of their slices.
        dedicated: the only resident of a dedicated device; None: it is shared.
    """

    revisit_s: float
    residents: list[tuple[SliceOption, int]] = field(default_factory=list)
    dedicated: DedicatedOption | None = None

    @property
    def variants(self) -> set[str]:
        if self.dedicated is not None:
            return {self.dedicated.variant.id}
        return {option.variant.id for option, _ in self.residents}

    def rows_that_fit(self, group: IdenticalDevices, option: SliceOption) -> int:
        """Rows of a slice that ``option`` could still get here; 0: it does not fit."""
        device = group.one
        if any(o.variant.application == option.variant.application for o, _ in self.residents):
            return 0
        if device.max_resident is not None and len(self.residents) >= device.max_resident:
            return 0
        memory = option.memory_bytes + sum(o.memory_bytes for o, _ in self.residents)
        if device.memory_bytes is not None and memory > device.memory_bytes:
            return 0
        left = slice_budget_s(group, self.revisit_s) * (1 + 1e-9) - sum(
            o.cost.seconds(rows) for o, rows in self.residents
        )
        if left < option.cost.seconds(1):
            return 0
        if option.cost.beta_s <= 0:
            return option.cost.max_rows
        return min(option.cost.max_rows, math.floor((left - option.cost.alpha_s) / option.cost.beta_s * (1 + 1e-12)))

    def use_what_is_left(self, group: IdenticalDevices) -> None:
        """Give slices more rows while the slice budget allows.

        They absorb bursts. The largest relative gain comes first.
        """
        while True:
            left = slice_budget_s(group, self.revisit_s) - sum(o.cost.seconds(rows) for o, rows in self.residents)
            growing = [
                (1 / rows, -i)
                for i, (o, rows) in enumerate(self.residents)
                if rows < o.cost.max_rows and o.cost.beta_s <= left
            ]
            if not growing:
                return
            i = -max(growing)[1]
            option, rows = self.residents[i]
            self.residents[i] = (option, rows + 1)


def pack(offered: Choices, values: Mapping[str, float]) -> dict[int, list[Bin]]:
    """Pack the residents that a solution counts into bins, by group.

    This is exact for groups of one device. Otherwise it is first-fit decreasing, where a resident that fits no bin
    takes fewer rows in the emptiest one, or is dropped.
    """
    bins: dict[int, list[Bin]] = {g: [] for g in range(len(offered.groups))}
    for option in offered.dedicated:
        x_name, y_name = dedicated_names(option)
        if values.get(y_name, 0.0) > 0:
            bins[option.group] += [Bin(0.0, dedicated=option) for _ in range(round(values.get(x_name, 0.0)))]
    items: dict[tuple[int, float], list[tuple[SliceOption, int]]] = {}
    for option in offered.shared:
        r_name, w_name, y_name = shared_names(option)
        residents, rows = round(values.get(r_name, 0.0)), round(values.get(w_name, 0.0))
        if residents < 1 or values.get(y_name, 0.0) <= 0:
            continue
        each, more = divmod(rows, residents)
        items.setdefault((option.group, option.revisit_s), []).extend(
            (option, max(1, min(option.cost.max_rows, each + (i < more)))) for i in range(residents)
        )
    for (g, revisit_s), wanted in items.items():
        group = offered.groups[g]
        mine = [Bin(revisit_s) for _ in range(round(values.get(f"n_{g}_{revisit_s}", 0.0)))]
        wanted.sort(key=lambda item: (-item[0].cost.seconds(item[1]), item[0].variant.id))
        for option, rows in wanted:
            fitting = [(b.rows_that_fit(group, option), -i) for i, b in enumerate(mine)]
            enough = [(-i, r) for r, i in fitting if r >= rows]
            if enough:
                mine[min(enough)[0]].residents.append((option, rows))
            elif fitting and max(fitting)[0] > 0:
                fewer, i = max(fitting)
                mine[-i].residents.append((option, fewer))
        bins[g] += [b for b in mine if b.residents]
    return bins


def residents_of(offered: Choices, bins: Mapping[int, list[Bin]]) -> list[ResidentCapacity]:
    """Return the residents of bins, assigned to each group's devices.

    As many loaded variants as possible stay in place.
    """
    residents: list[ResidentCapacity] = []
    for g, group in enumerate(offered.groups):
        mine = bins.get(g, [])
        gain = [[float(len(b.variants & device.loaded)) for device in group.devices] for b in mine]
        for b, index in zip(mine, best_assignment(gain), strict=True):
            residents += _residents(group, group.devices[index], b)
    return residents


def _residents(group: IdenticalDevices, device: DeviceResources, packed: Bin) -> list[ResidentCapacity]:
    if packed.dedicated is not None:
        return [dedicated_resident(device, packed.dedicated.variant, packed.dedicated.capacity)]
    packed.use_what_is_left(group)
    return [
        ResidentCapacity(
            device, option.variant, rows / packed.revisit_s, rows, revisit_s=packed.revisit_s, cost=option.cost
        )
        for option, rows in packed.residents
    ]
