"""A home with short paths, a control plane and running daemons."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.node.control_plane import ControlPlane, free_port
from workers.link import LinkTiming
from workers.node import redivision
from workers.node.backoff import RestartTiming
from workers.node.daemon import NodeDaemon
from workers.settings import Settings

STAND_IN = (sys.executable, "-m", "tests.node.stand_in")
QUICK_LINK = LinkTiming(
    first=0.05,
    longest=0.2,
    refused_first=0.1,
    refused_longest=0.2,
    replaced_first=0.1,
    replaced_longest=0.2,
    ping_every=60.0,
    ping_answer=60.0,
)
QUICK_RESTART = RestartTiming(
    first=0.1, longest=0.4, limit=3, answer=120.0, silent=120.0, hung=120.0, reattach=120.0, term=3.0
)


@pytest.fixture
def home():
    """A folder whose path is short enough for unix sockets in it."""
    folder = Path(tempfile.mkdtemp(prefix="nn-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def control_plane():
    plane = ControlPlane()
    await plane.start()
    yield plane
    await plane.stop()


def environ(home, control_url: str, node_http: str) -> dict[str, str]:
    return {
        "NEREUS_HOME": str(home),
        "NEREUS_CONTROL_URL": control_url,
        "NEREUS_JOIN_TOKEN": "join-me",
        "NEREUS_NODE_NAME": "box",
        "NEREUS_NODE_HTTP": node_http,
        "NEREUS_CPU_DEVICES": "1x1",
        "NEREUS_GPU": "0",
    }


@pytest.fixture
def settings(home, control_plane) -> Settings:
    settings = Settings.from_environ(environ(home, control_plane.url, f"127.0.0.1:{free_port()}"))
    settings.make_folders()
    return settings


@asynccontextmanager
async def running(settings, command=STAND_IN, restart_timing=QUICK_RESTART):
    daemon = NodeDaemon(
        settings, redivision.restore(settings), command=command, restart_timing=restart_timing, link_timing=QUICK_LINK
    )
    task = asyncio.create_task(daemon.run())
    try:
        yield daemon
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled(), task.exception()


def asked(settings, name: str = "box-cpu0") -> list[str]:
    """Requests to the stand-in executor, a line each, without its process id."""
    path = settings.socket_folder / f"{name}.log"
    return [line.split(" ", 1)[1] for line in path.read_text().splitlines()] if path.exists() else []
