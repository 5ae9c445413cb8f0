"""The appliances that are measured: whole ones, of any checkout, as black boxes.

Each is started by its own checkout's ``manage.py up`` in a home of its own and asked over REST, V2 HTTP and V2 gRPC, so
that the same benchmark measures commits whose insides have nothing in common.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil

from appliance.demo.manifest import DemoVariant
from appliance.demo.rest import client, expect, pages
from appliance.load.requests import v2_request
from appliance.load.sender import Load
from tools.child import ROOT, RunningAppliance, eventually

from .models import Model
from .queries import requests, v2_grpc_request

#: By role, a pattern of the command line; the first that fits. All other processes are the control plane's.
ROLES = {"gateway": r"-m workers\.gateway", "executor": r"\bexecutor --device"}
READY_S = 300.0


@dataclass(frozen=True)
class Contender:
    """A checkout with settings, compared with others.

    Attributes:
        name: in tables.
        tree: the checkout.
        environment: settings beside the usual ones.
    """

    name: str
    tree: Path
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Variant:
    """A model of an application, and its declared accuracy in percent."""

    name: str
    model: Model | DemoVariant
    accuracy: float


class Appliance(RunningAppliance):
    """A running contender, by default with one one-core device; stop it when done."""

    def __init__(self, contender: Contender, folder: Path):
        self.name = contender.name
        self.core = min(os.sched_getaffinity(0))
        usual = {"NEREUS_CPU_DEVICES": str(self.core), "NEREUS_GPU": "0"}
        super().__init__(folder, environment=usual | dict(contender.environment), root=contender.tree)
        self._processes: dict[str, list[psutil.Process]] = {}

    def register(
        self, name: str, slo_ms: float, variants: Sequence[Variant], signature: dict | None = None, pinned: bool = True
    ) -> None:
        """Register an application, and wait until all of its variants are ready.

        Args:
            pinned: pin them, and wait until they are warm, too.
        """
        with client(self.console, self.credentials["api_token"], self.trust()) as rest:
            upload(rest, name, slo_ms, variants, signature or variants[0].model.signature)
            path = f"/applications/{name}/variants/"
            for variant in variants:
                answer = rest.patch(f"{path}{variant.name}/", json={"pinned": pinned})
                expect(answer, f"pinning {variant.name}", 200)
            eventually(lambda: ready(rest, name, pinned), READY_S, why=f"all variants of {name} ready")
        self.find_processes()

    def find_processes(self) -> None:
        """Look for the processes anew."""
        found: dict[str, list[psutil.Process]] = {role: [] for role in (*ROLES, "control")}
        for process in psutil.Process(self.process.pid).children(recursive=True):
            line = " ".join(process.cmdline())
            role = next((role for role, pattern in ROLES.items() if re.search(pattern, line)), "control")
            found[role].append(process)
        self._processes = found

    def pids(self, role: str) -> list[int]:
        """Return the process ids of a role.

        Args:
            role: ``gateway``, ``executor`` or ``control``.
        """
        return [process.pid for process in self._processes[role]]

    def cpu_s(self) -> dict[str, float]:
        """Return seconds of CPU time so far, by role and by process of a gateway.

        Raises:
            RuntimeError: a process has ended.
        """
        try:
            spent = {role: [process_cpu_s(pid) for pid in self.pids(role)] for role in self._processes}
        except OSError as error:
            raise RuntimeError(f"{self.name}: a process has ended\n{self.log()[-2000:]}") from error
        each = {f"gateway {i}": seconds for i, seconds in enumerate(spent["gateway"])}
        return {role: sum(of) for role, of in spent.items()} | each

    def load(self, application: str, variants: Sequence[Variant], file: Path, grpc: bool = False, **given: Any) -> Load:
        """A load for an application; ``given``: the rest of the :class:`Load`."""
        key = self.credentials["api_key"]
        make = v2_grpc_request(application) if grpc else lambda x: v2_request(application, key, x)
        sent: list[bytes] = []
        answers = {}
        for variant in variants:
            # The same inputs for each variant; the answers are its own.
            sent, answers[variant.name] = requests(variant.model, make)
        port = int((self.grpc if grpc else self.http).rpartition(":")[2])
        return Load(
            port, sent, answers, file=str(file), grpc_key=key if grpc else "", authorities=self.authorities, **given
        )

    def away(self) -> list[int]:
        """Cores without the executor's, for a load that must not run there."""
        return sorted(os.sched_getaffinity(0) - {self.core}) or [self.core]


