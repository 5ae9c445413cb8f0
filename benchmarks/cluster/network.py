"""Network namespaces as boxes, with delays, losses and cuts between them; needs root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.spawned import Spawned

from .router import Place, enter, route


class Network:
    """Boxes that reach each other through :mod:`.router`; ``name`` begins their namespaces' names."""

    def __init__(self, name: str, places: Iterable[Place]) -> None:
        self._places = {place.name: place for place in places}
        self._names = {place: f"{name}-{place}" for place in self._places}
        self._router: Spawned | None = None

    def open(self) -> None:
        for namespace in self._names.values():
            subprocess.run(["ip", "netns", "add", namespace], check=True)
        self._router = Spawned(route, {self._names[name]: place for name, place in self._places.items()})
        self._router.heard()

    def close(self) -> None:
        if self._router is not None:
            self._router.close()
        for namespace in self._names.values():
            subprocess.run(["ip", "netns", "delete", namespace], check=False)

    def enter(self, place: str) -> None:
        enter(self._names[place])

    def inside(self, place: str, cpu_model: Path | None = None) -> list[str]:
        """Begins a command that is run in a box; ``cpu_model`` stands in the place of its /proc/cpuinfo."""
        inside = ["ip", "netns", "exec", self._names[place]]
        if cpu_model is None:
            return inside
        return [*inside, "sh", "-c", 'mount --bind "$0" /proc/cpuinfo && exec "$@"', str(cpu_model)]

    def divide(self, one: Sequence[str], other: Sequence[str]) -> None:
        """Lose all packets between two groups of boxes, without telling anybody."""
        pairs = {(self._places[a].last, self._places[b].last) for a in one for b in other}
        self._router.ask(pairs | {(b, a) for a, b in pairs})

    def cut(self, place: str) -> None:
        self.divide([place], [name for name in self._places if name != place])

    def mend(self) -> None:
        self._router.ask(set())


def allowed() -> bool:
    return os.geteuid() == 0 and os.path.exists("/dev/net/tun")
