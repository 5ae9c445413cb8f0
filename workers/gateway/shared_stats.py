"""Totals of all gateways on a box: each writes what it counted to a file of its own, and reads the others'.

Which process takes a connection is the kernel's choice, so whoever is asked must know of all. Files, because whoever is
asked can read them at once, and because a process that died leaves them: it goes on from there when it comes back.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from workers import disk, log
from workers.protocol.gateways import VERSION, ApplicationTotals, GatewayTotals

from .stats import Totals

logger = log.get("gateway.totals")

#: length and checksum of what follows: a reader may come while the file is written
_HEAD = struct.Struct("<II")
#: a file that is being written is whole again in microseconds
TRIES = 5

ByApplication = Mapping[str, ApplicationTotals]


class SharedStats:
    """One gateway's view of all.

    Args:
        files: of all gateways of the box; the folder must exist.
        own: which of them is this gateway's.
    """

    def __init__(self, files: Sequence[Path], own: int):
        self._files = [file for i, file in enumerate(files) if i != own]
        self._own = files[own]
        self._earlier: ByApplication = _read(self._own) or {}
        self._known: dict[Path, ByApplication] = {}
        self._written = b""
        self._failing = False
        self._handle: int | None = None

    def write(self, totals: Mapping[str, Totals]) -> None:
        """Let the others know what this process counted since it started. Costs next to nothing without news."""
        applications = {
            name: add(msgspec.convert(total, ApplicationTotals, from_attributes=True), self._earlier.get(name))
            for name, total in totals.items()
        }
        data = msgspec.msgpack.encode(GatewayTotals(applications={**self._earlier, **applications}))
        if data == self._written:
            return
        try:
            if self._handle is None:
                self._handle = os.open(self._own, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._handle, _HEAD.pack(len(data), zlib.crc32(data)) + data, 0)
        except OSError as error:
            # It counts on all the same; the others tell what they know of it.
            if not self._failing:
                logger.error("totals_not_written", path=str(self._own), reason=str(error))
            self._failing = True
            return
        self._written, self._failing = data, False

    def elsewhere(self) -> list[ByApplication]:
        """What other processes counted: the other gateways, and this one's earlier ones."""
        for file in self._files:
            read = _read(file)
            if read is not None:
                self._known[file] = read
        return [self._earlier, *self._known.values()]

    def close(self) -> None:
        """Stop writing; the file stays."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def add(first: ApplicationTotals, *others: ApplicationTotals | None) -> ApplicationTotals:
    """The sum; of the last successes the last one."""
    known = [first, *(other for other in others if other is not None)]
    sums = {name: sum(getattr(one, name) for one in known) for name in ApplicationTotals.__struct_fields__}
    return ApplicationTotals(**{**sums, "last_success_unix": max(one.last_success_unix for one in known)})


def _read(path: Path) -> ByApplication | None:
    """A gateway's totals; None where there are none (yet), or none that can be read."""
    for _ in range(TRIES):
        try:
            raw = disk.read(path)
        except OSError as error:
            logger.error("totals_unreadable", path=str(path), reason=str(error))
            return None
        if raw is None:
            return None
        if len(raw) >= _HEAD.size:
            length, checksum = _HEAD.unpack_from(raw)
            data = raw[_HEAD.size : _HEAD.size + length]
            if len(data) == length and zlib.crc32(data) == checksum:
                return _decode(path, data)
    logger.error("totals_unreadable", path=str(path), reason="length and checksum do not fit the content")
    return None


def _decode(path: Path, data: bytes) -> ByApplication | None:
    try:
        totals = msgspec.msgpack.decode(data, type=GatewayTotals)
    except msgspec.DecodeError as error:
        logger.error("totals_unreadable", path=str(path), reason=str(error))
        return None
    if totals.v != VERSION:
        logger.error("totals_unreadable", path=str(path), reason=f"version {totals.v} is not {VERSION}")
        return None
    return totals.applications
