"""The playbooks, run for real against this machine: into folders of the tests' own, without packages to install."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.running import ROOT

TOOLS = Path(sys.executable).parent
COLLECTION = ROOT / "ansible"
PLAYBOOKS = COLLECTION / "playbooks"
#: ``-m venv FOLDER``: one that sees the tests' packages, so that pip finds all of them installed
ENVIRONMENT = f"""#!/bin/sh
set -e
[ "$1" = -m ] || exit 0
shift 2
{sys.executable} -m venv --without-pip "$1"
for folder in "$1"/lib/python*/site-packages; do echo {sysconfig.get_path("purelib")} > "$folder/packages.pth"; done
printf '#!/bin/sh\\nexec "%s/bin/python" -m pip "$@"\\n' "$1" > "$1/bin/pip"
chmod +x "$1/bin/pip"
"""
#: values that shell and systemd would read in different ways, if both did
STRANGE = {
    "NEREUS_CPU_DEVICES": "0-1;2,3",
    "NEREUS_DATABASE_URL": "postgresql://u:p$HOME `id` \"q\" 'r' \\s#t;é !*@[::1]:1/n",
    "NEREUS_JOIN_TOKEN": "  two  spaces ",
}


@dataclass
class Box:
    """Folders that the role installs into, and a checkout whose commits are installed."""

    folder: Path

    @property
    def prefix(self) -> Path:
        return self.folder / "opt"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def current(self) -> Path:
        return self.prefix / "current"

    @property
    def releases(self) -> set[str]:
        return {path.name for path in (self.prefix / "releases").iterdir()}

    def commit(self, version: str, **files: str) -> None:
        """A checkout of this tree with another version and further files."""
        if not self.source.exists():
            tracked = subprocess.run(
                ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True
            )
            for name in filter(None, tracked.stdout.decode().split("\0")):
                if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/images/")):
                    (self.source / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / name, self.source / name)
            git(self.source, "init", "-q")
        (self.source / "workers" / "__init__.py").write_text(f'"""Data plane."""\n\n__version__ = "{version}"\n')
        for name, text in files.items():
            (self.source / name).write_text(text)
        git(self.source, "add", "-A")
        git(self.source, "commit", "-qm", version)

    def play(self, playbook: str = "site.yml", *options: str, **variables) -> subprocess.CompletedProcess:
        """Run a playbook, which may fail."""
        me = getpass.getuser()
        values = {
            "nereus_source": str(self.source),
            "nereus_prefix": str(self.prefix),
            "nereus_home": str(self.home),
            "nereus_user": me,
            "nereus_group": str(os.getgid()),
            "nereus_owner": me,
            "nereus_create_user": False,
            "nereus_systemd": False,
            "nereus_packages": [],
            "nereus_disk_mb": 100,
            "nereus_python": sys.executable,
            "nereus_virtualenv_command": f"{self.folder}/venv -m venv",
            "nereus_pip_options": "--no-index",
            "ansible_python_interpreter": sys.executable,
        }
        (self.folder / "inventory.ini").write_text("[appliances]\nlocalhost ansible_connection=local\n")
        return subprocess.run(
            [
                str(TOOLS / "ansible-playbook"),
                *("-i", str(self.folder / "inventory.ini")),
                *("-e", json.dumps(values | variables)),
                *options,
                str(PLAYBOOKS / playbook),
            ],
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )


def environment() -> dict[str, str]:
    mine = {name: value for name, value in os.environ.items() if not name.startswith("NEREUS_")}
    return mine | {
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_PIPELINING": "1",
    }


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=tests", "-c", "user.email=tests@example.com"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def succeeded(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    return done.stdout


def changed(done: subprocess.CompletedProcess) -> int:
    recap = succeeded(done).rpartition("PLAY RECAP")[2]
    return int(recap.partition("changed=")[2].split()[0])


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    box = Box(tmp_path_factory.mktemp("box"))
    (box.folder / "venv").write_text(ENVIRONMENT)
    (box.folder / "venv").chmod(0o755)
    return box


def test_releases_lie_side_by_side_and_a_link_is_switched(box):
    """First installation, an upgrade, and the way back."""
    settings = {"NEREUS_PLAN_PERIOD_S": 20, "NEREUS_GPU": False}
    box.commit("1.0", gone="a file that the next release does not have")
    succeeded(box.play(nereus_settings=settings))
    first = box.current.readlink().name
    assert first.startswith("1.0-") and box.releases == {first}
    assert (box.current / "gone").exists() and not (box.current / ".git").exists()
    assert (box.current / "settings.env").stat().st_mode & 0o777 == 0o640
    assert box.home.stat().st_mode & 0o777 == 0o700
    bill = json.loads((box.current / "sbom.cdx.json").read_text())
    assert "django" in {one["name"] for one in bill["components"]}
    assert "django==5" in (box.current / "versions.txt").read_text()

    (box.source / "gone").unlink()
    box.commit("1.1")
    succeeded(box.play(nereus_settings=settings, nereus_backup=False))
    second = box.current.readlink().name
    assert second.startswith("1.1-") and box.releases == {first, second}
    assert not (box.current / "gone").exists()
    assert (box.prefix / "previous").readlink().name == first

    succeeded(box.play("rollback.yml"))
    assert box.current.readlink().name == first and (box.prefix / "previous").readlink().name == second


@pytest.mark.long
def test_old_releases_are_deleted_but_for_those_in_use_and_before(box):
    """And those on the box are returned to by name; check mode says what would be done."""
    box.commit("2.0")
    assert "would be installed" in succeeded(box.play("site.yml", "--check", nereus_home=str(box.folder / "none")))
    assert not (box.folder / "none").exists()
    for number in range(3):
        box.commit(f"2.{number}", number=str(number))
        succeeded(box.play(nereus_keep=0, nereus_backup=False))
    assert {name.partition("-")[0] for name in box.releases} == {"2.1", "2.2"}
    assert changed(box.play(nereus_keep=0, nereus_backup=False)) == 0
    assert changed(box.play("site.yml", "--check", nereus_keep=0)) == 0
    (named,) = [name for name in box.releases if name.startswith("2.1-")]
    succeeded(box.play("rollback.yml", nereus_release=named))
    assert box.current.readlink().name == named
    refused = box.play("rollback.yml", nereus_release="0.1-none")
    assert refused.returncode != 0 and "0.1-none is not installed" in refused.stdout
    box.commit("2.3", **{"appliance/urls.py": "raise RuntimeError('a release that does not start')\n"})
    refused = box.play(nereus_backup=False)
    assert refused.returncode != 0 and "a release that does not start" in refused.stdout
    assert box.current.readlink().name == named

    # What cannot be used does not replace what is in use.
    in_use = (box.current / "settings.env").read_text()
    refused = box.play(nereus_settings={"NEREUS_HEADROOM": "9"})
    assert refused.returncode != 0
    assert "NEREUS_HEADROOM='9': must be a number from 1 to 3" in refused.stdout
    assert box.current.readlink().name == named and (box.current / "settings.env").read_text() == in_use


def render(template: str, target: Path, mode: str = "0644", **variables) -> Path:
    """A template of the role, with its defaults and those of ``variables`` that differ."""
    role = COLLECTION / "roles" / "nereus"
    arguments = f"src={role / 'templates' / template} dest={target} mode={mode}"
    files = [f"@{role / kind / 'main.yml'}" for kind in ("defaults", "vars")]
    given = json.dumps(variables | {"ansible_python_interpreter": sys.executable, "playbook_dir": str(PLAYBOOKS)})
    done = subprocess.run(
        [
            str(TOOLS / "ansible"),
            "localhost",
            *("-i", "localhost,", "-c", "local", "-m", "ansible.builtin.template", "-a", arguments),
            *(word for value in (*files, given) for word in ("-e", value)),
        ],
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize(
    ("variables", "exposure"),
    [({}, 23), ({"nereus_processes": ["gateway"], "nereus_memory_max": "1G"}, 21)],
)
def test_the_unit_is_sound_and_keeps_the_service_from_the_box(tmp_path, variables, exposure):
    (tmp_path / "current").mkdir()
    (tmp_path / "current" / "nereus").symlink_to("/bin/true")
    unit = render("nereus.service.j2", tmp_path / "nereus.service", nereus_prefix=str(tmp_path), **variables)
    verified = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert "nereus.service" not in verified.stderr and verified.returncode == 0, verified.stderr
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={exposure}", "--no-pager", str(unit)]
    judged = subprocess.run(command, capture_output=True, text=True)
    assert judged.returncode == 0, judged.stdout
    # Those with which executors and inspections confine themselves.
    (calls,) = [line for line in unit.read_text().splitlines() if line.startswith("SystemCallFilter=")]
    assert {"seccomp", "landlock_restrict_self"} < set(calls.split())


def test_settings_are_read_as_they_were_written(box, tmp_path):
    """By the one reader that there is: the release's own command."""
    render("settings.env.j2", tmp_path / "settings.env", nereus_environment=STRANGE)
    render("nereus.j2", tmp_path / "nereus", "0755")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "manage.py").write_text("import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]]))")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nereus")
    done = subprocess.run([str(link), "a b", "$c"], cwd="/", env=environment(), capture_output=True, text=True)
    read, arguments = json.loads(done.stdout)
    assert {name: read.get(name) for name in STRANGE} == STRANGE
    assert arguments == ["a b", "$c"] and "settings_file" not in read


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"nereus_settings": {"NEREUS X": "1", "NEREUS_HTTP": "a\nb"}}, "NEREUS X, NEREUS_HTTP"),
        ({"nereus_tls_cert": "/etc/box.pem"}, "nereus_tls_cert and nereus_tls_key belong together"),
        ({"nereus_systemd": True, "nereus_home": "/home/nereus"}, "outside of /home"),
        ({"nereus_keep": "many"}, "nereus_keep"),
    ],
)
def test_variables_that_cannot_work_are_named_before_anything_changes(box, tmp_path, variables, reason):
    refused = box.play(**{"nereus_prefix": str(tmp_path / "opt"), **variables})
    assert refused.returncode != 0 and reason in refused.stdout, refused.stdout[-3000:]
    assert not (tmp_path / "opt").exists()


