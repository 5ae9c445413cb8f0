"""One Redis for two appliances, with TLS, a password and access lists.

It is a real server. Each appliance has a user that may touch keys and channels of its own prefix alone, so a name
without it fails.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from tests.authority import Authority
from tests.running import ROOT, eventually, free_ports, redis_answers
from tests.test_connections import manage
from workers.environ import SettingsError
from workers.settings import Settings

pytestmark = pytest.mark.skipif(not shutil.which("redis-server"), reason="no redis-server with TLS on this box")

PREFIXES = ("one", "two")
#: commands that no part of the appliance needs
DENIED = "-@dangerous"


class SharedRedis:
    """A server that takes TLS alone. ``settings``: of the appliance with a prefix."""

    def __init__(self, folder: Path, port: int, authority: Authority) -> None:
        self.port, self.authority = port, authority
        self._folder = folder

    def settings(self, prefix: str) -> dict[str, str]:
        client = self._folder / "client"
        mutual = f"ssl_certfile={client}.pem&ssl_keyfile={client}-key.pem"
        return {
            "NEREUS_REDIS_URL": f"rediss://{prefix}:word-of-{prefix}@localhost:{self.port}/0?{mutual}",
            "NEREUS_REDIS_PREFIX": prefix,
            "NEREUS_CA_FILE": str(self.authority.file),
        }

    def client(self) -> redis.Redis:
        url = f"rediss://:master@localhost:{self.port}/0?ssl_ca_certs={self.authority.file}"
        files = {name: str(self._folder / f"client{end}.pem") for name, end in (("cert", ""), ("key", "-key"))}
        return redis.Redis.from_url(
            f"{url}&ssl_certfile={files['cert']}&ssl_keyfile={files['key']}", decode_responses=True
        )


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[SharedRedis]:
    folder = tmp_path_factory.mktemp("shared")
    authority = Authority(folder)
    server = authority.issue("server", "localhost")
    authority.issue("client", "a control plane", client=True)
    (port,) = free_ports(1)
    users = "".join(
        f"user {prefix} on >word-of-{prefix} ~{prefix}:* &{prefix}:* +@all {DENIED} +info\n" for prefix in PREFIXES
    )
    config = folder / "redis.conf"
    config.write_text(
        f"port 0\ntls-port {port}\nbind 127.0.0.1\nsave ''\nrequirepass master\ntls-auth-clients yes\n"
        f"tls-cert-file {server.certificate}\ntls-key-file {server.key}\ntls-ca-cert-file {authority.file}\n{users}"
    )
    process = subprocess.Popen(["redis-server", str(config)], stdout=subprocess.DEVNULL, cwd=folder)
    made = SharedRedis(folder, port, authority)
    try:
        eventually(lambda: redis_answers(made.client()), why="Redis answers", of=[process])
        yield made
    finally:
        process.kill()
        process.wait()


STATE = """
import asyncio, json
from registry import clock
from scheduler import live, queue, telemetry
from scheduler import presence
from scheduler.repairs import samples
live.client().set(live.key('whose'), '{prefix}')
telemetry.record(telemetry.NODE_STREAM, {{'t': int(clock.wall()), 'node': '{prefix}', 'devices': []}})
print('seconds', [each['node'] for each in telemetry.node_seconds(60)])
telemetry._keep_within_bytes(telemetry.NODE_STREAM)
presence.seen(); presence.silence_counts(); live.content(); queue.send('scheduler.plan')
async def hear():
    async for text in live.listen(live.EVENTS):
        if text is not None:
            return print('received', json.loads(text)['data'])
        await live.publish_async('hello', '{prefix}')
asyncio.run(hear())
"""


def test_two_prefixes_do_not_see_each_other(shared, tmp_path):
    for prefix in PREFIXES:
        home = tmp_path / prefix
        home.mkdir()
        code = STATE.format(prefix=prefix).strip()
        done = manage(home, f"exec({code!r})", **shared.settings(prefix))
        shown = dict(line.split(" ", 1) for line in done.stdout.splitlines() if not line.startswith("{"))
        assert shown == {"seconds": f"['{prefix}']", "received": prefix}, done.stderr[-3000:]
    keys = shared.client().keys("*")
    assert {key.partition(":")[0] for key in keys} == set(PREFIXES), keys


@contextmanager
def worker(home: Path, settings: dict[str, str]) -> Iterator[subprocess.Popen]:
    environment = {"NEREUS_HOME": str(home), "PATH": "/usr/bin:/bin", **settings}
    command = [sys.executable, "-m", "appliance.local.lean_celery", "-Q", "control"]
    command += ["-n", "control@nereus", "--loglevel", "info"]
    with (home / "worker.log").open("ab") as log:
        process = subprocess.Popen([*command, "--pool", "solo"], cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def test_tasks_reach_the_workers_of_their_own_prefix_alone(shared, tmp_path):
    homes = {prefix: tmp_path / prefix for prefix in PREFIXES}
    for home in homes.values():
        home.mkdir()
    send = "from celery import current_app; current_app.send_task('appliance.heartbeat', kwargs={'service': 'SERVICE'})"
    with worker(homes["one"], shared.settings("one")) as one, worker(homes["two"], shared.settings("two")) as two:
        for prefix in PREFIXES:
            code = send.replace("SERVICE", f"from-{prefix}")
            done = manage(homes[prefix], f"import appliance.celery; {code}", **shared.settings(prefix))
            assert done.returncode == 0, done.stderr[-3000:]
        folders = {
            prefix: Settings.from_environ({"NEREUS_HOME": str(home)}).socket_folder for prefix, home in homes.items()
        }
        for prefix, folder in folders.items():
            done = folder / f"from-{prefix}.heartbeat"
            eventually(done.exists, why=f"{prefix}'s task; {homes[prefix] / 'worker.log'}", of=(one, two))
    for prefix, home in homes.items():
        assert [path.name for path in folders[prefix].glob("from-*")] == [f"from-{prefix}.heartbeat"]
        assert "NOPERM" not in (home / "worker.log").read_text()


def test_a_wrong_password_and_another_prefix_are_refused(shared, tmp_path):
    own = shared.settings("one")
    ping = "from scheduler import live; live.client().get(live.key('whose'))"
    for settings, why in (
        (own | {"NEREUS_REDIS_URL": own["NEREUS_REDIS_URL"].replace("word-of-one", "word")}, "WRONGPASS"),
        (own | {"NEREUS_REDIS_PREFIX": "two"}, "NoPermissionError"),
    ):
        done = manage(tmp_path, ping, **settings)
        assert done.returncode != 0 and ("invalid username" in done.stderr or why in done.stderr), done.stderr[-2000:]
    with pytest.raises(SettingsError, match="NEREUS_REDIS_PREFIX"):
        Settings.from_environ({"NEREUS_REDIS_PREFIX": "a key:"})
