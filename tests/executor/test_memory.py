"""A device's memory is a limit that is kept, and loads and unloads leave nothing behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import psutil
import pytest

from appliance.demo import manifest
from tests.executor.harness import Executor, application, order, resident, rows, save_graph, variant
from workers.protocol.control import ProfileDone
from workers.protocol.frames import ExecutorState, Moved, Refusal, Results, StateReport
from workers.protocol.specs import Signature, TensorSpec

pytestmark = pytest.mark.wide

MIB = 2**20
#: elements of a row whose outputs take 128 MiB
WIDE = 128 * MIB // 4
#: initializers of a model's text, of which the first three columns remain
ENDS = "int64[1] begin = {0}, int64[1] end = {3}, int64[1] axis = {1}"


def hungry(path: Path, seed: int = 0) -> Path:
    """Write a model that takes as many MiB as its input's largest number; ``seed`` varies the file."""
    return save_graph(
        path,
        f"""g (float[b, 4] x) => (float[b, 3] y)
        <int64 mebi = {{{MIB // 4}}}, int64[1] one = {{1}}, {ENDS}, int64[1] seed = {{{seed}}}> {{
            largest = ReduceMax <keepdims = 0> (x)
            whole = Cast <to = 7> (largest)
            count = Mul(whole, mebi)
            shape = Reshape(count, one)
            large = ConstantOfShape(shape)
            zero = ReduceMax <keepdims = 0> (large)
            sum = Add(x, zero)
            y = Slice(sum, begin, end, axis)
        }}""",
    )


def wanting(mebibytes: float) -> dict[str, np.ndarray]:
    return {"x": np.array([[mebibytes, 0, 0, 0]], np.float32)}


def resident_mib(executor: Executor) -> float:
    return psutil.Process(executor.process.pid).memory_info().rss / MIB


async def test_a_query_that_wants_more_memory_than_the_device_has_fails_alone(tmp_path):
    path = hungry(tmp_path / "hungry.onnx")
    async with Executor(tmp_path, forked=False, memory_bytes=1024 * MIB) as executor:
        plan = [resident(variant(1, path), 0.5)], [application(slo_s=60.0)], [path]
        gateway = await executor.applied(1, *plan)
        assert isinstance((await gateway.query(wanting(1)))[0], Results)
        before = resident_mib(executor)
        for mebibytes in (20_000, 1_000_000):
            refused = (await gateway.query(wanting(mebibytes)))[0]
            assert isinstance(refused, Refusal) and refused.code == "failed"
        answer, outputs = await gateway.query(wanting(200))
        assert isinstance(answer, Results) and outputs["y"].shape == (1, 3)
        # Many that fit, whatever they want: what one took the next one may use.
        for mebibytes in (50, 300, 100, 250, 150, 300):
            assert isinstance((await gateway.query(wanting(mebibytes)))[0], Results)
        assert executor.process.returncode is None
        assert resident_mib(executor) < 1024
        # A run that failed leaves nothing with the arena.
        await gateway.query(wanting(20_000))
        await gateway.query(wanting(1))
        assert resident_mib(executor) < before + 100


async def test_an_error_outside_of_the_model_is_answered_by_its_type_alone(tmp_path):
    """The pieces have room, and their concatenation does not."""
    spec = Signature((TensorSpec("x", "FP32", (-1, 4)),), (TensorSpec("y", "FP32", (-1, WIDE)),))
    path = save_graph(
        tmp_path / "wide.onnx",
        f"""g (float[1, 4] x) => (float[1, {WIDE}] y) <int64[2] shape = {{1, {WIDE}}}> {{
            largest = ReduceMax <axes = [1], keepdims = 1> (x)
            y = Expand(largest, shape)
        }}""",
    )
    async with Executor(tmp_path, forked=False, memory_bytes=1024 * MIB) as executor:
        residents = [resident(variant(1, path), 0.5, max_batch=1)]
        gateway = await executor.applied(1, residents, [application("app", 60.0, spec)], [path])
        gateway.grant({id: wanting(id) for id in range(1, 6)})
        for id in range(1, 6):
            refusal, _ = await gateway.answer(id)
            assert (refusal.code, refusal.message) == ("failed", "v1: internal error: MemoryError")
        await executor.terminate()
    (line,) = [line for line in (tmp_path / "log").read_text().splitlines() if "batch_failed" in line]
    assert "np.concatenate" in line and "Unable to allocate" not in line


