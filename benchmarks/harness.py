"""The appliances that are measured or broken: whole ones, as black boxes.

Each is started by its own checkout's ``manage.py up`` in a home of its own and asked over REST, V2 HTTP and V2 gRPC, so
that the same benchmark measures commits whose insides have nothing in common.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import numpy as np
import psutil

from appliance.demo.manifest import DemoVariant
from appliance.demo.rest import expect, pages
from appliance.load.requests import v2_request
from appliance.load.sender import Load
from tools.child import ROOT, RunningAppliance
from tools.waiting import eventually

from .grpc_peer import v2_grpc_request
from .models import Model

#: by role, a pattern of the command line; the first that fits
ROLES = {
    "supervisor": r"manage\.py up",
    "redis": r"redis-server|valkey-server",
    "web": r"\bgunicorn\b",
    "planning": r"celery .*planning@",
    "simulation": r"celery .*simulation@",
    "celery": r"celery .*control@",
    "node": r"-m workers\.node",
    "gateway": r"-m workers\.gateway",
    "executor": r"\bexecutor --device",
}
READY_S = 300.0
#: inputs that are sent in turn, so that an answer that belongs to another query is noticed
INPUTS = 4


class Variant(NamedTuple):
    """A model of an application, and its declared accuracy in percent."""

    name: str
    model: Model | DemoVariant
    accuracy: float


class Appliance(RunningAppliance):
    def processes(self, role: str = "") -> list[psutil.Process]:
        """The processes of a role, or all, guards included; the oldest first."""
        running = {pid: psutil.Process(pid) for pid in self.group_members() if psutil.pid_exists(pid)}
        with contextlib.suppress(psutil.Error, AttributeError):
            # Redis overwrites its environment, by which group_members finds processes.
            for process in psutil.Process(self.process.pid).children(recursive=True):
                running[process.pid] = process
        chosen = []
        for process in running.values():
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and (not role or role_of(process) == role):
                    chosen.append(process)
        return sorted(chosen, key=lambda process: (process.create_time(), process.pid))

    def register(self, name: str, slo_ms: float, variants: Sequence[Variant], pinned: bool = True) -> None:
        """Register an application, and wait until all of its variants are ready and, where ``pinned``, warm."""
        with self.rest() as rest:
            upload(rest, name, slo_ms, variants, variants[0].model.signature)
            for variant in variants if pinned else ():
                answer = rest.patch(f"/applications/{name}/variants/{variant.name}/", json={"pinned": True})
                expect(answer, f"pinning {variant.name}", 200)
            eventually(lambda: ready(rest, name, pinned), READY_S, why=f"all variants of {name} ready")


def role_of(process: psutil.Process) -> str:
    line = " ".join(process.cmdline())
    return next((role for role, pattern in ROLES.items() if re.search(pattern, line)), "")


def upload(rest: httpx2.Client, name: str, slo_ms: float, variants: Sequence[Variant], signature: dict) -> None:
    body = {"name": name, "slo_ms": slo_ms, "signature": signature}
    expect(rest.post("/applications/", json=body), f"registering {name}", 201)
    for variant in variants:
        upload_variant(rest, name, variant)


def upload_variant(rest: httpx2.Client, application: str, variant: Variant) -> None:
    with variant.model.path.open("rb") as file:
        fields = {"name": variant.name, "accuracy": f"{variant.accuracy:g}"}
        answer = rest.post(f"/applications/{application}/variants/", files={"file": file}, data=fields)
    expect(answer, f"uploading {variant.name}", 201)


def ready(rest: httpx2.Client, name: str, pinned: bool = False) -> bool:
    """Whether all variants of an application are ready and, where ``pinned``, warm somewhere.

    Raises:
        RuntimeError: one could not be profiled.
    """
    variants = pages(rest, f"/applications/{name}/variants/")
    failed = [one["name"] for one in variants if one["state"] == "failed"]
    if failed:
        raise RuntimeError(f"{name}: could not be profiled: {', '.join(failed)}")
    return bool(variants) and all(one["state"] == "ready" and (one["warm_on"] or not pinned) for one in variants)


# --- appliances that are compared -------------------------------------------------------------------------------------


class Contender(NamedTuple):
    """A checkout with settings beside the usual ones, compared with others under a name."""

    name: str
    tree: Path
    environment: Mapping[str, str]


class Contending(Appliance):
    """A running contender, by default with one one-core device; stop it when done."""

    def __init__(self, contender: Contender, folder: Path):
        self.name = contender.name
        self.core = min(os.sched_getaffinity(0))
        usual = {"NEREUS_CPU_DEVICES": str(self.core), "NEREUS_GPU": "0"}
        super().__init__(folder, environment=usual | dict(contender.environment), root=contender.tree)
        self._pids: dict[str, list[int]] = {}

    def register(self, name: str, slo_ms: float, variants: Sequence[Variant], pinned: bool = True) -> None:
        super().register(name, slo_ms, variants, pinned)
        self._pids = {"gateway": [], "executor": [], "control": []}
        for process in psutil.Process(self.process.pid).children(recursive=True):
            role = role_of(process)
            self._pids[role if role in self._pids else "control"].append(process.pid)

    def pids(self, role: str) -> list[int]:
        return self._pids[role]

    def cpu_s(self) -> dict[str, float]:
        """Return seconds of CPU time so far, by role and by process of a gateway.

        Raises:
            RuntimeError: a process has ended.
        """
        try:
            spent = {role: [process_cpu_s(pid) for pid in pids] for role, pids in self._pids.items()}
        except OSError as error:
            raise RuntimeError(f"{self.name}: a process has ended\n{self.log()[-2000:]}") from error
        each = {f"gateway {i}": seconds for i, seconds in enumerate(spent["gateway"])}
        return {role: sum(of) for role, of in spent.items()} | each

    def load(self, application: str, variants: Sequence[Variant], grpc: bool = False, **given: Any) -> Load:
        """A load for an application; ``given``: the rest of the :class:`Load`."""
        key = self.credentials["api_key"]

        def make(x: np.ndarray) -> bytes:
            return v2_grpc_request(application, x) if grpc else v2_request(application, key, x)

        sent: list[bytes] = []
        answers = {}
        for variant in variants:
            # The same inputs for each variant; the answers are its own.
            sent, answers[variant.name] = requests(variant.model, make)
        port = int((self.grpc if grpc else self.http).rpartition(":")[2])
        return Load(port, sent, answers, grpc_key=key if grpc else "", authorities=self.authorities, **given)

    def away(self) -> list[int]:
        return sorted(os.sched_getaffinity(0) - {self.core}) or [self.core]


def requests(model: Model, make: Callable[[np.ndarray], bytes]) -> tuple[list[bytes], list[bytes]]:
    inputs = [model.rows(1, seed) for seed in range(INPUTS)]
    return [make(x) for x in inputs], model.outputs(inputs)


@contextlib.contextmanager
def started(contenders: Sequence[Contender]) -> Iterator[tuple[list[Contending], Path]]:
    """Running contenders, and a folder for what else there is."""
    with tempfile.TemporaryDirectory(prefix="nereus-b-") as home, contextlib.ExitStack() as stack:
        folder = Path(home)
        appliances = [Contending(one, folder / f"home{i}") for i, one in enumerate(contenders)]
        for appliance in appliances:
            stack.callback(appliance.stop)
            appliance.start()
        yield appliances, folder


def process_cpu_s(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | 2)


# --- the command line -------------------------------------------------------------------------------------------------


def add_contenders(parser: argparse.ArgumentParser, gateways: bool = True) -> None:
    text = "checkouts to compare (default: this one)"
    parser.add_argument("--trees", type=_tree, nargs="+", default=[ROOT], metavar="PATH", help=text)
    parser.set_defaults(gateways=[1])
    if gateways:
        text = "NEREUS_GATEWAYS to compare (default: 1)"
        parser.add_argument("--gateways", type=int, nargs="+", metavar="N", help=text)


def contenders(given: argparse.Namespace) -> list[Contender]:
    """Each tree with each number of gateways; the others are compared with the first."""
    made, names = [], [tree.name for tree in given.trees]
    for number, tree in enumerate(given.trees):
        for gateways in given.gateways:
            name = tree.name if names.count(tree.name) == 1 else f"{tree.name} {number + 1}"
            name += f", {gateways} gateways" if len(given.gateways) > 1 else ""
            made.append(Contender(name, tree, {"NEREUS_GATEWAYS": str(gateways)}))
    return made


def _tree(text: str) -> Path:
    path = Path(text).resolve()
    if not (path / "manage.py").is_file():
        raise argparse.ArgumentTypeError(f"{text}: must be a checkout with a manage.py")
    return path


def between(least: float, most: float):
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: must be from {least:g} to {most:g}")
        return value

    return parse
