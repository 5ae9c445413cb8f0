"""The appliance of a row of the fault matrix: two devices and two applications."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import httpx2
import numpy as np
import psutil
import redis

from benchmarks.harness import READY_S, Appliance, Variant, upload_variant
from benchmarks.models import Model, convolutions
from benchmarks.watch import may_fail
from tools.waiting import eventually

from .clients import Stream, Work
from .history import Counted

#: widths of :func:`benchmarks.models.convolutions`, and accuracies, percent, by variant
VARIANTS = {"quick": (0.25, 76.0), "medium": (0.4, 84.0), "heavy": (0.6, 90.0)}
#: copies of one of these, which a row uploads; queries of later rows on its site are answered by them, too
MORE, MORE_OF = tuple(f"more{number}" for number in range(20)), "heavy"
INPUTS = 16
_ENDED = re.compile(r"^nereus_gateway_queries_total\{(.*)\} (\S+)$", re.MULTILINE)
_STARTED = re.compile(r"^nereus_gateway_rerouted_created(?:\{(.*)\})? (\S+)$", re.MULTILINE)


class Skipped(Exception):
    """This machine cannot do it; the text says why."""


class Site:
    """One appliance, ``box``, in a place that subclasses make special (:meth:`place`, :meth:`clear`)."""

    #: settings beside the usual ones
    environment: dict[str, str] = {}
    #: names of variants by application
    applications: Mapping[str, Sequence[str]] = {"left": ("quick", "medium", "heavy"), "right": ("quick", "medium")}
    #: members whose plans decide
    gateways: Sequence[str] = ("gateway",)
    #: where the home folder is, below the site's
    home = "home"
    #: seconds that applications promise, and queries/s of each over each protocol
    slo_s, rate = 0.4, 20.0

    def __init__(self, folder: Path):
        self.folder = folder
        self._models: dict[str, Model] = {}
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            raise Skipped("two devices need two cores")
        devices = f"{cores[0]};{cores[1]}"
        usual = {"NEREUS_CPU_DEVICES": devices, "NEREUS_GPU": "0", "NEREUS_PLAN_PERIOD_S": "5"}
        self.box = Appliance(folder / self.home, environment=usual | self.environment)

    # --- life ---

    def place(self) -> None:
        """Make the place; raises Skipped where this machine cannot."""

    def clear(self) -> None:
        """Remove what :meth:`place` made."""

    def open(self) -> None:
        """Start the appliance, register applications and wait until both protocols answer."""
        self.place()
        self.box.start()
        self._models = {name: convolutions(self.folder, name, width) for name, (width, _) in VARIANTS.items()}
        for application, names in self.applications.items():
            variants = [Variant(name, self._models[name], VARIANTS[name][1]) for name in names]
            self.box.register(application, self.slo_s * 1e3, variants, pinned=False)
        eventually(self.serves, READY_S, why="both applications answered")

    def spawn(self) -> None:
        self.box.output = ""
        with contextlib.suppress(TimeoutError):
            self.box.start(timeout=0)

    def close(self) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.resume()
        with may_fail("an orderly stop"):
            self.box.stop(timeout=40)
        self.kill_all()
        self.clear()

    def upload(self, rest: httpx2.Client, application: str, variant: str, name: str) -> None:
        upload_variant(rest, application, Variant(name, self._models[variant], VARIANTS[variant][1]))

    def rest(self) -> AbstractContextManager[httpx2.Client]:
        return self.box.rest()

    def log(self) -> str:
        return self.box.read() + self.box.log()

    # --- processes ---

    def processes(self, role: str = "") -> list[psutil.Process]:
        if role == "gateway-2":
            return [one for one in self.box.processes("gateway") if _is_second(one)]
        return [one for one in self.box.processes(role) if role != "gateway" or not _is_second(one)]

    def leader(self, role: str) -> psutil.Process:
        found = self.processes(role)
        if not found:
            raise RuntimeError(f"no process of {role} runs")
        return found[0]

    def kill_all(self) -> None:
        """SIGKILL to everything, at once: a power cut as processes see it."""
        for _ in range(3):
            for process in self.processes():
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGKILL)
        with may_fail("the end of the supervisor"):
            self.box.process.wait(20)

    # --- states ---

    @property
    def redis(self) -> redis.Redis:
        path = self.box.home / "run" / "redis.sock"
        return redis.Redis(unix_socket_path=str(path), socket_timeout=2, decode_responses=True)

    def serves(self) -> bool:
        rows = self._models["quick"].rows(1)
        tensor = {"name": "x", "datatype": "FP32", "shape": list(rows.shape), "data": rows.ravel().tolist()}
        paths = [f"/v2/models/{name}/infer" for name in self.applications]
        with self.box.inference() as inference:
            return all(inference.post(path, json={"inputs": [tensor]}, timeout=5).is_success for path in paths)

    def newest_plan(self) -> int:
        """The newest plan's version, by REST; 0: there is none, or REST does not answer."""
        try:
            with self.rest() as rest:
                return rest.get("/plans/", timeout=3).json()["results"][0]["version"]
        except (httpx2.HTTPError, ValueError, KeyError, IndexError, OSError):
            return 0

    def work(self, file: Path, seed: int) -> Work:
        model = self._models["quick"]
        rows = [model.rows(1, seed=number) for number in range(INPUTS)]
        inputs = {"columns": list(model.row), "rows": [row.tobytes() for row in rows]}
        known = outputs(self._models, rows)
        return Work(
            file=str(file),
            http=self.box.ports[1],
            grpc=int(self.box.grpc.rpartition(":")[2]),
            key=self.box.credentials["api_key"],
            streams=[
                Stream(name, protocol, self.rate, outputs=known, **inputs)
                for name in self.applications
                for protocol in ("http", "grpc")
            ],
            patience_s=max(20.0, 3 * self.slo_s),
            seed=seed,
        )

    # --- what members say ---

    def versions(self) -> dict[str, int]:
        health = httpx2.get(self.box.http + "/health", timeout=5).json()
        devices = {name: one["plan_version"] or 0 for name, one in health["devices"].items()}
        return {"gateway": health["plan"]["adopted"] or 0, **devices}

    def counters(self) -> list[Counted]:
        """Queries that ended, by process."""
        return counted(httpx2.get(f"{self.metrics}/metrics", timeout=5).text)

    @property
    def metrics(self) -> str:
        return self.box.http


