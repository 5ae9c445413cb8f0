"""Faults of a cluster in network namespaces; needs root.

    python -m benchmarks cluster [--rows ROW ...] [--open]

One control box, two gateways, nodes of three kinds (slowed by quotas of control groups), 2 ms and 20 ms away with
jitter and 0.5% loss, and the demo's applications with three variants each. Each row does something to it under load and
checks what clients recorded, as in the fault matrix; a query whose first address does not answer is asked again at the
other, and its answer counts. ``--open`` keeps the cluster running for a browser instead.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.faults.__main__ import carried_out
from benchmarks.figures import heading

from .network import allowed
from .rows import ROWS
from .site import HTTP_PORT, ClusterSite

#: of rows that last longer with ``--long``
LONG_S = {"control-lost": 600.0, "simulated": 300.0}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=tuple(ROWS), default=list(ROWS))
    parser.add_argument("--load", type=float, default=0.5, help="of the devices' time (default: 0.5)")
    parser.add_argument("--long", action="store_true", help="the control box is lost for 10 minutes, not 2")
    parser.add_argument("--keep", type=Path, help="folder that gets the history of each row")
    parser.add_argument("--open", action="store_true", help="keep the cluster until Ctrl-C")
    given = parser.parse_args(arguments)
    if not allowed():
        print("namespaces and TUN devices need root and /dev/net/tun", file=sys.stderr)
        return 1
    if given.open:
        return _stay()
    ClusterSite.load = given.load
    print(heading("Faults of a cluster", __doc__.partition("\n\n")[2].partition("\n\n")[2]), flush=True)
    rows = [ROWS[name] for name in given.rows]
    return carried_out(
        [replace(row, seconds=LONG_S.get(row.name, row.seconds)) for row in rows] if given.long else rows, given.keep
    )


def _stay() -> int:
    with tempfile.TemporaryDirectory(prefix="nereus-c-") as folder:
        site = ClusterSite(Path(folder))
        try:
            site.open()
            gateways = ", ".join(f"http://{one.address}:{HTTP_PORT}" for one in site.gateway_boxes)
            where = f"console: {site.control.console}, gateways: {gateways}, in namespace nereus-client"
            print(f"{where}; Ctrl-C ends it", flush=True)
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            return 0
        finally:
            site.close()
