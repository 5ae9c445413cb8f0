"""The network between boxes: passes on each box's packets, late or never.

Packets go from one box's TUN device to another's. Kernels without netem can do this, too; packets keep their order.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import selectors
import struct
import subprocess
import time
from collections import defaultdict
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import NamedTuple

SUBNET = "10.77.0"
MTU = 8900
_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
#: packets that are taken from one box in a turn
_TURN = 64
#: bytes that may be under way to one box; more are dropped, as a switch does
_ROOM = 16 * 2**20


class Place(NamedTuple):
    """A box in the network, and the way between it and all others, alike in each direction.

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


def enter(namespace: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as handle:
        if libc.setns(handle.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {namespace}")


def open_tun(namespace: str, place: Place) -> int:
    """Make a TUN device with its address in a namespace, in which this thread stays."""
    enter(namespace)
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", b"net", _IFF_TUN | _IFF_NO_PI))
    for command in (
        ["ip", "link", "set", "lo", "up"],
        ["ip", "address", "add", f"{place.address}/24", "dev", "net"],
        ["ip", "link", "set", "net", "mtu", str(MTU), "txqueuelen", "2000", "up"],
    ):
        subprocess.run(command, check=True)
    return tun


class Router:
    """``divided``: pairs of boxes between which no packet passes."""

    def __init__(self, boxes: Mapping[int, tuple[int, Place]]) -> None:
        self.boxes = boxes
        self._due: list[tuple[float, int, int, bytes]] = []
        self._latest: dict[tuple[int, int], float] = defaultdict(float)
        self._under_way = dict.fromkeys(boxes, 0)
        self._count = 0
        self._random = random.Random(1)
        self.divided: set[tuple[int, int]] = set()

    def take(self, source: int) -> None:
        now, (tun, way) = time.monotonic(), self.boxes[source]
        for _ in range(_TURN):
            try:
                packet = os.read(tun, MTU + 100)
            except BlockingIOError:
                return
            target = packet[19] if len(packet) >= 20 and packet[0] >> 4 == 4 else -1
            if target not in self.boxes or (source, target) in self.divided or self._under_way[target] > _ROOM:
                continue
            other = self.boxes[target][1]
            if 100 * self._random.random() < way.loss + other.loss:
                continue
            jitter_ms = self._random.uniform(-1, 1) * (way.jitter_ms + other.jitter_ms)
            due = now + (way.delay_ms + other.delay_ms + jitter_ms) / 1e3
            self._latest[source, target] = due = max(self._latest[source, target], due)
            self._count += 1
            self._under_way[target] += len(packet)
            heapq.heappush(self._due, (due, self._count, target, packet))

    def give(self) -> float | None:
        """Give what has arrived; seconds until the next packet does."""
        while self._due:
            wait = self._due[0][0] - time.monotonic()
            if wait > 0.0001:
                return wait
            _, _, target, packet = heapq.heappop(self._due)
            self._under_way[target] -= len(packet)
            try:
                os.write(self.boxes[target][0], packet)
            except OSError:
                # A box that takes no more packets loses them.
                continue
        return None


def route(pipe: Connection, namespaces: Mapping[str, Place]) -> None:
    """Route between boxes by namespace, until the pipe ends; it brings what is divided, and takes an answer each."""
    router = Router({place.last: (open_tun(namespace, place), place) for namespace, place in namespaces.items()})
    with selectors.DefaultSelector() as selector:
        for last, (tun, _) in router.boxes.items():
            selector.register(tun, selectors.EVENT_READ, last)
        selector.register(pipe, selectors.EVENT_READ, None)
        pipe.send(True)
        while True:
            for key, _ in selector.select(router.give()):
                if key.data is not None:
                    router.take(key.data)
                    continue
                try:
                    router.divided = pipe.recv()
                except EOFError:
                    return
                pipe.send(True)
