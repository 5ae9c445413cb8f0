"""The playbook, run for real against this machine: into a folder of the test's own, without systemd and packages."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import ROOT

PLAYBOOK = shutil.which("ansible-playbook", path=str(Path(sys.executable).parent))


@pytest.fixture
def box(tmp_path):
    """A prefix whose virtual environment has the packages already, so that nothing is downloaded again."""
    prefix = tmp_path / "opt"
    prefix.mkdir()
    (prefix / ".venv").symlink_to(Path(sys.executable).parent.parent)
    return prefix


def provision(prefix: Path, home: Path, settings: dict[str, str]) -> subprocess.CompletedProcess:
    variables = {
        "nereus_hosts": "localhost",
        "nereus_prefix": str(prefix),
        "nereus_home": str(home),
        "nereus_user": getpass.getuser(),
        "nereus_owner": getpass.getuser(),
        "nereus_create_user": False,
        "nereus_systemd": False,
        "nereus_packages": [],
        "nereus_settings": settings,
        "ansible_python_interpreter": sys.executable,
    }
    return subprocess.run(
        [
            PLAYBOOK,
            *("-i", "localhost,"),
            *("-c", "local"),
            *("-e", json.dumps(variables)),
            str(ROOT / "ansible" / "site.yml"),
        ],
        cwd=prefix.parent,
        env={**os.environ, "LC_ALL": "C.UTF-8", "ANSIBLE_LOCALHOST_WARNING": "false", "NEREUS_HOME": ""},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


def test_a_box_gets_code_settings_and_a_home_of_its_own(box, tmp_path):
    home = tmp_path / "home"
    done = provision(box, home, {"NEREUS_PLAN_PERIOD_S": "20"})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert (box / "manage.py").exists() and not (box / ".git").exists()
    assert (box / "nereus.env").read_text().splitlines() == [f"NEREUS_HOME={home}", "NEREUS_PLAN_PERIOD_S=20"]
    assert (box / "nereus.env").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700


def test_a_wrong_setting_stops_the_playbook_with_its_reason(box, tmp_path):
    done = provision(box, tmp_path / "home", {"NEREUS_HEADROOM": "9"})
    assert done.returncode != 0
    assert "NEREUS_HEADROOM='9': must be a number from 1 to 3" in done.stdout
