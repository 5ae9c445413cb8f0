"""A node, ``python -m workers.node``, as an operator runs it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import asynccontextmanager

import msgspec
import psutil
import pytest

from tests.node import conftest
from tests.node.test_daemon import config
from workers.protocol import control
from workers.protocol.specs import ProfilePoint


def environ(settings, **variables: str) -> dict[str, str]:
    made = conftest.environ(settings.home, settings.control_url, str(settings.node_http))
    return {"PATH": os.environ["PATH"], **made, **variables}


@asynccontextmanager
async def node(settings):
    """Run the process, stop it at the end, and check that it left nothing behind."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "workers.node", env=environ(settings))
    try:
        yield process
        if process.returncode is not None:
            return  # killed by the test
        children = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 120) == 0
        assert [child for child in children if child.is_running()] == []
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def real_config(version: int, spec):
    message = config(version, spec)
    points = tuple(ProfilePoint(batch=b, p50_s=0.001 * b, p95_s=0.002 * b, mean_s=0.001 * b) for b in (1, 2, 4, 8))
    (plan,) = message.plan.devices
    residents = tuple(msgspec.structs.replace(resident, profile=points) for resident in plan.residents)
    plan = msgspec.structs.replace(plan, residents=residents)
    return msgspec.structs.replace(message, plan=msgspec.structs.replace(message.plan, devices=(plan,)))


async def test_a_second_daemon_of_the_same_name_is_refused(settings, control_plane):
    async with node(settings):
        await control_plane.receive(control.JoinNode)
        second = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "workers.node", env=environ(settings), stderr=subprocess.PIPE
        )
        _, said = await second.communicate()
        assert second.returncode == 1
        assert b"another node daemon named box runs" in said


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"NEREUS_CPU_DEVICES": "999x1"}, "NEREUS_CPU_DEVICES='999x1': asks for 999 cores"),
        ({"NEREUS_CPU_DEVICES": "one"}, "NEREUS_CPU_DEVICES='one': must be auto"),
        ({"NEREUS_NODE_NAME": "a/b"}, "NEREUS_NODE_NAME='a/b': must be 1 to 63"),
        ({"NEREUS_NODE_HTPP": "x"}, "did you mean NEREUS_NODE_HTTP?"),
        ({"NEREUS_HOME": "/proc/nereus"}, "NEREUS_HOME"),
    ],
)
def test_settings_that_cannot_be_used_end_it_with_the_list(settings, variables, says):
    done = subprocess.run(
        [sys.executable, "-m", "workers.node"], env=environ(settings, **variables), capture_output=True, text=True
    )
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_the_daemon_stays_lean():
    code = (
        "import sys, workers.node.__main__\n"
        "heavy = {'django', 'celery', 'pyscipopt', 'channels', 'onnxruntime', 'numpy', 'registry', 'scheduler', "
        "'console', 'appliance'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
