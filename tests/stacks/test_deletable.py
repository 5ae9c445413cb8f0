"""Any paper can be deleted: its folder, its executing half and its tests."""

import shutil
import subprocess
import sys

import pytest

from scheduler.stacks.registry import PAPERS
from tests.running import ROOT, bare_environment

pytestmark = pytest.mark.wide

PACKAGES = ("appliance", "benchmarks", "console", "registry", "scheduler", "workers")
#: prints the stacks to serve with and to simulate, by name, after a plan and a run of the default
WITHOUT = """
import importlib, pkgutil
import django
django.setup()
for package in ("console", "registry", "scheduler", "workers"):
    for found in pkgutil.walk_packages([package], package + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
from scheduler.stacks.strategies import names
from scheduler.simulation import simulate
from scheduler.simulation.stacks import ALL
from tests.simulation.worlds import model, world
from workers.dispatch import bindings, stacks
for name in stacks.LIVE:
    bindings.create(name)
assert {stack.strategy for stack in ALL.values()} == set(names())
arrivals = [(20.0 * i, "p") for i in range(40)]
summary = simulate(world([model("p", "good", cpu={1: 10, 2: 15})], arrivals)).summary
assert summary["in_time"] == 40, summary
print(*ALL)
"""


@pytest.mark.parametrize("paper", PAPERS)
def test_the_rest_goes_on_without_it(paper, tmp_path):
    for name in (*PACKAGES, "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(tmp_path / "scheduler/stacks" / paper)
    shutil.rmtree(tmp_path / "tests/stacks" / paper)
    (tmp_path / "workers/dispatch/published/papers" / f"{paper}.py").unlink()
    environ = bare_environment()
    environ |= {"DJANGO_SETTINGS_MODULE": "appliance.settings", "NEREUS_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    left = done.stdout.split()
    assert left[0] == "nereus" and not {name for name in left if name in PAPERS[paper].strategies}
    assert set(left) >= {name for other in PAPERS if other != paper for name in PAPERS[other].strategies}
