"""Totals of all fronts of a box, each of which writes a file that others read.

The kernel chooses the front that takes a connection, so each must be able to answer for all. Files can be read at any
time, and outlive a process that dies: its successor continues from there.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from workers import disk, log
from workers.protocol.gateways import VERSION, ApplicationTotals, GatewayTotals

from .options import LocalGateways

logger = log.get("gateway.shared_stats")

ByApplication = Mapping[str, ApplicationTotals]


class SharedStats:
    """One front's view of all.

    Args:
        local_gateways: the box's fronts; None: there is no other one.
        totals: this front's, which start with those in its file.
    """

    def __init__(self, local_gateways: LocalGateways | None, totals: dict[str, ApplicationTotals]):
        self._totals = totals
        self._files: list[Path] = []
        if local_gateways is not None:
            self._files = [file for i, file in enumerate(local_gateways.totals) if i != local_gateways.own]
            self._own = local_gateways.totals[local_gateways.own]
            before = _read(self._own)
            totals.update(before.applications if before is not None else {})
        self.fronts = len(self._files) + 1
        self._known: dict[Path, GatewayTotals] = {}
        self._written = b""
        self._failing = False

    def write(self, keys: Mapping[str, int] = MappingProxyType({})) -> None:
        if not self._files:
            return
        data = msgspec.msgpack.encode(GatewayTotals(applications=self._totals, keys=dict(keys)))
        if data == self._written:
            return
        new = self._own.with_suffix(".new")
        try:
            new.write_bytes(data)
            os.replace(new, self._own)
        except OSError as error:
            # Counting goes on; the other fronts keep the totals that they read last.
            if not self._failing:
                logger.error("totals_not_written", path=str(self._own), reason=str(error))
            self._failing = True
            return
        self._written, self._failing = data, False

    def elsewhere(self) -> list[ByApplication]:
        return [totals.applications for totals in self._others()]

    def keys_elsewhere(self) -> dict[str, int]:
        return dict(sum((Counter(totals.keys) for totals in self._others()), Counter()))

    def _others(self) -> list[GatewayTotals]:
        for file in self._files:
            read = _read(file)
            if read is not None:
                self._known[file] = read
        return list(self._known.values())


def added(totals: Iterable[ApplicationTotals]) -> ApplicationTotals:
    """The sum of at least one; its last success is the latest."""
    known = list(totals)
    sums = {name: sum(getattr(one, name) for one in known) for name in ApplicationTotals.__struct_fields__}
    return ApplicationTotals(**{**sums, "last_success_unix": max(one.last_success_unix for one in known)})


def _read(path: Path) -> GatewayTotals | None:
    """A front's totals; None if there are none, or if they cannot be read."""
    try:
        data = disk.read(path)
        if data is None:
            return None
        totals = msgspec.msgpack.decode(data, type=GatewayTotals)
        if totals.v == VERSION:
            return totals
        reason = f"version {totals.v} is not {VERSION}"
    except (OSError, msgspec.DecodeError) as error:
        reason = str(error)
    logger.error("totals_unreadable", path=str(path), reason=reason)
    return None
