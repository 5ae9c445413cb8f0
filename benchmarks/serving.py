"""What serving costs: gateway and executor CPU time a query, and throughput, against the same model in one process.

A real appliance with one one-core device serves a small model (a fraction of a millisecond a row, so that the cost of
serving shows) to closed-loop clients: 1, 8 and 32 at once, with 1, 8 and 32 rows a query. The baseline runs the same
model by onnxruntime in this process, pinned to the device's core, right before each measurement: once with the query's
rows as the batch (what one client could get without any server), once with all clients' rows in one batch.

The work-conserving batch policy is used: one that waits on purpose would only measure its waiting.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import uvloop

from appliance.demo.wire import HttpPool
from benchmarks.processes import cpu_seconds, find
from tests import tiny
from tests.running import RunningAppliance, eventually, register

CONCURRENCY = (1, 8, 32)
ROWS = (1, 8, 32)
SECONDS = 2.0
ROUNDS = 3
#: layers: about 0.3 ms a row
WORK = 40


@dataclass
class Row:
    """One combination; times in microseconds a query, medians over rounds."""

    rows: int
    concurrency: int
    queries_s: float
    p50_ms: float
    gateway_us: float
    executor_us: float
    alone_us: float
    batched_us: float

    @property
    def overhead_us(self) -> float:
        """CPU time beyond the model's own, as batched as it could be."""
        return self.gateway_us + self.executor_us - self.batched_us


def baseline_us(session: onnxruntime.InferenceSession, batch: int, seconds: float = 0.7) -> float:
    """Microseconds of CPU time that one run of ``batch`` rows takes."""
    data = {"x": np.full((batch, 4), 0.5, np.float32)}
    session.run(None, data)
    runs, wall, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        session.run(None, data)
        runs += 1
    return (time.process_time() - cpu) / runs * 1e6


async def closed_loop(url: str, key: str, rows: int, concurrency: int, seconds: float) -> tuple[int, list[float]]:
    """Queries answered and their latencies (s), from clients that each send one after the other."""
    pool = HttpPool(url, limit=concurrency, timeout_s=10)
    tensor = {"name": "x", "datatype": "FP32", "shape": [rows, 4], "parameters": {"binary_data_size": rows * 16}}
    header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    request = pool.request_bytes(
        "POST",
        "/v2/models/bench/infer",
        {"Authorization": f"Bearer {key}", "Inference-Header-Content-Length": str(len(header))},
        header + np.full((rows, 4), 0.5, "<f4").tobytes(),
    )
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    failures: list[str] = []
    until = loop.time() + seconds

    async def client() -> None:
        while loop.time() < until:
            answer = loop.create_future()
            began = loop.time()
            pool.send(request, lambda status, _, body, answer=answer: answer.set_result((status, body)))
            status, body = await answer
            if status != 200:
                failures.append(f"{status} {body[:200]!r}")
            latencies.append(loop.time() - began)

    try:
        await asyncio.gather(*(client() for _ in range(concurrency)))
    finally:
        pool.close()
    if len(failures) > 0.01 * len(latencies):
        raise RuntimeError(f"{len(failures)} of {len(latencies)} queries failed: {failures[0]}")
    return len(latencies), latencies


def measure() -> list[Row]:
    """All combinations, each the median of :data:`ROUNDS` rounds."""
    with tempfile.TemporaryDirectory(prefix="nereus-bench-") as folder:
        model = tiny.classifier(Path(folder) / "bench.onnx", work=WORK)
        core = min(os.sched_getaffinity(0))
        appliance = RunningAppliance(
            Path(folder) / "home",
            environment={
                "NEREUS_CPU_DEVICES": str(core),
                "NEREUS_PLAN_PERIOD_S": "3600",
                "NEREUS_QUEUE_ROWS": "4096",
                "NEREUS_STACK": "infaas-accuracy",
            },
        )
        try:
            appliance.start()
            with appliance.rest() as client:
                register(client, "bench", {"only": model}, slo_ms=5000)
            with appliance.inference() as client:
                eventually(lambda: client.get("/v2/models/bench/ready").status_code == 200)
            return _rounds(appliance, model, core)
        finally:
            appliance.stop()


def _rounds(appliance: RunningAppliance, model: Path, core: int) -> list[Row]:
    members = appliance.group_members()
    gateway = find(members, "workers.gateway")[0]
    executor = find(members, "workers.executor")[0]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    everywhere = os.sched_getaffinity(0)
    key = appliance.credentials["api_key"]
    table = []
    for rows in ROWS:
        for concurrency in CONCURRENCY:
            rounds = []
            for _ in range(ROUNDS):
                os.sched_setaffinity(0, {core})
                alone = baseline_us(session, rows)
                batched = baseline_us(session, min(rows * concurrency, 64)) * max(1, rows * concurrency / 64)
                os.sched_setaffinity(0, everywhere)
                before = cpu_seconds(gateway), cpu_seconds(executor)
                began = time.perf_counter()
                count, latencies = uvloop.run(closed_loop(appliance.http, key, rows, concurrency, SECONDS))
                took = time.perf_counter() - began
                after = cpu_seconds(gateway), cpu_seconds(executor)
                spent = [(b - a) / count * 1e6 for a, b in zip(before, after, strict=True)]
                p50_ms = statistics.median(latencies) * 1e3
                rounds.append(Row(rows, concurrency, count / took, p50_ms, *spent, alone, batched / concurrency))
            table.append(
                Row(
                    rows,
                    concurrency,
                    *(
                        statistics.median(getattr(one, name) for one in rounds)
                        for name in ("queries_s", "p50_ms", "gateway_us", "executor_us", "alone_us", "batched_us")
                    ),
                )
            )
    return table


def render(table: list[Row]) -> str:
    """A Markdown table. The last column is the throughput over that of one process that runs each query alone."""
    lines = [
        "| rows | clients | queries/s | p50 ms | gateway µs | executor µs | model alone µs | model batched µs "
        "| beyond the model µs | × alone |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in table:
        lines.append(
            f"| {row.rows} | {row.concurrency} | {row.queries_s:,.0f} | {row.p50_ms:.2f} | {row.gateway_us:.0f} "
            f"| {row.executor_us:.0f} | {row.alone_us:.0f} | {row.batched_us:.0f} | {row.overhead_us:.0f} "
            f"| {row.queries_s * row.alone_us / 1e6:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(render(measure()))
