"""Honest clients get all their answers while each attacker of the benchmark is at work."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time

import pytest

from benchmarks.attackers import ATTACKERS, HOST
from tests.gateway.conftest import AUTH, KEY, served, wait_for  # noqa: F401 - a fixture
from tests.gateway.test_failures import PATH
from tests.net.http2_client import HEAD, connected, prefixed
from tests.pressure.wire import answer, post
from tests.running import ROOT

pytestmark = pytest.mark.wide

SECONDS = 1.0


async def honest(port: int, number: int, until: float) -> int:
    reader, writer = await asyncio.open_connection(HOST, port)
    answered = 0
    while not answered or time.monotonic() < until:
        x = [float(number), float(answered), 1.0, 2.0]
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": x}]}
        writer.write(post(PATH, json.dumps(body).encode(), **AUTH))
        status, _, found = await asyncio.wait_for(answer(reader), 60)
        assert status == 200, found
        assert json.loads(found)["outputs"][0]["data"] == [2 * value for value in x]
        answered += 1
        await asyncio.sleep(0.01)
    writer.close()
    return answered


async def still_speaks_grpc(port: int) -> None:
    fields = [
        (name, "/inference.GRPCInferenceService/ServerLive" if name == ":path" else value) for name, value in HEAD
    ]
    async with connected(port) as peer:
        peer.ask(1, b"", fields)
        assert (await peer.response(1))[0] == prefixed(b"\x08\x01")


@pytest.mark.parametrize("name", ATTACKERS)
async def test_honest_clients_get_all_their_answers_beside_an_attacker(served, name):  # noqa: F811
    grpc = int(served.grpc.rpartition(":")[2])
    command = [sys.executable, "-m", "benchmarks.attackers", name, str(served.port), str(grpc), KEY, PATH, str(SECONDS)]
    attacker = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        clients = [honest(served.port, number, time.monotonic() + SECONDS) for number in range(16)]
        assert min(await asyncio.gather(*clients)) > 0
        await still_speaks_grpc(grpc)
        made, _ = await asyncio.to_thread(attacker.communicate, timeout=120)
        assert int(made) > 0, "it has attacked"
    finally:
        attacker.kill()
    wait_for(lambda: served.health()["in_flight"] == 0, "nothing is in flight")
    assert not [line for line in served.log if '"level": "error"' in line and "link_refused" not in line]
