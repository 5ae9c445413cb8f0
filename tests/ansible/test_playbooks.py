"""The playbooks, run for real against this machine.

They install into folders of the tests' own, without packages.
"""

from __future__ import annotations

import functools
import getpass
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.environment import HOME
from tests.running import ROOT, bare_environment

pytestmark = pytest.mark.wide

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
#: the Python of tasks: the library that Ansible sends with each is compiled each time, what is installed here is not
TASKS = f"""#!/bin/sh
exec {sys.executable} -c "import sys, ansible.module_utils.basic; exec(sys.stdin.read(), {{'__name__': '__main__'}})"
"""
#: a Python that says that it is 3.10
OLD = "sh -c 'echo cp310; exit 1'"
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

    @property
    def variables(self) -> dict[str, object]:
        me = getpass.getuser()
        return {
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
            "nereus_pip_options": "--no-index --no-deps",
        }

    def play(self, playbook: str = "site.yml", *options: str, **variables) -> subprocess.CompletedProcess:
        (self.folder / "inventory.ini").write_text("[appliances]\nlocalhost ansible_connection=local\n")
        return subprocess.run(
            [
                str(TOOLS / "ansible-playbook"),
                *("-i", str(self.folder / "inventory.ini")),
                *("-e", json.dumps(self.variables | variables)),
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


@functools.cache
def python_of_tasks() -> Path:
    path = Path(HOME) / "python-of-tasks"
    path.write_text(TASKS)
    path.chmod(0o755)
    return path


def environment() -> dict[str, str]:
    mine = bare_environment()
    return mine | {
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_GATHERING": "smart",
        "ANSIBLE_CACHE_PLUGIN": "jsonfile",
        "ANSIBLE_CACHE_PLUGIN_CONNECTION": f"{HOME}/facts",
        "ANSIBLE_PYTHON_INTERPRETER": str(python_of_tasks()),
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
    settings = {"NEREUS_PLAN_PERIOD_S": 20, "NEREUS_GPU": False}
    box.commit("1.0", gone="a file that the next release does not have")
    succeeded(box.play(nereus_settings=settings))
    first = box.current.readlink().name
    assert first.startswith("1.0-") and box.releases == {first}
    assert (box.current / "gone").exists() and not (box.current / ".git").exists()
    assert (box.current / "settings.env").stat().st_mode & 0o777 == 0o640
    assert box.home.stat().st_mode & 0o777 == 0o700
    assert "Django==5" in (box.current / "versions.txt").read_text()

    (box.source / "gone").unlink()
    box.commit("1.1")
    # In one run of Ansible, whose start takes seconds.
    succeeded(box.play("rollback.yml", str(PLAYBOOKS / "site.yml"), nereus_settings=settings, nereus_backup=False))
    (second,) = box.releases - {first}
    assert box.current.readlink().name == first and (box.prefix / "previous").readlink().name == second
    assert second.startswith("1.1-") and not (box.prefix / "previous" / "gone").exists()


@pytest.mark.long
def test_old_releases_are_deleted_but_for_those_in_use_and_before(box):
    """Old releases are deleted, except for the one in use and the one before.

    Those on the box are returned to by name, and check mode says what would be done.
    """
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
    refused = box.play(nereus_settings={"NEREUS_SOLVE_S": "0"})
    assert refused.returncode != 0
    assert "NEREUS_SOLVE_S='0': must be a number from 0.1 to 600" in refused.stdout
    assert box.current.readlink().name == named and (box.current / "settings.env").read_text() == in_use


def run(folder: Path, *tasks: dict) -> None:
    role = COLLECTION / "roles" / "nereus"
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(role / kind / "main.yml") for kind in ("defaults", "vars")],
        "tasks": tasks,
    }
    (folder / "play.yml").write_text(json.dumps([play]))
    command = [str(TOOLS / "ansible-playbook"), "-i", "localhost,", str(folder / "play.yml")]
    succeeded(subprocess.run(command, env=environment(), capture_output=True, text=True, check=False))


def template(source: str, target: Path, mode: str = "0644", **variables) -> dict:
    path = COLLECTION / "roles" / "nereus" / "templates" / source
    return {
        "ansible.builtin.template": {"src": str(path), "dest": str(target), "mode": mode},
        "vars": {"playbook_dir": str(PLAYBOOKS), **variables},
    }


def test_packages_are_those_of_the_distribution_and_its_python(tmp_path):
    """Packages of the first run, when the box may not have the Python yet."""
    expected = {
        ("Debian 12", "x86_64", "cp311"): "python3 python3-venv redis-server",
        ("Debian 12", "aarch64", "cp311"): "python3 python3-venv redis-server",
        ("Debian 13", "x86_64", "cp313"): "python3 python3-venv redis-server",
        ("Ubuntu 22.04", "x86_64", ""): "python3.11 python3.11-venv redis-server",
        ("Ubuntu 24.04", "x86_64", "cp312"): "python3 python3-venv redis-server",
        ("Ubuntu 25.10", "x86_64", "cp313"): "python3 python3-venv redis-server",
    }
    packages = "{{ nereus_packages | reject('in', ['tar', 'tzdata']) | join(' ') }}; {{ nereus_virtualenv_command }}"
    facts = [
        dict(zip(("distribution", "distribution_version", "architecture"), (*box.split(), machine), strict=True))
        for box, machine, _ in expected
    ]
    run(
        tmp_path,
        {
            "ansible.builtin.debug": {"msg": packages},
            "vars": {"ansible_facts": "{{ item.0 }}", "nereus_python_found": {"stdout": "{{ item.1 }}"}},
            "loop": [[each, found] for each, (*_, found) in zip(facts, expected, strict=True)],
            "register": "texts",
        },
        {
            "ansible.builtin.copy": {
                "content": "{{ texts.results | map(attribute='msg') | to_json }}",
                "dest": str(tmp_path / "packages"),
                "mode": "0644",
            }
        },
    )
    found = dict(zip(expected, json.loads((tmp_path / "packages").read_text()), strict=True))
    assert found == {box: f"{packages}; {packages.split()[0]} -m venv" for box, packages in expected.items()}


def test_each_variable_is_documented_and_checked():
    role = COLLECTION / "roles" / "nereus"
    defaults = set(yaml.safe_load((role / "defaults" / "main.yml").read_text()))
    entries = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    assert {name for entry in entries.values() for name in entry.get("options", {})} == defaults
    page = (COLLECTION / "README.md").read_text()
    internal = {"nereus_control_host"}
    assert {name for name in defaults if not re.search(rf"`[^`]*\b{name}\b", page)} <= internal
    called = "".join(path.read_text() for path in (COLLECTION / "playbooks").glob("*.yml"))
    assert {f"{name}.yml" for name in entries} - {"main.yml"} == set(re.findall(r"tasks_from: (\w+\.yml)", called))


#: variables of units, and the most that systemd may find exposed, in tenths
UNITS = [({}, 23), ({"nereus_processes": ["gateway"], "nereus_memory_max": "1G"}, 21)]


@pytest.fixture(scope="module")
def rendered(tmp_path_factory) -> Path:
    """A release's folder with settings, command and units of the role's templates."""
    folder = tmp_path_factory.mktemp("rendered")
    (folder / "current").mkdir()
    (folder / "current" / "nereus").symlink_to("/bin/true")
    for number in range(len(UNITS)):
        (folder / f"unit-{number}").mkdir()
    run(
        folder,
        template("settings.env.j2", folder / "settings.env", nereus_environment=STRANGE),
        template("nereus.j2", folder / "nereus", "0755"),
        *(
            template("nereus.service.j2", folder / f"unit-{number}" / "nereus.service", nereus_prefix=str(folder), **of)
            for number, (of, _) in enumerate(UNITS)
        ),
    )
    return folder


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize(("number", "exposure"), [(number, most) for number, (_, most) in enumerate(UNITS)])
def test_the_unit_is_sound_and_keeps_the_service_from_the_box(rendered, number, exposure):
    unit = rendered / f"unit-{number}" / "nereus.service"
    verified = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert "nereus.service" not in verified.stderr and verified.returncode == 0, verified.stderr
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={exposure}", "--no-pager", str(unit)]
    judged = subprocess.run(command, capture_output=True, text=True)
    assert judged.returncode == 0, judged.stdout
    # Those with which executors and inspections confine themselves.
    (calls,) = [line for line in unit.read_text().splitlines() if line.startswith("SystemCallFilter=")]
    assert {"seccomp", "landlock_restrict_self"} < set(calls.split())


def test_settings_are_read_as_they_were_written(rendered, tmp_path):
    """By the one reader that there is: the release's own command."""
    (rendered / ".venv" / "bin").mkdir(parents=True)
    (rendered / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (rendered / "manage.py").write_text("import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]]))")
    link = tmp_path / "link"
    link.symlink_to(rendered / "nereus")
    done = subprocess.run([str(link), "a b", "$c"], cwd="/", env=environment(), capture_output=True, text=True)
    read, arguments = json.loads(done.stdout)
    assert {name: read.get(name) for name in STRANGE} == STRANGE
    assert arguments == ["a b", "$c"] and "settings_file" not in read


#: variables that cannot work, and what the refusal says
REFUSED = [
    ({"nereus_settings": {"NEREUS X": "1", "NEREUS_HTTP": "a\nb"}}, "NEREUS X, NEREUS_HTTP"),
    ({"nereus_tls_cert": "/etc/box.pem"}, "nereus_tls_cert and nereus_tls_key belong together"),
    ({"nereus_systemd": True, "nereus_home": "/home/nereus"}, "outside of /home"),
    ({"nereus_keep": "many"}, "nereus_keep"),
    ({"nereus_keep": -1}, "nereus_keep (-1) must be 0 or more"),
    ({"nereus_memory_mb": 10**9, "nereus_disk_mb": 10**9}, "of at least 1000000000 (nereus_memory_mb). Free on disk"),
    ({"nereus_distributions": {"Plan9": "4"}}, "nereus_distributions has Plan9"),
    ({"nereus_python": "python2.7"}, "nereus_python: python2.7 must be there"),
    # Too old: a package of that name would bring nothing else.
    ({"nereus_python": OLD, "nereus_packages": [OLD]}, "or newer (found: cp310)"),
]


@pytest.mark.parametrize(
    "faults", [REFUSED[:6], pytest.param(REFUSED[6:], marks=pytest.mark.long)], ids=["few", "more"]
)
def test_variables_that_cannot_work_are_named_before_anything_changes(box, tmp_path, faults):
    """Of boxes that are set up at once, each with a fault of its own."""
    hosts = {
        f"box-{number}": {"nereus_prefix": str(tmp_path / f"box-{number}"), **variables}
        for number, (variables, _) in enumerate(faults)
    }
    inventory = {"all": {"hosts": hosts, "vars": {"ansible_connection": "local", **box.variables}}}
    (tmp_path / "inventory.json").write_text(json.dumps(inventory))
    # They are all this machine, whose facts are gathered once.
    facts = {"ansible.builtin.setup": {"gather_subset": ["min"]}, "run_once": True}
    play = {"hosts": "all", "gather_facts": False, "pre_tasks": [facts], "roles": ["nereus"]}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    refused = subprocess.run(
        [str(TOOLS / "ansible-playbook"), "-i", str(tmp_path / "inventory.json"), str(tmp_path / "play.yml")],
        env=environment() | {"ANSIBLE_ROLES_PATH": str(COLLECTION / "roles")},
        capture_output=True,
        text=True,
        check=False,
    )
    said = dict(re.findall(r"^fatal: \[(box-\d+)\]: FAILED! => (.*)$", refused.stdout, re.M))
    assert said.keys() == hosts.keys(), refused.stdout[-3000:]
    assert {name: reason for name, (_, reason) in zip(hosts, faults, strict=True) if reason not in said[name]} == {}
    assert not [name for name in hosts if (tmp_path / name).exists()]


def play(inventory: str, folder: Path, playbook: str, *options: str) -> subprocess.CompletedProcess:
    (folder / "inventory.ini").write_text(inventory)
    command = [str(TOOLS / "ansible-playbook"), "-i", str(folder / "inventory.ini"), *options]
    return subprocess.run(
        [*command, str(PLAYBOOKS / playbook)], env=environment(), capture_output=True, text=True, check=False
    )


#: a control plane, two gateways of which one has a node, another node, and a whole appliance
SEVERAL = "[control]\nc\n[gateways]\ng\nn1\n[nodes]\nn1\nn2\n[appliances]\na\n"


@pytest.mark.parametrize(
    ("playbook", "order"),
    [("upgrade.yml", ["a", "c", "g n1", "n2"]), ("rollback.yml", ["n2", "g n1", "a c"])],
)
def test_a_roll_back_goes_an_upgrades_way_backwards(tmp_path, playbook, order):
    """So that boxes of two releases never meet otherwise than in an upgrade."""
    listed = succeeded(play(SEVERAL, tmp_path, playbook, "--list-hosts"))
    plays = [part.partition("hosts (")[2].split()[1:] for part in listed.split("  play #")[1:]]
    assert [" ".join(sorted(hosts)) for hosts in plays] == ["a c g n1 n2", *order]


def test_boxes_that_would_return_to_different_releases_are_left_alone(tmp_path):
    """As after an upgrade in which one of them failed its gate."""
    lines = {}
    for name, before in (("c", "1.1-a"), ("n1", "1.1-b"), ("n2", "1.0-a")):
        prefix = tmp_path / name
        (prefix / "releases" / before).mkdir(parents=True)
        (prefix / "releases" / before / ".installed").touch()
        (prefix / "previous").symlink_to(f"releases/{before}")
        lines[name] = f"{name} ansible_connection=local nereus_prefix={prefix}"
    inventory = f"[control]\n{lines['c']}\n[nodes]\n{lines['n1']}\n{lines['n2']}\n"
    refused = play(inventory, tmp_path, "rollback.yml", "--check")
    assert refused.returncode != 0 and "c: 1.1-a, n1: 1.1-b, n2: 1.0-a" in refused.stdout, refused.stdout
    succeeded(play(inventory, tmp_path, "rollback.yml", "--check", "--limit", "c,n1"))


def test_an_address_that_another_process_listens_at_is_found(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as bound, socket.create_server(("127.0.0.1", 0)) as other:
        address, free = (f"127.0.0.1:{one.getsockname()[1]}" for one in (bound, other))
        other.close()
        code = (COLLECTION / "roles/nereus/files/preflight.py").read_text()
        command = [sys.executable, "-", str(tmp_path / "a" / "b"), f"{address},{free}"]
        done = subprocess.run(command, input=code, capture_output=True, text=True, check=False)
    found = json.loads(succeeded(done))
    assert found["taken"] == [address] and found["disk_mb"][str(tmp_path / "a" / "b")] > 0


@pytest.mark.long
def test_a_clock_that_is_not_in_step_is_named(tmp_path):
    """No clock is within less than nothing of another one's."""
    lines = [f"{name} ansible_connection=local nereus_prefix={tmp_path / name}" for name in ("c", "n1")]
    inventory = f"[control]\n{lines[0]}\n[nodes]\n{lines[1]}\n"
    values = {
        "nereus_home": str(tmp_path),
        "nereus_systemd": False,
        "nereus_distributions": {},
        "nereus_disk_mb": 1,
        "nereus_clock_s": -60,
    }
    refused = play(inventory, tmp_path, "site.yml", "--check", "--limit", "n1", "-e", json.dumps(values))
    assert refused.returncode != 0 and "nereus_clock_s allows -60" in refused.stdout, refused.stdout[-3000:]


def test_boxes_that_are_removed_are_revoked_and_forgotten(tmp_path):
    """The commands for the control plane's box, word by word."""
    recorder, asked = tmp_path / "nereus", tmp_path / "asked"
    recorder.write_text(
        f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]), file=open({str(asked)!r}, 'a'))\n"
    )
    recorder.chmod(0o755)
    values = {
        "nereus_names": {"node": "n2", "gateway": "g2"},
        "nereus_manage": str(recorder),
        "nereus_control_current": str(tmp_path),
        "nereus_control_host": "localhost",
    }
    forget = {"name": str(COLLECTION / "roles/nereus"), "tasks_from": "forget.yml"}
    run(
        tmp_path,
        *(
            {"ansible.builtin.include_role": forget, "vars": {"nereus_member": member, **values}}
            for member in ("node", "gateway")
        ),
    )
    assert [json.loads(line) for line in asked.read_text().splitlines()] == [
        ["rest", "POST", "nodes/n2/revoke/", "--missing-ok", "--data", '{"force": true}'],
        ["rest", "DELETE", "nodes/n2/", "--missing-ok"],
        ["rest", "POST", "gateways/g2/revoke/", "--missing-ok"],
        ["rest", "DELETE", "gateways/g2/", "--missing-ok"],
    ]


def test_no_playbook_registers_a_variable_that_tasks_give_another_value():
    """Registered variables hide those of tasks."""
    folder = ROOT / "ansible"
    playbooks = "".join(path.read_text() for path in (folder / "playbooks").glob("*.yml"))
    tasks = "\n".join(path.read_text() for path in (folder / "roles").rglob("tasks/*.yml"))
    registered = set(re.findall(r"register: (\w+)", playbooks))
    assert registered
    assert not registered & set(re.findall(r"^ +(nereus_\w+):", tasks, re.M))


@pytest.mark.long
def test_the_playbooks_are_clean_for_production():
    """As ``make lint`` has it."""
    done = subprocess.run(
        [str(TOOLS / "ansible-lint"), "--offline", "--nocolor", "--strict", "--profile", "production", "."],
        cwd=COLLECTION,
        env=environment() | {"PATH": f"{TOOLS}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
