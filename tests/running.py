"""Questions of tests to a running appliance, which is :mod:`tools.child`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import redis

from tools.child import ROOT, RunningAppliance, bare_environment, free_ports
from tools.waiting import eventually, eventually_async

__all__ = [
    "ROOT",
    "SIGNATURE",
    "RunningAppliance",
    "bare_environment",
    "eventually",
    "eventually_async",
    "free_ports",
    "redis_answers",
    "register",
    "serving",
    "v2_request",
    "wait_ready",
]

SIGNATURE = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
}


@contextlib.contextmanager
def serving(home: Path, models: dict[str, Path], **environment: str) -> Iterator[RunningAppliance]:
    """An appliance that serves ``tiny``, even late: what fails failed for another reason than a busy machine."""
    running = RunningAppliance(home, environment=environment)
    try:
        running.start()
        with running.rest() as client, running.inference() as inference:
            register(client, "tiny", models, of=[running], late="serve")
            ready = lambda: inference.get("/v2/models/tiny/ready").status_code == 200  # noqa: E731
            eventually(ready, why="tiny ready to serve", of=[running])
        yield running
    finally:
        running.stop()
        print(running.log()[-20000:])  # shown by pytest when a test failed


def register(
    client: httpx2.Client, name: str, models: dict[str, Path], slo_ms: float = 400, of: Sequence = (), **fields: Any
) -> None:
    """Register an application with one variant a model, and wait until it is ready.

    Accuracies are declared by rank in ``models``: 91 for the first, and nearer to 100 for each further one.
    ``of``: processes without which it does not get ready.
    """
    answer = client.post("/applications/", json={"name": name, "slo_ms": slo_ms, "signature": SIGNATURE, **fields})
    assert answer.status_code == 201, answer.text
    for rank, (variant, path) in enumerate(models.items()):
        accuracy = 100 - 9 / (rank + 1) ** 1.5
        with path.open("rb") as file:
            answer = client.post(
                f"/applications/{name}/variants/",
                data={"name": variant, "accuracy": f"{accuracy:.2f}"},
                files={"file": (path.name, file)},
            )
        assert answer.status_code == 201, answer.text
    wait_ready(client, name, of=of)


def wait_ready(client: httpx2.Client, name: str, timeout: float = 500, of: Sequence = ()) -> list[dict]:
    def ready():
        variants = client.get(f"/applications/{name}/variants/").json()["results"]
        assert not [v for v in variants if v["state"] == "failed"], variants
        return variants if variants and all(v["state"] == "ready" for v in variants) else None

    return eventually(ready, timeout, why=f"{name}'s variants ready", of=of)


def redis_answers(client: redis.Redis) -> bool:
    with contextlib.suppress(redis.ConnectionError):
        return client.ping()
    return False


def v2_request(rows: int = 1, value: float = 0.5) -> dict:
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 4], "data": [value] * (4 * rows)}]}