async def test_variants_share_the_memory_of_their_runs(tmp_path):
    paths = [hungry(tmp_path / f"hungry{number}.onnx", seed=number) for number in (1, 2, 3)]
    async with Executor(tmp_path, forked=False) as executor:
        residents = [resident(variant(number, path), 0.5) for number, path in enumerate(paths, 1)]
        gateway = await executor.applied(1, residents, [application(slo_s=60.0)], paths)
        before = resident_mib(executor)
        for number in (1, 2, 3):
            assert isinstance((await gateway.query(wanting(300), variant=number))[0], Results)
        # Each with an arena of its own they would keep 900.
        assert resident_mib(executor) - before < 600


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_memory_of_the_demos_models(tmp_path):
    """Warmed up with 32 rows; the figures printed are for docs/reliability.md."""
    residents, specs, paths = [], [], []
    for one in manifest.applications():
        inputs, outputs = (
            tuple(TensorSpec(t["name"], t["datatype"], tuple(t["shape"])) for t in one.signature[side])
            for side in ("inputs", "outputs")
        )
        specs.append(application(one.name, 60.0, Signature(inputs, outputs)))
        for made in one.variants:
            paths.append(made.path)
            residents.append(resident(variant(len(paths), made.path, one.name, name=made.name), 0.002, 32))
    async with Executor(tmp_path, forked=False, memory_bytes=8192 * MIB) as executor:
        await executor.node.next(StateReport)
        print(f"\nstarted: {resident_mib(executor):.0f} MiB")
        await executor.applied(1, residents, specs, paths)
        loaded = resident_mib(executor)
        print(
            f"{len(residents)} variants loaded, {sum(path.stat().st_size for path in paths) / MIB:.1f} MiB of files: "
            f"{loaded:.0f} MiB"
        )
        for number, path in enumerate(paths, 1):
            spec = next(spec for spec in specs if spec.name == residents[number - 1].variant.application)
            executor.node.connection.send(order(number, path, spec, max_batch=64))
            await executor.node.until(lambda n=number: [m for m in executor.node.of(ProfileDone) if m.job == n])
        print(f"profiled up to 64 rows: {resident_mib(executor):.0f} MiB")
        assert loaded < 800


async def test_the_process_is_ended_before_others_where_the_box_runs_out_of_memory(tmp_path):
    async with Executor(tmp_path, forked=False, memory_bytes=4096 * MIB) as executor:
        folder = Path(f"/proc/{executor.process.pid}")
        assert (folder / "oom_score_adj").read_text().strip() == "500"
        limit = next(line for line in (folder / "limits").read_text().splitlines() if line.startswith("Max data size"))
        assert limit.split()[3:5] == [str(4096 * MIB)] * 2


async def test_a_model_that_does_not_fit_is_not_loaded_and_the_others_are(tmp_path, tiny_models):
    # Folded into a constant of 20 GB when it is loaded.
    large = save_graph(
        tmp_path / "large.onnx",
        f"""g (float[b, 4] x) => (float[b, 3] y) <int64[1] size = {{{5 * 10**9}}}, {ENDS}> {{
            weights = ConstantOfShape(size)
            zero = ReduceMax <keepdims = 0> (weights)
            sum = Add(x, zero)
            y = Slice(sum, begin, end, axis)
        }}""",
    )
    quick = tiny_models["quick"]
    async with Executor(tmp_path, forked=False, memory_bytes=1024 * MIB) as executor:
        residents = [resident(variant(1, large), 0.5), resident(variant(2, quick))]
        gateway = await executor.applied(1, residents, [application(slo_s=60.0)], [large, quick])
        state = gateway.state()
        assert [warm.id for warm in state.warm] == [2] and set(state.errors) == {"v1"}
        assert isinstance((await gateway.query(rows(1), variant=2))[0], Results)


async def _cycle(executor: Executor, gateway, path: Path, others: list[Path], first: int, cycles: int) -> None:
    """Load and unload each of ``others`` in turn beside the variant that stays."""
    for number in range(first, first + cycles):
        other = others[number % len(others)]
        residents = [resident(variant(1, path)), resident(variant(2 + number % len(others), other))]
        for version, loaded in ((2 * number, residents), (2 * number + 1, residents[:1])):
            gateway.messages.clear()
            # Ahead of the plan, so that what it drops goes at once instead of a second later.
            gateway.connection.send(Moved(version))
            executor.apply(version, loaded, [application(slo_s=60.0)], [path, other], may_stay=())
            await gateway.next(ExecutorState, lambda state, v=version, n=len(loaded): _settled(state, v, n))
            assert isinstance((await gateway.query(rows(16)))[0], Results)


def _settled(state: ExecutorState, version: int, warm: int) -> bool:
    return state.plan_version == version and len(state.warm) == warm


async def _growth(tmp_path, tiny_models, warm_up: int, cycles: int) -> float:
    """KiB a cycle that the process grows by, after ``warm_up`` cycles."""
    path = tiny_models["quick"]
    others = [tiny_models["medium"], tiny_models["heavy"]]
    async with Executor(tmp_path, forked=False) as executor:
        gateway = await executor.applied(1, [resident(variant(1, path))], [application(slo_s=60.0)], [path])
        await _cycle(executor, gateway, path, others, 1, warm_up)
        await asyncio.sleep(1)
        before = resident_mib(executor)
        await _cycle(executor, gateway, path, others, warm_up + 1, cycles)
        await asyncio.sleep(1)
        after = resident_mib(executor)
        print(f"{cycles} loads and unloads: {before:.1f} MiB before, {after:.1f} MiB after")
        return (after - before) * 1024 / cycles


async def test_loading_and_unloading_leaves_memory_flat(tmp_path, tiny_models):
    # A leaked session of these models takes some 300 KiB.
    assert await _growth(tmp_path, tiny_models, 10, 30) < 100


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_a_thousand_loads_and_unloads_leave_memory_flat(tmp_path, tiny_models):
    assert await _growth(tmp_path, tiny_models, 50, 1000) < 5
