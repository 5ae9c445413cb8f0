"""Members of a running appliance get what they should hold, whatever becomes of Redis."""

from __future__ import annotations

import os
import signal

import httpx2
import pytest
import redis

from tests.forked import of_commands
from tests.running import eventually, v2_request

pytestmark = pytest.mark.wide


def test_keys_and_plans_arrive_after_redis_was_emptied(appliance):
    def status(key: str) -> int:
        headers = {"Authorization": f"Bearer {key}"}
        return httpx2.post(
            appliance.http + "/v2/models/tiny/infer", json=v2_request(), headers=headers, timeout=60
        ).status_code

    with appliance.rest() as client:
        redis.Redis(unix_socket_path=str(appliance.home / "run" / "redis.sock")).flushall()
        made = client.post("/api-keys/", json={"name": "after-flush"}).json()
        eventually(lambda: status(made["key"]) == 200, why="the new key is accepted")
        assert client.delete("/api-keys/after-flush/").status_code == 204
        eventually(lambda: status(made["key"]) == 401, why="the deleted key is refused")
        newest = client.get("/plans/").json()["results"][0]["version"]

        def devices() -> list[dict]:
            return client.get("/devices/").json()["results"]

        eventually(
            lambda: all(device["plan_version"] > newest for device in devices() if device["ref"].startswith("box/")),
            why="a newer plan at the node's devices",
        )


def test_members_come_back_though_their_credentials_and_the_join_token_were_rotated(appliance):
    def links() -> list[str]:
        with appliance.inference() as client:
            gateway = client.get("/health").json()["control_plane"]
        node = httpx2.get(appliance.node_http + "/health", timeout=60).json()["link"]["up"]
        return [gateway, "up" if node else "down"]

    eventually(lambda: links() == ["up", "up"], why="both are linked")
    done = of_commands().run("manage.py", "rotate", "members", "join-token", env=appliance.environment)
    assert done.returncode == 0, done.stderr
    web = appliance.pid("web")
    os.kill(web, signal.SIGKILL)
    eventually(lambda: appliance.pid("web") != web, why="another web")

    def refused() -> set[str]:
        return {line["member"] for line in appliance.events("credential_refused")}

    # The links themselves may not have noticed yet, and say that they are up.
    eventually(lambda: refused() == {"box", "box-gateway"}, why="both had to join anew")
    eventually(lambda: links() == ["up", "up"], why="both are linked again")
