"""CPU of core and executor for a query over TLS and over a unix socket.

A real executor process runs a model of one operator; this process is the core at its other end. Both ways are measured
in turns within one run, in CPU time of both processes, medians over rounds. One batch is answered before the next.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import onnx
import psutil
import uvloop
from onnx import TensorProto, helper

from tools.child import free_ports
from workers.protocol.frame_connection import FrameConnection
from workers.protocol.frame_limits import QueryLimits
from workers.protocol.frames import (
    Apply,
    AskLease,
    Cluster,
    ExecutorState,
    Frame,
    FromExecutor,
    Hello,
    LeaseState,
    RequestShape,
    Results,
    RunBatch,
    TensorHeader,
)
from workers.protocol.specs import (
    ApplicationSpec,
    DeviceInfo,
    DevicePlan,
    ProfilePoint,
    Resident,
    Signature,
    TensorSpec,
    VariantSpec,
)
from workers.transport.authority import ClusterAuthority
from workers.transport.endpoints import Endpoint, TlsClient, connect
from workers.transport.identity import MemberIdentity, PeerIdentity

PATIENCE_S = 60.0
#: far above what is sent here
LIMITS = QueryLimits(2**26, 2**23).asking


@dataclass(frozen=True)
class Case:
    """Queries of one row of 32-bit floats.

    Attributes:
        columns: of the input.
        out: columns of the output: as many, or the one that a sum leaves.
        together: queries of a batch.
        batches: in one round.
    """

    name: str
    columns: int
    out: int
    together: int
    batches: int

    @property
    def application(self) -> str:
        """Its name."""
        return f"{'sum' if self.out == 1 else 'copy'}{self.columns}"


CASES = (
    Case("tiny, one by one", 4, 4, 1, 2000),
    Case("tiny, in batches of 8", 4, 4, 8, 500),
    Case("600 KB in", 150_000, 1, 1, 200),
    Case("600 KB in and out", 150_000, 150_000, 1, 200),
)
MODELS = {case.application: case for case in CASES}
IDS = {name: number for number, name in enumerate(MODELS, 1)}


class Peer:
    """One connection to the executor."""

    def __init__(self) -> None:
        self._waiting: dict[type[Frame], asyncio.Future] = {}
        self.connection: FrameConnection | None = None

    async def open(self, endpoint: Endpoint, role: str, client: TlsClient | None = None) -> Peer:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.connection = await connect(endpoint, self._make, client)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)
        self.connection.send(Hello(role, "core", role == "gateway"))
        return self

    def _make(self, kind: type[FrameConnection] = FrameConnection, **named) -> FrameConnection:
        return kind(FromExecutor, self._received, lambda *_: None, **named)

    def _received(self, _connection, message: Frame, _body) -> None:
        waiting = self._waiting.pop(type(message), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    async def next(self, kind: type[Frame]) -> Frame:
        """The next message of this kind."""
        self._waiting[kind] = asyncio.get_running_loop().create_future()
        return await asyncio.wait_for(self._waiting[kind], PATIENCE_S)

    async def lease(self) -> None:
        """Get the device."""
        while True:
            self.connection.send(AskLease(1, True, False))
            if (await self.next(LeaseState)).held:
                return
            await asyncio.sleep(0.1)

    async def batches(self, case: Case, count: int) -> None:
        """Send batches one by one, each answered before the next."""
        data = b"\0" * (4 * case.columns)
        shape = RequestShape(1, (TensorHeader("x", "FP32", (1, case.columns), len(data)),))
        body = [data] * case.together
        for number in range(1, count + 1):
            answered = asyncio.get_running_loop().create_future()
            self._waiting[Results] = answered
            queries = tuple((number * case.together + place, 0, 30.0) for place in range(case.together))
            batch = RunBatch(number, case.application, IDS[case.application], case.together, (shape,), queries)
            self.connection.send(batch, body)
            await answered


def _model(folder: Path, case: Case) -> tuple[Resident, ApplicationSpec, Path]:
    columns, name = (case.columns, case.out), case.application
    tensors = [
        helper.make_tensor_value_info(tensor, TensorProto.FLOAT, ["n", size])
        for tensor, size in zip("xy", columns, strict=True)
    ]
    copies = case.out == case.columns
    node = helper.make_node("Neg", ["x"], ["y"]) if copies else helper.make_node("ReduceSum", ["x", "axis"], ["y"])
    axis = [] if copies else [helper.make_tensor("axis", TensorProto.INT64, [1], [1])]
    graph = helper.make_graph([node], "g", tensors[:1], tensors[1:], axis)
    path = folder / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    data = path.read_bytes()
    spec = VariantSpec(IDS[name], name, name, hashlib.sha256(data).hexdigest(), len(data), 90.0, 100.0)
    signature = Signature(
        *((TensorSpec(tensor, "FP32", (-1, size)),) for tensor, size in zip("xy", columns, strict=True))
    )
    points = tuple(ProfilePoint(batch, 0.001, 0.001, 0.001, 20) for batch in (1, 8))
    return Resident(spec, 8, 10.0, 0.5, points), ApplicationSpec(name, 30.0, signature), path


async def _measure(folder: Path, rounds: int) -> list[str]:
    models = [_model(folder, case) for case in MODELS.values()]
    address = f"127.0.0.1:{free_ports(1)[0]}"
    local = Endpoint(f"unix:{folder}/device.sock")
    cores = sorted(os.sched_getaffinity(0))
    info = DeviceInfo("box/cpu0", "cpu", "test", "", (cores[0],), None, 0, local.address, address)
    (folder / "device.json").write_bytes(msgspec.json.encode(info))
    if len(cores) > 1:
        os.sched_setaffinity(0, cores[1:])
    command = [sys.executable, "-m", "workers.executor", "--device", str(folder / "device.json")]
    process = subprocess.Popen(
        [*command, "--models", str(folder), "--parent", str(os.getpid())], stderr=subprocess.DEVNULL
    )
    try:
        node = await Peer().open(local, "node")
        authority, now = ClusterAuthority.make(), datetime.datetime.now(datetime.UTC)
        identities = {}
        for role, name in (("node", "box"), ("gateway", "core")):
            identity = identities[role] = MemberIdentity(folder / f"{role}.pem", role, name)
            identity.store(authority.issue(identity.request(), role, name, now).certificate, authority.authorities)
        node.connection.send(Cluster(identities["node"].pem, (("core", identities["gateway"].key_hash, 1),)))
        files = {resident.variant.digest: str(path) for resident, _, path in models}
        plan = DevicePlan(info.id, info.endpoint, tuple(resident for resident, _, _ in models))
        node.connection.send(Apply(1, plan, tuple(spec for _, spec, _ in models), files))
        there = PeerIdentity("node", "box", identities["node"].key_hash)
        client = TlsClient(identities["gateway"].client_context, LIMITS)
        ways = {"unix": (local, None), "TLS": (Endpoint(f"tls:{address}", there), client)}
        executor, found = psutil.Process(process.pid), {}
        for _ in range(rounds):
            for way, (endpoint, by) in ways.items():
                core = await Peer().open(endpoint, "gateway", by)
                while len((await core.next(ExecutorState)).warm) < len(models):
                    pass
                await core.lease()
                for case in CASES:
                    await core.batches(case, case.batches // 10)
                    before = _cpu_s(executor)
                    await core.batches(case, case.batches)
                    took = _cpu_s(executor) - before
                    found.setdefault((case.name, way), []).append(took / case.batches / case.together)
                core.connection.close()
                await asyncio.sleep(1.2)
    finally:
        process.terminate()
        process.wait()
        os.sched_setaffinity(0, cores)
    lines = []
    for case in CASES:
        unix, encrypted = (statistics.median(found[case.name, way]) * 1e6 for way in ("unix", "TLS"))
        lines.append(f"| {case.name} | {unix:.0f} us | {encrypted:.0f} us | {encrypted - unix:+.0f} us |")
    return lines


def _cpu_s(executor: psutil.Process) -> float:
    times = executor.cpu_times()
    return times.user + times.system + time.process_time()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table: queries, CPU of each over a unix socket and over TLS."""
    parser = argparse.ArgumentParser(prog="benchmarks transport", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args(arguments).rounds
    with tempfile.TemporaryDirectory(prefix="nereus-transport-") as folder:
        for line in uvloop.run(_measure(Path(folder), rounds)):
            print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
