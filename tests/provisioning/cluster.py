"""A cluster on boxes, and the playbooks as an operator runs them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2

import workers
from tests.grpc_load import GrpcLoad
from tests.load import Load
from tests.provisioning import boxes
from tests.running import ROOT, bare_environment

#: NEREUS_TEST_BUNDLE: an unpacked bundle that was made before; empty: one is made of this tree
BUNDLE = os.environ.get("TEST_BUNDLE", "")
#: NEREUS_TEST_BOXES: a folder for boxes that stay when tests end, and that the next tests find; empty: they go
KEPT = os.environ.get("TEST_BOXES", "")
#: for releases that need the packages of the one in use, as those of :meth:`Cluster.release` do: they share the files
SAME_PACKAGES = {
    "nereus_bundle": "",
    "nereus_packages": [],
    "nereus_virtualenv_command": "cp -al /opt/nereus/current/.venv",
    "nereus_pip_options": "--no-index",
}
SUITES = {"c": "bookworm", "g": "trixie", "n1": "trixie", "n2": "bookworm"}
HOME = "/var/lib/nereus"


class Cluster:
    """Boxes of a control plane, two gateways and two nodes.

    It builds the releases and the bundle for them, and runs playbooks against them.
    """

    def __init__(self, site: boxes.Site):
        self.site = site
        self.bundle = site.folder / "bundle"
        self.inventory = site.folder / "inventory.ini"

    @classmethod
    @contextlib.contextmanager
    def running(cls, folder: Path) -> Iterator[Cluster]:
        folder = Path(KEPT) if KEPT else folder
        made = cls(boxes.Site(folder))
        if (folder / "inventory.ini").exists():
            made.site.find(SUITES)
            yield made
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        ready = False
        try:
            made.site.start()
            made.prepare()
            ready = True
            yield made
        finally:
            if not (KEPT and ready):
                made.stop()

    def stop(self) -> None:
        self.site.stop()
        shutil.rmtree(self.site.folder, ignore_errors=True)

    def prepare(self) -> None:
        if BUNDLE:
            boxes.run("cp", "-al", BUNDLE, str(self.bundle))
        else:
            self.build()
        for name, suite in SUITES.items():
            self.site.add(name, suite)
        self.write_inventory()

    def write_inventory(self) -> None:
        where = {name: f"{name} ansible_host={box.address}" for name, box in self.site.boxes.items()}
        self.inventory.write_text(
            f"[control]\n{where['c']}\n[gateways]\n{where['g']}\n{where['n1']}\n[nodes]\nn1\n{where['n2']}\n"
            "[all:vars]\nansible_user=root\nansible_python_interpreter=/usr/bin/python3\n"
            f"ansible_ssh_common_args={self.site.ssh()}\n"
        )

    def build(self) -> None:
        dist = self.site.folder / "dist"
        dist.mkdir()
        archive = dist / f"nereus-{workers.__version__}.tar.gz"
        boxes.run("git", "archive", "--format=tar.gz", "-o", str(archive), "HEAD", cwd=ROOT)
        pythons = ["--machines", "x86_64", "--pythons", "3.11", "3.13", "--suites", "bookworm", "trixie"]
        boxes.run(sys.executable, "-m", "tools.bundle", str(dist), *pythons, cwd=ROOT)
        boxes.run("tar", "-C", str(dist), "-xf", str(next(dist.glob("*-bundle-*.tar"))))
        next(path for path in dist.glob("*-bundle-*") if path.is_dir()).rename(self.bundle)
        shutil.rmtree(dist)

    def play(self, playbook: str, *options: str, **variables) -> subprocess.CompletedProcess:
        command, environment = self._command(playbook, options, variables)
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def begin(self, playbook: str, **variables) -> subprocess.Popen:
        command, environment = self._command(playbook, (), variables)
        silent = subprocess.DEVNULL
        return subprocess.Popen(command, env=environment, stdout=silent, stderr=silent, start_new_session=True)

    @staticmethod
    def cut_off(run: subprocess.Popen) -> None:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()

    def _command(self, playbook: str, options: tuple[str, ...], variables: dict) -> tuple[list[str], dict[str, str]]:
        mine = bare_environment()
        values = {"nereus_bundle": str(self.bundle), "nereus_disk_mb": 1000, **variables}
        command = [
            f"{boxes.python()}/ansible-playbook",
            *("-i", str(self.inventory), "-e", json.dumps(values), *options),
            str(ROOT / "ansible/playbooks" / playbook),
        ]
        return command, mine | {"LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1", "ANSIBLE_PIPELINING": "1"}

    def release(self, version: str, **files: str) -> str:
        """A release archive of this tree with another version, and some files replaced."""
        folder = self.site.folder / version
        folder.mkdir()
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-C", str(folder), "-x"], input=archive.stdout, check=True)
        (folder / "workers/__init__.py").write_text(f'"""Data plane."""\n\n__version__ = "{version}"\n')
        for name, text in files.items():
            (folder / name).write_text(text)
        target = self.site.folder / f"nereus-{version}.tar.gz"
        boxes.run("tar", "-C", str(folder), "-czf", str(target), *os.listdir(folder))
        shutil.rmtree(folder)
        return str(target)

    def manage(self, command: str) -> str:
        return self.site.boxes["c"].ssh(f"cd / && runuser -u nereus -- /opt/nereus/current/nereus {command}").stdout

    def nodes(self) -> dict[str, dict]:
        return {node["name"]: node for node in json.loads(self.manage("rest GET nodes/"))}

    def versions(self) -> dict[str, str]:
        command = "basename $(readlink /proc/$(systemctl show -p MainPID --value nereus)/cwd)"
        return {name: box.ssh(command).stdout.partition("-")[0] for name, box in self.site.boxes.items()}

    def release_in_use(self, name: str) -> str:
        return self.site.boxes[name].ssh("basename $(readlink /opt/nereus/current)").stdout.strip()

    def authorities(self) -> str:
        return "".join(box.ssh(f"cat {HOME}/tls/authority.pem", check=False).stdout for box in self.site.boxes.values())

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.authorities())

    def secret(self, name: str) -> str:
        return json.loads(self.site.boxes["c"].ssh(f"cat {HOME}/credentials.json").stdout)[name]

    def rest(self) -> httpx2.Client:
        return httpx2.Client(
            base_url=f"https://{self.site.boxes['c'].address}:8080/api/v1",
            headers={"Authorization": f"Bearer {self.secret('api_token')}"},
            timeout=60,
            verify=self.trust(),
        )

    def load(self, key: str, rate: float = 10) -> Load:
        first, second = (f"https://{self.site.boxes[name].address}:8000" for name in ("g", "n1"))
        return Load(first, key, rate=rate, others=[second], trust=self.trust())

    def grpc_load(self, key: str, rate: float = 2) -> GrpcLoad:
        addresses = [f"{self.site.boxes[name].address}:8001" for name in ("g", "n1")]
        return GrpcLoad(addresses, key, "tiny", rate, self.authorities())


def succeeded(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def changed(text: str) -> int:
    recap = text.rpartition("PLAY RECAP")[2]
    return sum(int(line.partition("changed=")[2].split()[0]) for line in recap.splitlines() if "changed=" in line)
