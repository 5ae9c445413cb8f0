"""A cluster in network namespaces; needs root.

    python -m benchmarks cluster [--rows ROW ...] [--open]

One control box, two gateways, nodes of three kinds (slowed by quotas of control groups), 2 ms and 20 ms away with
jitter and 0.5% loss, and the demo's applications with three variants each. Each row does something to it under load and
checks what clients recorded; ``--open`` keeps it running for a browser instead.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.faults import history
from benchmarks.faults.checker import check
from benchmarks.faults.clients import Work
from benchmarks.harness import ClientProcess

from .attempts import stream
from .boxes import HTTP_PORT, Cluster, Kind, wait_for
from .network import Network, Place, allowed
from .rows import ROWS, Site
from .shares import Share
from .simulated import Served, chosen
from .watch import Watch, ready

#: Shares of a core. Together they leave the machine room for all else, so that devices are as quick as profiled.
KINDS = (Kind("Rack CPU 3000", 0.3), Kind("Desk CPU 500", 0.2), Kind("Edge CPU 10", 0.12))
SLO_MS = 500.0
#: of the router, the load and this process
NETWORK_WEIGHT = 8
#: seconds of load before a row, and after it
BEFORE_S, AFTER_S = 8.0, 3.0
#: seconds that a client waits for a connection, and for an answer
CONNECT_S, PATIENCE_S = 1.0, 5.0
#: of rows that last longer with ``--long``
LONG_S = {"control-lost": 600.0, "simulated": 300.0}


def places(nodes: int) -> list[Place]:
    near = {"delay_ms": 0.5, "jitter_ms": 0.1, "loss": 0.25}
    far = {"delay_ms": 9.5, "jitter_ms": 1.0, "loss": 0.25}
    made = [Place("control", 1), Place("gw1", 2, **near), Place("gw2", 3, **near)]
    made += [Place(f"n{n}", 10 + n, **(near if n % 2 else far)) for n in range(1, nodes + 1)]
    return [*made, Place("client", 254)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the cluster, run the rows, print a table; 1: a check failed."""
    parser = argparse.ArgumentParser(prog="benchmarks cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=tuple(ROWS), default=list(ROWS))
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--load", type=float, default=0.5, help="of the devices' time (default: 0.5)")
    parser.add_argument("--seconds", type=float, help="how long each fault lasts, instead of its own time")
    parser.add_argument("--long", action="store_true", help="the control box is lost for 10 minutes, not 2")
    parser.add_argument("--keep", type=Path, help="folder that gets the history of each row")
    parser.add_argument("--open", action="store_true", help="keep the cluster until Ctrl-C")
    given = parser.parse_args(arguments)
    if not allowed():
        print("namespaces and TUN devices need root and /dev/net/tun", file=sys.stderr)
        return 1
    folder, boxes = Path(tempfile.mkdtemp(prefix="nereus-cluster-")), places(given.nodes)
    failed, share = 0, Share("nereus-network", NETWORK_WEIGHT)
    share.enter()
    with Network("nereus", boxes) as network:
        network.enter(boxes[-1].name)
        cluster = Cluster(network, folder, boxes[0])
        try:
            site = build(network, cluster, boxes)
            if given.open:
                _stay(cluster)
            failed = sum(_row(site, name, given, folder) for name in given.rows)
        except KeyboardInterrupt:
            pass
        finally:
            cluster.stop()
    share.leave()
    share.remove()
    shutil.rmtree(folder, ignore_errors=True)
    return min(1, failed)


def build(network: Network, cluster: Cluster, boxes: Sequence[Place]) -> Site:
    began = time.monotonic()
    cluster.start_control()
    for place in boxes[1:3]:
        cluster.add_gateway(place)
    for number, place in enumerate(boxes[3:-1]):
        cluster.add_node(place, number % (os.cpu_count() or 1), KINDS[number % len(KINDS)])
    count = len(boxes) - 4
    wait_for(lambda: len(cluster.answers("/devices/")) == count, "all nodes have joined", *cluster.boxes)
    for node in cluster.nodes:
        node.settle()
    print(f"{len(boxes) - 1} boxes joined after {time.monotonic() - began:.0f} s", flush=True)
    wanted = chosen(SLO_MS)
    cluster.register(wanted)
    print(f"the variants are profiled after {time.monotonic() - began:.0f} s", flush=True)
    for gateway in cluster.gateways:
        wait_for(lambda gateway=gateway: ready(gateway), f"{gateway.name} is ready", gateway)
    devices = tuple((device["ref"], device["type"]) for device in cluster.answers("/devices/"))
    return Site(network, cluster, wanted, Served(devices, cluster.profiles(wanted)))


def _stay(cluster: Cluster) -> None:
    gateways = ", ".join(f"http://{gateway.address}:{HTTP_PORT}" for gateway in cluster.gateways)
    print(f"console: {cluster.url}, gateways: {gateways}, in namespace nereus-client; Ctrl-C ends it", flush=True)
    while True:
        time.sleep(3600)


def _row(site: Site, name: str, given: argparse.Namespace, folder: Path) -> bool:
    """Carry out a row, and print what it found; whether a check failed."""
    carry_out, seconds = ROWS[name]
    seconds = given.seconds or (LONG_S.get(name, seconds) if given.long else seconds)
    wished = site.served.rates(site.wanted, given.load)
    work = Work(
        file=str(folder / f"{name}.clients.jsonl"),
        hosts=[gateway.address for gateway in site.cluster.gateways],
        http=HTTP_PORT,
        key=site.cluster.control.credentials["api_key"],
        streams=[stream(one, wished[one.name]) for one in site.wanted],
        patience_s=PATIENCE_S,
        connect_s=CONNECT_S,
    )
    with Watch(site.cluster) as watch, ClientProcess("benchmarks.faults.clients", work) as load:
        time.sleep(BEFORE_S)
        figures = carry_out(site, watch, seconds)
        time.sleep(AFTER_S)
    events = sorted([*watch.events, *history.read(load.file)], key=lambda event: event.at)
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
        history.write(given.keep / f"{name}.jsonl", events)
    figures.count(events)
    booked = watch.double_booked()
    figures.values["devices of two cores at once"] = ", ".join(sorted(booked)) or "none"
    violations = check(events, *figures.cut, gateways=[gateway.name for gateway in site.cluster.gateways])
    figures.values["sent"] = f"{sum(wished.values()):.0f} queries/s, load average {os.getloadavg()[0]:.0f}"
    figures.values["violations of the checker"] = str(len(violations))
    for figure, value in figures.values.items():
        print(f"| {name} | {figure} | {value} |", flush=True)
    for one in violations[:20]:
        print(f"  {one.rule}: {one.text}", flush=True)
    return bool(violations or booked)


if __name__ == "__main__":
    sys.exit(main())
