"""A stack with policies, live, on a real gateway and real executors.

They run the variants that a plan's policies name.
"""

from __future__ import annotations

import asyncio

import httpx2
import msgspec
import pytest

from tests.executor.harness import Executor, application, resident, variant
from workers.protocol.specs import DevicePlan, DevicePolicies, LoadPolicySpec, PlanSpec, Route

from .conftest import AUTH, GatewayProcess, config, wait_for

HEAVY, QUICK = 1, 2
#: a lone row is worth the heavy variant, if a minute is left; two rows are not
CHOOSY = ((0.0, 0), (60.0, 1)), ((0.0, 0),)


def policies(load: float, steps=CHOOSY) -> tuple[LoadPolicySpec, ...]:
    return (LoadPolicySpec(load, steps),)


@pytest.fixture
async def two(gateways, tiny_models, tmp_path, control_plane):
    """Two devices with a quick and a heavy variant, and what sends them plans."""
    heavy = resident(variant(HEAVY, tiny_models["heavy"], accuracy=99.0, name="heavy"), 0.006, max_batch=8)
    quick = resident(variant(QUICK, tiny_models["quick"], accuracy=80.0, name="quick"), 0.0005, max_batch=8)
    app = application("app", 600.0)
    executors = [Executor(tmp_path / str(i), device=f"box/cpu{i}") for i in range(2)]
    for i, executor in enumerate(executors):
        (tmp_path / str(i)).mkdir()
        await executor.__aenter__()
        executor.apply(1, [quick], [app], list(tiny_models.values()), standby=[heavy])

    def plan(version: int, some: tuple[LoadPolicySpec, ...], stack: str = "ramsis") -> PlanSpec:
        refs = tuple(executor.info.id for executor in executors)
        devices = tuple(DevicePlan(e.info.id, e.endpoint, (quick,), standby_residents=(heavy,)) for e in executors)
        made = PlanSpec(version, devices, tuple(Route("app", ref, 0.5) for ref in refs), stack=stack)
        return msgspec.structs.replace(made, policies=(DevicePolicies("app", refs, (QUICK, HEAVY), some),))

    gateway = gateways(
        config(plan(1, policies(1e6)), [app]), NEREUS_CONTROL_URL=control_plane.url, NEREUS_JOIN_TOKEN="t"
    )
    await asyncio.to_thread(wait_for, lambda: control_plane.connection, "the gateway joined")

    async def adopt(version: int, some: tuple[LoadPolicySpec, ...], stack: str = "ramsis") -> None:
        for executor in executors:
            executor.apply(version, [quick], [app], list(tiny_models.values()), standby=[heavy])
        control_plane.send(config(plan(version, some, stack), [app]))

        def adopted() -> bool:
            health = gateway.health()
            return health["plan"]["adopted"] == version and sum(len(d["warm"]) for d in health["devices"].values()) == 4

        await asyncio.to_thread(wait_for, adopted, f"plan {version} with all variants warm")

    yield gateway, adopt
    for executor in executors:
        await executor.__aexit__(None, None, None)


async def ask(http: httpx2.AsyncClient, gateway: GatewayProcess, rows: int) -> str:
    return (await send(http, gateway, rows))["variant"]


async def send(http: httpx2.AsyncClient, gateway: GatewayProcess, rows: int) -> dict:
    tensor = {"name": "x", "datatype": "FP32", "shape": [rows, 4], "data": [1.0] * 4 * rows}
    response = await http.post(f"{gateway.url}/v2/models/app/infer", json={"inputs": [tensor]})
    assert response.status_code == 200, response.text
    return response.json()["parameters"]


async def test_devices_run_what_the_plan_s_policies_name(two):
    gateway, adopt = two
    async with httpx2.AsyncClient(headers=AUTH, timeout=120) as http:
        await adopt(2, policies(1e6))
        assert [await ask(http, gateway, rows) for rows in (1, 2, 1, 5)] == ["heavy", "quick", "heavy", "quick"]
        # Any arrival is a load of 2/s at least: above all policies.
        await adopt(3, policies(1.0))
        assert [await ask(http, gateway, 1) for _ in range(4)] == ["quick"] * 4
        # No query has an hour left.
        await adopt(4, policies(1e6, (((0.0, 0), (3_600.0, 1)),)))
        assert await ask(http, gateway, 1) == "quick"