class TwoGateways(Site):
    environment = {"NEREUS_GATEWAYS": "2"}

    def versions(self) -> dict[str, int]:
        text = httpx2.get(f"{self.metrics}/metrics", timeout=5).text
        found = re.findall(r'^nereus_gateway_plan_version\{.*?gateway="([^"]+)".*?\} (\S+)$', text, re.MULTILINE)
        return {name.removeprefix("box-"): int(float(value)) for name, value in found}

    @property
    def metrics(self) -> str:
        return self.box.node_http


class SmallSite(Site):
    """Fewer variants, profiled sooner, and a load that a busy machine serves in time, too."""

    slo_s, rate = 20.0, 10.0
    applications = {"left": ("quick", "medium"), "right": ("quick",)}


def outputs(models: Mapping[str, Model], rows: Sequence[np.ndarray]) -> dict[str, list[bytes]]:
    """The outputs of all variants that a row may upload, for these inputs."""
    found = {name: model.outputs(rows) for name, model in models.items()}
    return found | dict.fromkeys(MORE, found[MORE_OF])


def counted(text: str) -> list[Counted]:
    """Counters of a page of metrics; the process is "gateway" where samples name none."""
    at = time.monotonic()
    started = {_labels(labels).get("gateway", "gateway"): float(value) for labels, value in _STARTED.findall(text)}
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for labels, value in _ENDED.findall(text):
        named = _labels(labels)
        found[named.get("gateway", "gateway")][named["application"]] += int(float(value))
    return [Counted(process, at, dict(found[process]), since) for process, since in started.items()]


def _labels(text: str) -> dict[str, str]:
    return dict(re.findall(r'(\w+)="([^"]*)"', text))


def _is_second(gateway: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return "--number 2" in " ".join(gateway.cmdline())
    return False


def wait(done: Callable[[], object], timeout: float, every: float = 0.05) -> float | None:
    """Seconds until ``done`` is true, errors being false; None: not within ``timeout``."""
    start = time.monotonic()
    while time.monotonic() < start + timeout:
        with may_fail("a probe"):
            if done():
                return time.monotonic() - start
        time.sleep(every)
    return None
