"""A backup that is restored after the appliance went on.

Plan versions rise, and members come back by themselves.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.forked import of_commands
from tests.running import RunningAppliance, eventually, serving, v2_request

pytestmark = pytest.mark.wide


def manage(appliance: RunningAppliance, *arguments: str) -> str:
    done = of_commands().run("manage.py", *arguments, env=appliance.environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def newest(appliance: RunningAppliance) -> int:
    with appliance.inference() as client:
        return client.get("/health").json()["plan"]["newest"]


def test_members_follow_newer_plans_after_a_restore(tmp_path: Path, tiny_models):
    file, home = tmp_path / "backup.tar", tmp_path / "home"
    with serving(home, {"quick": tiny_models["quick"]}, NEREUS_PLAN_PERIOD_S="1") as appliance:
        manage(appliance, "backup", str(file))
        then = newest(appliance)
        eventually(lambda: newest(appliance) > then + 3, why="newer plans than in the backup")
    held = int((home / "plan_version").read_text())
    assert held > then + 3
    try:
        manage(appliance, "restore", str(file))
        # A node that got its credential after the backup was made.
        found = (home / "members").glob("node-*.json")
        (credential,) = [path for path in found if not path.name.endswith("-config.json")]
        kept = json.loads(credential.read_text())
        credential.write_text(json.dumps(kept | {"credential": "newer than the backup"}))
        appliance = RunningAppliance(home, environment={"NEREUS_PLAN_PERIOD_S": "1"})
        appliance.start()
        received = lambda: [line["version"] for line in appliance.events("plan_received")]  # noqa: E731
        eventually(lambda: received() and received()[-1] > held + 1, why="plans above those that members held")
        with appliance.rest() as client:
            devices = eventually(
                lambda: [d for d in client.get("/devices/").json()["results"] if d["state"] == "up"], why="devices up"
            )
        eventually(lambda: json.loads(credential.read_text())["credential"] != "newer than the backup", why="rejoined")
        assert all(device["plan_version"] >= 0 for device in devices)
        with appliance.inference() as client:
            eventually(
                lambda: client.post("/v2/models/tiny/infer", json=v2_request()).status_code == 200, why="an answer"
            )
    finally:
        appliance.stop()
        print(appliance.log()[-20000:])  # shown by pytest when a test failed
