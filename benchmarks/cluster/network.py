"""Network namespaces as boxes, with delays, losses and cuts between them.

Needs root; reaches nothing outside.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.child import ROOT

from .router import SUBNET, enter


@dataclass(frozen=True)
class Place:
    """A box in the network.

    Attributes:
        last: of its address.
        delay_ms: of its packets, each way; half of the round trip that it adds.
        loss: of its packets, in percent.
    """

    name: str
    last: int
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0

    @property
    def address(self) -> str:
        return f"{SUBNET}.{self.last}"


class Network:
    """Boxes that reach each other through :mod:`.router`, until it is closed.

    Args:
        name: begins the names of the namespaces.
    """

    def __init__(self, name: str, places: Iterable[Place]) -> None:
        self._places = {place.name: place for place in places}
        self._names = {place: f"{name}-{place}" for place in self._places}
        self._router: subprocess.Popen | None = None

    def open(self) -> None:
        for namespace in self._names.values():
            _run("ip", "netns", "add", namespace)
        boxes = [
            f"{self._names[place.name]}={place.last},{place.delay_ms},{place.jitter_ms},{place.loss}"
            for place in self._places.values()
        ]
        self._router = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.cluster.router", *boxes],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._router.stdout.readline() != "routes\n":
            raise OSError("the router does not start: TUN devices and root are needed")

    def close(self) -> None:
        if self._router is not None:
            self._router.stdin.close()
            self._router.wait(10)
        for namespace in self._names.values():
            subprocess.run(["ip", "netns", "delete", namespace], check=False)

    def enter(self, place: str) -> None:
        enter(self._names[place])

    def inside(self, place: str, cpu_model: Path | None = None) -> list[str]:
        """Begins a command that is run in a box.

        Args:
            cpu_model: stands in the place of /proc/cpuinfo: which CPU the box has.
        """
        inside = ["ip", "netns", "exec", self._names[place]]
        if cpu_model is None:
            return inside
        return [*inside, "sh", "-c", 'mount --bind "$0" /proc/cpuinfo && exec "$@"', str(cpu_model)]

    def cut(self, place: str) -> None:
        self._tell(f"cut {self._places[place].last}")

    def divide(self, one: Iterable[str], other: Iterable[str]) -> None:
        self._tell(
            "divide " + " ".join(",".join(str(self._places[name].last) for name in side) for side in (one, other))
        )

    def mend(self) -> None:
        self._tell("mend")

    def _tell(self, line: str) -> None:
        self._router.stdin.write(line + "\n")
        self._router.stdin.flush()
        if (answer := self._router.stdout.readline()) != "done\n":
            raise OSError(f"router: {line}: {answer.strip() or 'ended'}")


def allowed() -> bool:
    return os.geteuid() == 0 and os.path.exists("/dev/net/tun")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
