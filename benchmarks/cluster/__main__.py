"""A cluster in network namespaces: ``python -m benchmarks cluster [--rows ROW ...] [--open]``. Needs root.

One control box, two gateways, nodes of three kinds, 2 ms and 20 ms away with jitter and 0.5% loss, and the demo's
applications. Each row does something to it under load; ``--open`` keeps it running for a browser instead.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from appliance.demo.manifest import applications

from .boxes import Cluster, wait_for
from .load import Work
from .network import Network, Place, allowed
from .rows import ROWS, Load, Site

KINDS = ("Rack CPU 3000", "Desk CPU 500", "Edge CPU 10")


def places(nodes: int) -> list[Place]:
    """The boxes: half of the nodes are near, the other half far away."""
    near = {"delay_ms": 0.5, "jitter_ms": 0.1, "loss": 0.25}
    far = {"delay_ms": 9.5, "jitter_ms": 1.0, "loss": 0.25}
    made = [Place("control", 1), Place("gw1", 2, **near), Place("gw2", 3, **near)]
    made += [Place(f"n{n}", 10 + n, **(near if n % 2 else far)) for n in range(1, nodes + 1)]
    return [*made, Place("client", 254)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the cluster, run the rows, print a table."""
    parser = argparse.ArgumentParser(prog="benchmarks cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=tuple(ROWS), default=list(ROWS))
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--rate", type=float, default=40.0, help="queries a second in all")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each fault lasts")
    parser.add_argument("--open", action="store_true", help="keep the cluster until Ctrl-C")
    given = parser.parse_args(arguments)
    if not allowed():
        print("namespaces and TUN devices need root and /dev/net/tun", file=sys.stderr)
        return 1
    folder, boxes = Path(tempfile.mkdtemp(prefix="nereus-cluster-")), places(given.nodes)
    with Network("nereus", boxes) as network:
        cluster = Cluster(network, folder, boxes[0])
        try:
            _build(cluster, boxes)
            _run(network, cluster, given)
        except KeyboardInterrupt:
            pass
        finally:
            cluster.stop()
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _build(cluster: Cluster, boxes: Sequence[Place]) -> None:
    began = time.monotonic()
    cluster.start_control()
    for place in boxes[1:3]:
        cluster.add_gateway(place)
    for number, place in enumerate(boxes[3:-1]):
        cluster.add_node(place, str(number % 2), KINDS[number % len(KINDS)])
    count = len(boxes) - 4
    wait_for(lambda: len(cluster.rest("/devices/")["results"]) == count, "all nodes have joined", *cluster.boxes)
    print(f"{len(boxes) - 1} boxes joined after {time.monotonic() - began:.0f} s", flush=True)
    cluster.register_demo()
    print(f"the demo's variants are profiled after {time.monotonic() - began:.0f} s", flush=True)


def _run(network: Network, cluster: Cluster, given: argparse.Namespace) -> None:
    urls = [f"http://{gateway.address}:8000" for gateway in cluster.gateways]
    bodies = {one.name: _body(one.signature["inputs"][0]) for one in applications()}
    work = Work(urls, cluster.control.credentials["api_key"], given.rate, bodies)
    load = Load(network, "client", work)
    site = Site(network, cluster, load, work, "client")
    try:
        for gateway in cluster.gateways:
            wait_for(lambda gateway=gateway: site.ready(gateway), f"{gateway.name} is ready", gateway)
        if given.open:
            print(f"console: {cluster.url} in namespace nereus-control; gateways: {', '.join(urls)}; Ctrl-C ends it")
            while True:
                time.sleep(3600)
        time.sleep(10)
        for name in given.rows:
            for figure, value in ROWS[name](site, given.seconds).items():
                print(f"| {name} | {figure} | {value} |", flush=True)
            time.sleep(5)
    finally:
        load.close()


def _body(spec: dict) -> dict:
    shape = [1, *spec["shape"][1:]]
    size = 1
    for length in shape:
        size *= length
    return {"inputs": [{"name": spec["name"], "datatype": spec["datatype"], "shape": shape, "data": [0.5] * size}]}


if __name__ == "__main__":
    sys.exit(main())