@pytest.mark.parametrize(("member", "sent"), [("node", ["--data", '{"force": true}']), ("gateway", [])])
def test_a_box_that_is_removed_is_revoked_and_forgotten(tmp_path, member, sent):
    """The commands for the control plane's box, word by word."""
    recorder, asked = tmp_path / "nereus", tmp_path / "asked"
    recorder.write_text(
        f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]), file=open({str(asked)!r}, 'a'))\n"
    )
    recorder.chmod(0o755)
    play = [{"hosts": "localhost", "gather_facts": False, "connection": "local", "tasks": [
        {"ansible.builtin.include_role": {"name": str(COLLECTION / "roles/nereus"), "tasks_from": "forget.yml"}}
    ]}]  # fmt: skip
    (tmp_path / "play.yml").write_text(json.dumps(play))
    values = {
        "nereus_member": member,
        "nereus_names": {member: "n2"},
        "nereus_manage": str(recorder),
        "nereus_control_current": str(tmp_path),
        "nereus_control_host": "localhost",
        "ansible_python_interpreter": sys.executable,
    }
    command = [
        str(TOOLS / "ansible-playbook"),
        "-i",
        "localhost,",
        "-e",
        json.dumps(values),
        str(tmp_path / "play.yml"),
    ]
    succeeded(subprocess.run(command, env=environment(), capture_output=True, text=True, check=False))
    assert [json.loads(line) for line in asked.read_text().splitlines()] == [
        ["rest", "POST", f"{member}s/n2/revoke/", "--missing-ok", *sent],
        ["rest", "DELETE", f"{member}s/n2/", "--missing-ok"],
    ]


def test_the_playbooks_are_clean_for_production():
    done = subprocess.run(
        [str(TOOLS / "ansible-lint"), "--offline", "--nocolor", "--strict", "--profile", "production", "."],
        cwd=COLLECTION,
        env=environment() | {"PATH": f"{TOOLS}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
