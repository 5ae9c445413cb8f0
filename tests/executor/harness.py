"""A real executor process and clients that speak frames with it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import onnx
import onnx.parser
from onnx import helper

from tests.forked import ForkedProcess, of_members
from tools.waiting import eventually_async
from workers.confinement.libc import prctl
from workers.confinement.limits import PR_SET_PDEATHSIG
from workers.executor.codec import DATATYPE_OF, DTYPES, encode_texts
from workers.protocol import frame_connection, frames
from workers.protocol.control import ProfileOrder
from workers.protocol.frames import (
    Apply,
    ExecutorState,
    Frame,
    Hello,
    Measure,
    Refusal,
    Relay,
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

#: longer than any machine takes, however busy
WAIT_S = 120.0
#: of a query whose lateness is not the point
BUDGET_S = 60.0
CORE = min(os.sched_getaffinity(0))
XY = Signature((TensorSpec("x", "FP32", (-1, 4)),), (TensorSpec("y", "FP32", (-1, 3)),))

WIDE = Signature((TensorSpec("x", "FP32", (-1, 4)),), (TensorSpec("y", "FP32", (-1, 4)),))
#: a node of a model's text, which runs ``turns`` steps
LOOP = """y = Loop <body = body (int64 i, bool go, float[b, 4] h) => (bool on, float[b, 4] next) {
    on = Identity(go)
    t = Tanh(h)
    next = Add(t, h)
}> (turns, "", x)"""


def application(name="app", slo_s=2.0, signature=XY, late="shed") -> ApplicationSpec:
    return ApplicationSpec(name, slo_s, signature, late)


def variant(id: int, path: Path, application="app", accuracy=90.0, name: str | None = None) -> VariantSpec:
    data = path.read_bytes() if path.exists() else path.name.encode()
    digest = hashlib.sha256(data).hexdigest()
    return VariantSpec(id, name or f"v{id}", application, digest, len(data), accuracy, accuracy)


def profile(seconds: float, largest: int = 16) -> tuple[ProfilePoint, ...]:
    """``seconds`` for one row, and half of it for each further one."""
    sizes = [2**i for i in range(largest.bit_length())]
    times = [seconds * (1 + (size - 1) / 2) for size in sizes]
    return tuple(ProfilePoint(size, t, t, t, 20) for size, t in zip(sizes, times, strict=True))


def resident(spec: VariantSpec, seconds=0.002, max_batch=16, rate=10.0, memory_bytes=0) -> Resident:
    return Resident(spec, max_batch, rate, 0.5, profile(seconds, max_batch), memory_bytes)


def order(job: int, path: Path, spec: ApplicationSpec | None = None, validation_path=None, **terms) -> Measure:
    spec = application() if spec is None else spec
    terms = {"first": False, "max_batch": 8} | terms
    made = variant(100 + job, path, spec.name)
    return Measure(
        ProfileOrder(job=job, device="box/cpu0", variant=made, application=spec, **terms), str(path), validation_path
    )


def encode(name: str, array: np.ndarray) -> tuple[TensorHeader, bytes]:
    texts = array.dtype == object
    data = encode_texts(array) if texts else array.tobytes()
    return TensorHeader(name, "BYTES" if texts else DATATYPE_OF[array.dtype], array.shape, len(data)), data


class Peer:
    """A connection to the executor that keeps everything that arrives, in order."""

    def __init__(self) -> None:
        self.messages: list[Frame] = []
        self.answers: dict[int, tuple[Frame, dict[str, np.ndarray]]] = {}
        self.answered = 0
        self.closed = asyncio.Event()
        self._news = asyncio.Event()
        #: those of queries that a test does not number itself
        self._ids = iter(range(10**6, 10**9))
        self._granted_rows: dict[int, int] = {}
        self.connection: frame_connection.FrameConnection | None = None

    async def connect(self, endpoint: str, role: str, name: str = "test", leases: bool = False) -> Peer:
        self.connection = await frame_connection.connect(
            endpoint, lambda: frame_connection.FrameConnection(frames.FromExecutor, self._on_message, self._on_closed)
        )
        if role:
            self.connection.send(Hello(role, name, leases))
        return self

    async def lease(self, leads: bool = False) -> frames.LeaseState:
        """Ask for the device until this connection has it."""

        async def held() -> frames.LeaseState | None:
            state = await self.asked(leads=leads)
            return state if state.held else None

        return await eventually_async(held, WAIT_S)

    async def asked(self, wanted: bool = True, leads: bool = False) -> frames.LeaseState:
        number = next(self._ids)
        self.connection.send(frames.AskLease(number, wanted, leads))
        return await self.until(lambda: next((one for one in self.of(frames.LeaseState) if one.number == number), None))

    def _on_message(self, _connection, message: Frame, body: memoryview) -> None:
        self.messages.append(message.message if isinstance(message, Relay) else message)
        if isinstance(message, Refusal):
            self._answered(message.id, message, {})
        elif isinstance(message, Results):
            for id, outputs in _apart(message, body, self._granted_rows):
                self._answered(id, message, outputs)
        self._news.set()

    def _answered(self, id: int, message: Frame, outputs: dict[str, np.ndarray]) -> None:
        self.answered += 1
        assert id not in self.answers, "answered twice"
        self.answers[id] = message, outputs

    def _on_closed(self, _connection, _error) -> None:
        self.closed.set()
        self._news.set()

    async def until(self, condition: Callable[[], object]):
        async with asyncio.timeout(WAIT_S):
            while not (value := condition()):
                self._news.clear()
                await self._news.wait()
        return value

    async def next(self, kind: type, where=lambda message: True):
        return await self.until(lambda: next((m for m in self.messages if isinstance(m, kind) and where(m)), None))

    def of(self, kind: type) -> list:
        return [message for message in self.messages if isinstance(message, kind)]

    def dispatch(self, arrays: dict[str, np.ndarray], budget_s=BUDGET_S, outputs=(), **batch) -> int:
        """Send one query as a batch of its own; its number."""
        id = next(self._ids)
        self.grant({id: arrays}, budgets={id: budget_s}, outputs={id: outputs}, number=id, **batch)
        return id

    def grant(
        self,
        queries: dict[int, dict[str, np.ndarray]],
        variant: int = 1,
        application="app",
        max_rows=16,
        number=1,
        budgets: dict[int, float] | None = None,
        outputs: dict[int, tuple[str, ...]] | None = None,
        rows: int | None = None,
    ) -> None:
        """Send queries as one batch; those of one shape share it.

        Args:
            queries: inputs by id, in the signature's order.
            rows: of each query, where its inputs have another number.
        """
        shapes: dict[RequestShape, int] = {}
        columns: list[list] = []
        given = []
        for id, arrays in queries.items():
            parts = [encode(name, array) for name, array in arrays.items()]
            count = len(next(iter(arrays.values()))) if rows is None else rows
            shape = RequestShape(count, tuple(header for header, _ in parts), (outputs or {}).get(id, ()))
            given.append((id, shapes.setdefault(shape, len(shapes)), (budgets or {}).get(id, BUDGET_S)))
            self._granted_rows[id] = count
            columns += [[] for _ in range(len(parts) - len(columns))]
            for column, (_, data) in zip(columns, parts, strict=True):
                column.append(data)
        message = RunBatch(number, application, variant, max_rows, tuple(shapes), tuple(given))
        self.connection.send(message, [data for column in columns for data in column])

    async def answer(self, id: int) -> tuple[Frame, dict[str, np.ndarray]]:
        return await self.until(lambda: self.answers.get(id))

    async def query(self, arrays: dict[str, np.ndarray], **given) -> tuple[Frame, dict[str, np.ndarray]]:
        return await self.answer(self.dispatch(arrays, **given))

    def state(self) -> ExecutorState:
        return self.of(ExecutorState)[-1]


def _array(datatype: str, shape: tuple[int, ...], part: memoryview) -> np.ndarray | bytes:
    return bytes(part) if datatype == "BYTES" else np.frombuffer(part, DTYPES[datatype]).reshape(shape)


def _apart(message: Results, body: memoryview, rows: dict[int, int]):
    """Each query's own outputs, by the rows that it asked for; 1 of unknown ones."""
    outputs: dict[int, dict[str, np.ndarray]] = {id: {} for id in message.ids}
    at = 0
    for tensor in message.outputs:
        part = body[at : at + tensor.nbytes]
        at += tensor.nbytes
        counts = [rows.get(id, 1) for id in message.ids]
        assert sum(counts) == tensor.shape[0]
        sizes = tensor.sizes or [tensor.nbytes * count // tensor.shape[0] for count in counts]
        assert sum(sizes) == tensor.nbytes
        start = 0
        for id, count, size in zip(message.ids, counts, sizes, strict=True):
            shape = (count, *tensor.shape[1:])
            outputs[id][tensor.name] = _array(tensor.datatype, shape, part[start : start + size])
            start += size
    assert at == len(body)
    return outputs.items()


class Executor:
    """An executor subprocess; ``async with`` starts and ends it."""

    def __init__(
        self,
        folder: Path,
        memory_bytes: int = 0,
        device: str = "box/cpu0",
        address: str = "",
        forked: bool = True,
        under: Sequence[str] = (),
        **settings: str,
    ):
        self._forked = forked and not under
        #: the command that starts it, such as nice
        self._under = under
        self.endpoint = f"unix:{folder}/executor.sock"
        self.info = DeviceInfo(device, "cpu", "test", "", (CORE,), None, memory_bytes, self.endpoint, address)
        self._folder = folder
        self._environ = {**os.environ, **{f"NEREUS_{name.upper()}": value for name, value in settings.items()}}
        #: the only folder that the executor reads models from
        self.models: Path | None = None
        self.peers: list[Peer] = []
        self.process: ForkedProcess | subprocess.Popen | None = None

    async def __aenter__(self) -> Executor:
        (self._folder / "device.json").write_bytes(msgspec.json.encode(self.info))
        self.log = open(self._folder / "log", "ab")  # noqa: SIM115 - closed when the executor ends
        # Tests share some models. Not the tempfile module's folder, which the console moves.
        models = str(self.models or os.environ.get("TMPDIR", "/tmp"))
        command = ["-m", "workers.executor", "--device", str(self._folder / "device.json"), "--models", models]
        how = {"env": self._environ, "stderr": self.log}
        if self._forked:
            self.process = await asyncio.to_thread(lambda: of_members().start(*command, **how))
        else:
            self.process = subprocess.Popen(
                [*self._under, sys.executable, *command],
                preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
                **how,
            )
        self.node = await self.peer("node")
        return self

    async def __aexit__(self, *_error) -> None:
        for peer in self.peers:
            peer.connection.close()
        if self.process.poll() is None:
            self.process.kill()
            await self.ended()
        self.log.close()

    def poll(self) -> int | None:
        return self.process.poll()

    def last_lines(self) -> str:
        return (self._folder / "log").read_text()[-4000:]

    async def peer(self, role: str = "gateway", name: str = "test", leases: bool = False) -> Peer:
        async def connected() -> Peer | None:
            with contextlib.suppress(OSError):
                return await Peer().connect(self.endpoint, role, name, leases)

        peer = await eventually_async(connected, WAIT_S, of=[self])
        self.peers.append(peer)
        if role == "gateway":
            await peer.next(ExecutorState)
        return peer

    async def metrics(self) -> str:
        peer = await self.peer("metrics")
        peer.connection.send(frames.MetricsRequest())
        return (await peer.next(frames.Metrics)).text

    def apply(
        self,
        version: int,
        residents,
        applications,
        paths: dict[str, Path] | list[Path] = (),
        standby=(),
        may_stay: tuple[int, ...] | None = None,
    ) -> None:
        """Send a plan. ``paths``: the model files, found by content."""
        files = {hashlib.sha256(path.read_bytes()).hexdigest(): str(path) for path in paths}
        plan = DevicePlan(
            self.info.id, self.endpoint, tuple(residents), may_stay=may_stay, standby_residents=tuple(standby)
        )
        self.node.connection.send(Apply(version, plan, tuple(applications), files))

    async def applied(self, version: int, *plan) -> Peer:
        gateway = await self.peer()
        self.apply(version, *plan)
        await gateway.next(ExecutorState, lambda state: state.plan_version == version)
        return gateway

    async def in_force(self, version: int, *plan) -> ExecutorState:
        """Send a plan and wait until it is in force.

        Returns:
            The state, as reported to a gateway that leaves the device to others.
        """
        watching = await self.peer(name="watching", leases=True)
        self.apply(version, *plan)
        return await watching.next(ExecutorState, lambda state: state.plan_version == version)

    async def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WAIT_S):
            return await self.ended()

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait)


def rows(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).normal(size=(count, 4)).astype(np.float32)}


def save(path: Path, nodes, inputs, outputs, initializers=()) -> Path:
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return path


def save_graph(path: Path, text: str) -> Path:
    """Write a model given in ONNX's textual syntax."""
    graph = onnx.parser.parse_graph(text)
    return save(path, graph.node, graph.input, graph.output, graph.initializer)


def turning(path: Path, turns: int) -> Path:
    """A model whose one row takes as long as its loop has steps; it can be stopped."""
    return save_graph(path, f"g (float[b, 4] x) => (float[b, 4] y) <int64 turns = {{{turns}}}> {{ {LOOP} }}")


def endless(path: Path) -> Path:
    """A model that runs for years where some value of its input is 100 or more."""
    return save_graph(
        path,
        f"""g (float[b, 4] x) => (float[b, 4] y)
        <float none = {{0}}, float one = {{1}}, float hundred = {{100}}, float years = {{1e15}}> {{
            largest = ReduceMax <keepdims = 0> (x)
            hundreds = Div(largest, hundred)
            whole = Floor(hundreds)
            clipped = Clip(whole, none, one)
            many = Mul(clipped, years)
            turns = Cast <to = 7> (many)
            {LOOP}
        }}""",
    )
