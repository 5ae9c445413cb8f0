"""Members of a running appliance get what they should hold.

That is so whatever becomes of Redis.
"""

from __future__ import annotations

import os
import signal

import httpx2
import pytest
import redis

from tests.forked import of_commands
from tests.running import eventually, v2_request
from tests.transport.worlds import handshake
from workers.protocol import control
from workers.transport.identity import client_context, server_context

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


def test_the_authority_of_members_certificates_is_replaced_while_queries_go_on(appliance):
    files = {name: appliance.home / "members" / f"{name}.pem" for name in ("node-box", "gateway-box-gateway")}
    with appliance.rest() as client:
        keys = {
            f"{kind}-{member['name']}": member["certificate"]["key"]
            for kind in ("node", "gateway")
            for member in client.get(f"/{kind}s/").json()["results"]
        }
    assert set(keys) == set(files)
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files.values())

    def listed() -> set[str]:
        config = (appliance.home / "members" / "gateway-box-gateway-config.json").read_bytes()
        return {peer.key_hash for peer in control.decode_to_gateway(config).peers}

    eventually(lambda: listed() == set(keys.values()), why="both members are the gateway's peers")
    before = {name: file.read_bytes() for name, file in files.items()}
    done = of_commands().run("manage.py", "rotate", "members-authority", env=appliance.environment)
    assert done.returncode == 0, done.stderr

    def renewed() -> bool:
        now = {name: file.read_bytes() for name, file in files.items()}
        for server in (before["node-box"], now["node-box"]):
            for client in (before["gateway-box-gateway"], now["gateway-box-gateway"]):
                node, gateway = handshake(server_context(server), client_context(client))
                assert (node.key_hash, gateway.key_hash) == (keys["node-box"], keys["gateway-box-gateway"])
        with appliance.inference() as client:
            assert client.post("/v2/models/tiny/infer", json=v2_request()).status_code == 200
        return all(now[name] != before[name] for name in files)

    eventually(renewed, why="certificates of the next authority")
    assert listed() == set(keys.values())
