"""An upgrade from the release before stacks, with a database made by its migrations."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import msgspec
import pytest

from tests.forked import of_commands
from tests.running import bare_environment
from workers.protocol.control import GatewayConfig, NodeConfig
from workers.protocol.specs import PlanSpec

pytestmark = pytest.mark.wide

ROOT = Path(__file__).parents[2]
#: the last migrations of that release
BEFORE = (("registry", "0001"), ("scheduler", "0001"))
#: the migration that brings stacks
STACKS = (("scheduler", "0002"),)
WIRE = {"version": 7, "devices": [], "routes": [{"application": "tiny", "device": "d", "share": 1.0}], "bands": {}}


#: in one process, since its start takes longer than most migrations
MIGRATE = """
from django.core.management import call_command
from django.db import connection
for path in {paths!r}:
    connection.close()
    connection.settings_dict["NAME"] = path
    for target in {targets!r}:
        call_command("migrate", *target, verbosity=0)
"""
#: what operators had chosen, and what becomes of it
CHOICES = {
    "a live stack": ({"strategy": "proteus", "routing": "shares"}, [("stack", "proteus")]),
    "not for serving": ({"strategy": "proteus-wo-qa", "routing": "uniform"}, []),
    "unknown": ({"strategy": "somebody's"}, []),
    "routing alone": ({"routing": "least-completion"}, []),
    "none": ({}, []),
}


def migrate(home: Path, paths: list[Path], targets: tuple[tuple[str, ...], ...] = ((),)) -> None:
    """Bring databases to each of these states in turn; (): this release's."""
    environ = bare_environment()
    code = MIGRATE.format(paths=list(map(str, paths)), targets=targets)
    command = ("manage.py", "shell", "-v", "0", "-c", code)
    done = of_commands().run(*command, env={**environ, "NEREUS_HOME": str(home)})
    assert done.returncode == 0, done.stderr


def insert(database: sqlite3.Connection, table: str, **values: object) -> None:
    marks = ", ".join("?" * len(values))
    database.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))


@pytest.fixture(scope="module")
def before(tmp_path_factory) -> Path:
    """A database in the state of the release before, with an application and a plan."""
    home = tmp_path_factory.mktemp("before")
    path = home / "before.sqlite3"
    migrate(home, [path], BEFORE)
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


@pytest.fixture(scope="module")
def upgraded(before, tmp_path_factory) -> dict[str, sqlite3.Connection]:
    """Copies with each of :data:`CHOICES`, upgraded as far as choices change; the last, with none, to this release."""
    home = tmp_path_factory.mktemp("upgraded")
    paths = {name: home / f"{number}.sqlite3" for number, name in enumerate(CHOICES)}
    for name, path in paths.items():
        with sqlite3.connect(before) as source, sqlite3.connect(path) as copy:
            source.backup(copy)
            for setting, value in CHOICES[name][0].items():
                insert(copy, "scheduler_choice", setting=setting, value=value, changed="2026-01-01")
    *others, last = paths.values()
    migrate(home, others, STACKS)
    migrate(home, [last])
    return {name: sqlite3.connect(path) for name, path in paths.items()}


@pytest.mark.parametrize("name", CHOICES)
def test_a_chosen_strategy_becomes_the_stack_of_its_name_else_the_default(name, upgraded):
    rows = upgraded[name].execute("SELECT setting, value FROM scheduler_choice").fetchall()
    assert rows == CHOICES[name][1]


def test_applications_and_plans_stay_and_batch_policies_go(upgraded):
    database = upgraded["none"]
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
