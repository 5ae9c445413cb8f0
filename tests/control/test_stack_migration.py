"""An upgrade from the release before stacks: a database made by its migrations, and plans and settings saved by it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from workers.protocol.control import GatewayConfig, NodeConfig
from workers.protocol.specs import PlanSpec

ROOT = Path(__file__).parents[2]
#: the last migrations of that release
BEFORE = (("registry", "0011"), ("scheduler", "0003"))
WIRE = {"version": 7, "devices": [], "routes": [{"application": "tiny", "device": "d", "share": 1.0}], "bands": {}}


def migrate(home: Path, *target: str) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("NEREUS_")}
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity", "0", *target],
        cwd=ROOT,
        env={**environ, "NEREUS_HOME": str(home)},
        check=True,
        timeout=120,
    )


def insert(database: sqlite3.Connection, table: str, **values: object) -> None:
    marks = ", ".join("?" * len(values))
    database.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))


@pytest.fixture(scope="module")
def before(tmp_path_factory) -> Path:
    """A database in the state of the release before, with an application and a plan."""
    home = tmp_path_factory.mktemp("before")
    for target in BEFORE:
        migrate(home, *target)
    (path,) = home.glob("*.sqlite3")
    with sqlite3.connect(path) as database:
        insert(
            database,
            "registry_application",
            name="tiny", description="", slo_ms=200.0, late="shed", signature="{}", padding="{}", sizes="[]",
            batch_policy="clipper", batch_options='{"step": 2}', weight=1.0, floor=0.0, state="active",
            created="2026-01-01",
        )  # fmt: skip
        insert(
            database,
            "scheduler_plan",
            id=7, trigger="manual", trigger_detail="", strategy="proteus", problem="{}", allocation="{}",
            wire=json.dumps({**WIRE, "routing": "shares"}), status="optimal", accuracy=99.0, demand=1.0, served=1.0,
            solve_s=0.1, gap=0.0, moves=0, reasons="[]", created="2026-01-01",
        )  # fmt: skip
    return path


def upgraded(before: Path, home: Path, **choices: str) -> sqlite3.Connection:
    """A copy of the database with these choices of operators, brought to this release."""
    home.mkdir()
    path = home / before.name
    with sqlite3.connect(before) as source, sqlite3.connect(path) as copy:
        source.backup(copy)
        for setting, value in choices.items():
            insert(copy, "scheduler_choice", setting=setting, value=value, changed="2026-01-01")
    migrate(home)
    return sqlite3.connect(path)


@pytest.mark.parametrize(
    ("choices", "after"),
    [
        ({"strategy": "proteus", "routing": "shares"}, [("stack", "proteus")]),
        ({"strategy": "proteus-wo-qa", "routing": "uniform"}, []),
        ({"strategy": "somebody's"}, []),
        ({"routing": "least-completion"}, []),
    ],
    ids=["a live stack", "not for serving", "unknown", "routing alone"],
)
def test_a_chosen_strategy_becomes_the_stack_of_its_name_else_the_default(choices, after, before, tmp_path):
    database = upgraded(before, tmp_path / "home", **choices)
    assert database.execute("SELECT setting, value FROM scheduler_choice").fetchall() == after


def test_applications_and_plans_stay_and_batch_policies_go(before, tmp_path):
    database = upgraded(before, tmp_path / "home")
    assert database.execute("SELECT name, slo_ms FROM registry_application").fetchall() == [("tiny", 200.0)]
    columns = {row[1] for row in database.execute("PRAGMA table_info(registry_application)")}
    assert not columns & {"batch_policy", "batch_options"}
    ((stack, wire),) = database.execute("SELECT stack, wire FROM scheduler_plan").fetchall()
    assert stack == "proteus"
    plan = msgspec.convert(json.loads(wire), PlanSpec)
    assert (plan.version, plan.stack, len(plan.routes)) == (7, "nereus", 1)


def test_configurations_that_members_saved_before_are_read():
    application = {
        "name": "tiny",
        "slo_s": 0.2,
        "signature": {"inputs": [], "outputs": []},
        "batching": {"policy": "clipper", "options": {"step": 2}},
    }
    plan = {**WIRE, "routing": "shares"}
    saved = msgspec.json.encode({"applications": [application], "key_hashes": [], "plan": plan})
    assert msgspec.json.decode(saved, type=GatewayConfig).plan.stack == "nereus"
    saved = msgspec.json.encode({"applications": [application], "plan": plan, "keep": []})
    assert msgspec.json.decode(saved, type=NodeConfig).plan.version == 7