def upload(rest: httpx2.Client, name: str, slo_ms: float, variants: Sequence[Variant], signature: dict) -> None:
    """Register an application with variants of declared accuracies.

    Raises:
        RestError: it was refused.
    """
    body = {"name": name, "slo_ms": slo_ms, "signature": signature}
    expect(rest.post("/applications/", json=body), f"registering {name}", 201)
    for variant in variants:
        with variant.model.path.open("rb") as file:
            fields = {"name": variant.name, "accuracy": f"{variant.accuracy:g}"}
            answer = rest.post(f"/applications/{name}/variants/", files={"file": file}, data=fields)
        expect(answer, f"uploading {variant.name}", 201)


def ready(rest: httpx2.Client, name: str, pinned: bool = False) -> bool:
    """Return whether all variants of an application are ready.

    Args:
        pinned: they must also be warm somewhere.

    Raises:
        RuntimeError: one could not be profiled.
    """
    found = pages(rest, f"/applications/{name}/variants/")
    failed = [one["name"] for one in found if one["state"] == "failed"]
    if failed:
        raise RuntimeError(f"{name}: could not be profiled: {', '.join(failed)}")
    return all(one["state"] == "ready" and (one["warm_on"] or not pinned) for one in found)


@contextlib.contextmanager
def started(contenders: Sequence[Contender], folder: Path) -> Iterator[list[Appliance]]:
    """Appliances of all contenders, which are stopped at the end."""
    appliances = [Appliance(one, folder / f"home{i}") for i, one in enumerate(contenders)]
    try:
        for appliance in appliances:
            appliance.start()
        yield appliances
    finally:
        for appliance in appliances:
            appliance.stop()


def process_cpu_s(pid: int) -> float:
    """Return seconds of CPU time of a process with all its threads.

    They are exact to the nanosecond (clock_getcpuclockid(3)).

    Raises:
        OSError: there is no such process.
    """
    return time.clock_gettime((~pid << 3) | 2)


# --- the command line -------------------------------------------------------------------------------------------------


def add_contenders(parser: argparse.ArgumentParser, gateways: bool = True) -> None:
    """Add the options that say which contenders are compared.

    Args:
        gateways: also the option for numbers of gateways.
    """
    text = "checkouts to compare (default: this one)"
    parser.add_argument("--trees", type=_tree, nargs="+", default=[ROOT], metavar="PATH", help=text)
    parser.set_defaults(gateways=[1])
    if gateways:
        text = "NEREUS_GATEWAYS to compare (default: 1)"
        parser.add_argument("--gateways", type=int, nargs="+", metavar="N", help=text)


def contenders(given: argparse.Namespace, **environment: str) -> list[Contender]:
    """Return each tree with each number of gateways.

    The others are compared with the first.
    """
    found, names = [], [tree.name for tree in given.trees]
    for number, tree in enumerate(given.trees):
        for gateways in given.gateways:
            name = tree.name if names.count(tree.name) == 1 else f"{tree.name} {number + 1}"
            name += f", {gateways} gateways" if len(given.gateways) > 1 else ""
            found.append(Contender(name, tree, {"NEREUS_GATEWAYS": str(gateways), **environment}))
    return found


def _tree(text: str) -> Path:
    path = Path(text).resolve()
    if not (path / "manage.py").is_file():
        raise argparse.ArgumentTypeError(f"{text}: must be a checkout with a manage.py")
    return path


def between(least: float, most: float):
    """A parser of numbers within limits."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: must be from {least:g} to {most:g}")
        return value

    return parse
