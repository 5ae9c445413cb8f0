"""A stack with policies, live, on a real gateway and real executors."""

from __future__ import annotations

import httpx2
import msgspec
import pytest

from tests.executor.harness import application
from workers.protocol.specs import DevicePolicies, LoadPolicySpec

from .conftest import config, until
from .test_late_binding import World, plan_of

HEAVY, QUICK = 1, 2
#: a lone row is worth the heavy variant, if a minute is left; two rows are not
CHOOSY = ((0.0, 0), (60.0, 1)), ((0.0, 0),)


def policies(load: float, steps=CHOOSY) -> tuple[LoadPolicySpec, ...]:
    return (LoadPolicySpec(load, steps),)


@pytest.fixture
async def two(gateways, tiny_models, tmp_path, control_plane):
    """Two devices with a quick and a heavy variant, and what sends them plans."""
    world, app = World(gateways, tiny_models, tmp_path), application("app", 600.0)
    standby, linked = [world.heavy], {"NEREUS_CONTROL_URL": control_plane.url, "NEREUS_JOIN_TOKEN": "t"}

    async def adopt(version: int, some: tuple[LoadPolicySpec, ...]) -> None:
        world.apply(version, world.quick, standby=standby, app=app)
        plan = plan_of(version, world.executors, world.quick, stack="ramsis", standby=standby)
        refs = tuple(device.device for device in plan.devices)
        policies = (DevicePolicies("app", refs, (QUICK, HEAVY), some),)
        control_plane.send(config(msgspec.structs.replace(plan, policies=policies), [app]))
        await until(lambda: gateway.health()["plan"]["adopted"] == version, f"plan {version} is adopted")
        await world.warm(gateway, 4)

    async with world.stack:
        gateway = await world.start(2, world.quick, standby=standby, app=app, **linked)
        await until(lambda: control_plane.connection, "the gateway joined")
        yield gateway, adopt


async def ask(http: httpx2.AsyncClient, rows: int) -> str:
    tensor = {"name": "x", "datatype": "FP32", "shape": [rows, 4], "data": [1.0] * 4 * rows}
    response = await http.post("/v2/models/app/infer", json={"inputs": [tensor]})
    assert response.status_code == 200, response.text
    return response.json()["parameters"]["variant"]


async def test_devices_run_what_the_plan_s_policies_name(two):
    gateway, adopt = two
    async with gateway.client() as http:
        await adopt(2, policies(1e6))
        assert [await ask(http, rows) for rows in (1, 2, 1, 5)] == ["heavy", "quick", "heavy", "quick"]
        # Any arrival is a load of 2/s at least: above all policies.
        await adopt(3, policies(1.0))
        assert [await ask(http, 1) for _ in range(4)] == ["quick"] * 4
        # No query has an hour left.
        await adopt(4, policies(1e6, (((0.0, 0), (3_600.0, 1)),)))
        assert await ask(http, 1) == "quick"
