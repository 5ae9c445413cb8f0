"""Every module can be imported: some are imported by a command or a plug-in only."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("appliance", "benchmarks", "console", "registry", "scheduler", "workers")
#: needs a library that only its own run installs
ELSEWHERE = {"appliance.demo.train", "benchmarks.mosec.worker"}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_can_be_imported(package):
    names = {found.name for found in pkgutil.walk_packages([str(ROOT / package)], f"{package}.")}
    assert names
    for name in sorted(names - ELSEWHERE):
        if not name.endswith(".__main__"):
            importlib.import_module(name)
