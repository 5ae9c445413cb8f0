"""The network between boxes: passes on each box's packets, late or never.

Packets go from one box's TUN device to another's.

    python -m benchmarks.cluster.router NAMESPACE=LAST,DELAY_MS,JITTER_MS,LOSS_PERCENT ...

Each box has the address ``SUBNET.LAST``. Lines on standard input change the network, each answered by one on standard
output: ``cut N``: box N is off; ``mend``: all is as it was; ``divide A,B C,D``: no packet passes between the groups.
Kernels without netem can do this, too; packets keep their order.
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
import sys
import time
from typing import NamedTuple

SUBNET = "10.77.0"
MTU = 8900
_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
#: packets that are taken from one box in a turn
_TURN = 64
#: bytes that may be under way to one box; more are dropped, as a switch does
_ROOM = 16 * 2**20


class Way(NamedTuple):
    """The way between a box and all others, alike in each direction.

    Attributes:
        delay_s, jitter_s: seconds.
        loss: share of packets that is lost, 0 to 1.
    """

    delay_s: float
    jitter_s: float
    loss: float


def enter(namespace: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as handle:
        if libc.setns(handle.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {namespace}")


def open_tun(namespace: str, last: int) -> int:
    """Make a TUN device with its address in a namespace.

    This thread stays in that namespace.
    """
    enter(namespace)
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", b"net", _IFF_TUN | _IFF_NO_PI))
    for command in (
        ["ip", "link", "set", "lo", "up"],
        ["ip", "address", "add", f"{SUBNET}.{last}/24", "dev", "net"],
        ["ip", "link", "set", "net", "mtu", str(MTU), "txqueuelen", "2000", "up"],
    ):
        subprocess.run(command, check=True)
    return tun


class Router:
    def __init__(self, boxes: dict[int, tuple[int, Way]]) -> None:
        self._tuns = {last: tun for last, (tun, _) in boxes.items()}
        self._ways = {last: way for last, (_, way) in boxes.items()}
        self._due: list[tuple[float, int, int, bytes]] = []
        self._latest: dict[tuple[int, int], float] = {}
        self._under_way = dict.fromkeys(boxes, 0)
        self._count = 0
        self._cut: set[int] = set()
        self._divided: set[tuple[int, int]] = set()
        self._random = random.Random(1)

    def command(self, line: str) -> str:
        match line.split():
            case ["cut", last]:
                self._cut.add(int(last))
            case ["divide", one, other]:
                for a in map(int, one.split(",")):
                    for b in map(int, other.split(",")):
                        self._divided |= {(a, b), (b, a)}
            case ["mend"]:
                self._cut.clear()
                self._divided.clear()
            case _:
                return f"unknown: {line}"
        return "done"

    def take(self, source: int) -> None:
        now, way = time.monotonic(), self._ways[source]
        for _ in range(_TURN):
            try:
                packet = os.read(self._tuns[source], MTU + 100)
            except BlockingIOError:
                return
            target = packet[19] if len(packet) >= 20 and packet[0] >> 4 == 4 else -1
            if target not in self._tuns or source in self._cut or target in self._cut:
                continue
            other = self._ways[target]
            lost = self._random.random() < way.loss + other.loss
            if lost or (source, target) in self._divided or self._under_way[target] > _ROOM:
                continue
            jitter_s = self._random.uniform(-1, 1) * (way.jitter_s + other.jitter_s)
            due = max(self._latest.get((source, target), 0.0), now + way.delay_s + other.delay_s + jitter_s)
            self._latest[source, target] = due
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
                os.write(self._tuns[target], packet)
            except OSError:
                # A box that takes no more packets loses them.
                continue
        return None

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for last, tun in self._tuns.items():
                selector.register(tun, selectors.EVENT_READ, last)
            selector.register(sys.stdin, selectors.EVENT_READ, None)
            while True:
                for key, _ in selector.select(self.give()):
                    if key.data is not None:
                        self.take(key.data)
                    elif line := sys.stdin.readline():
                        print(self.command(line), flush=True)
                    else:
                        return


def main() -> None:
    boxes: dict[int, tuple[int, Way]] = {}
    for argument in sys.argv[1:]:
        namespace, _, way = argument.partition("=")
        last, delay_ms, jitter_ms, loss = way.split(",")
        made = Way(float(delay_ms) / 1e3, float(jitter_ms) / 1e3, float(loss) / 100)
        boxes[int(last)] = open_tun(namespace, int(last)), made
    print("routes", flush=True)
    Router(boxes).run()


if __name__ == "__main__":
    main()
