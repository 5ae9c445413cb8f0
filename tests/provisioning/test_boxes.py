"""The playbooks on Debian 12 and 13, each with its own systemd and sshd, on a bridge that leads nowhere.

Everything comes from a bundle. One cluster lives through all of it, in order.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.provisioning import boxes
from tests.running import ROOT

pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(boxes.available()), reason=boxes.available() or "available")]

#: an unpacked bundle that was made before; empty: one is made of this tree
BUNDLE = os.environ.get("NEREUS_TEST_BUNDLE", "")
SUITES = {"c": "bookworm", "g": "trixie", "n1": "trixie", "n2": "bookworm"}


class Cluster:
    """Boxes of a control plane, two gateways and two nodes, and what is installed on them."""

    def __init__(self, site: boxes.Site):
        self.site = site
        self.bundle = site.folder / "bundle"
        self.inventory = site.folder / "inventory.ini"

    def prepare(self) -> None:
        """Have a bundle, boot the boxes, write the inventory."""
        if BUNDLE:
            boxes.run("cp", "-al", BUNDLE, str(self.bundle))
        else:
            self.build()
        for name, suite in SUITES.items():
            self.site.add(name, suite)
        self.write_inventory()

    def write_inventory(self) -> None:
        """Two boxes have gateways, and two have nodes; one has both."""
        where = {name: f"{name} ansible_host={box.address}" for name, box in self.site.boxes.items()}
        self.inventory.write_text(
            f"[control]\n{where['c']}\n[gateways]\n{where['g']}\n{where['n1']}\n[nodes]\nn1\n{where['n2']}\n"
            "[all:vars]\nansible_user=root\nansible_python_interpreter=/usr/bin/python3\n"
            f"ansible_ssh_common_args={self.site.ssh()}\n"
        )

    def build(self) -> None:
        """A bundle of this tree, for the machines and Debians of the boxes."""
        dist = self.site.folder / "dist"
        dist.mkdir()
        archive = dist / f"nereus-{version()}.tar.gz"
        boxes.run("git", "archive", "--format=tar.gz", "-o", str(archive), "HEAD", cwd=ROOT)
        pythons = ["--machines", "x86_64", "--pythons", "3.11", "3.13", "--suites", "bookworm", "trixie"]
        boxes.run(sys.executable, "-m", "appliance.bundle", str(dist), *pythons, cwd=ROOT)
        boxes.run("tar", "-C", str(dist), "-xf", str(next(dist.glob("*-bundle-*.tar"))))
        next(path for path in dist.glob("*-bundle-*") if path.is_dir()).rename(self.bundle)
        shutil.rmtree(dist)

    def play(self, playbook: str, *options: str, **variables) -> subprocess.CompletedProcess:
        """Run a playbook, which may fail."""
        mine = {name: value for name, value in os.environ.items() if not name.startswith("NEREUS_")}
        values = {"nereus_bundle": str(self.bundle), "nereus_disk_mb": 1000, **variables}
        return subprocess.run(
            [
                f"{boxes.python()}/ansible-playbook",
                *("-i", str(self.inventory), "-e", json.dumps(values), *options),
                str(ROOT / "ansible/playbooks" / playbook),
            ],
            env=mine | {"LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1", "ANSIBLE_PIPELINING": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

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
        """A command of the control plane's box."""
        return self.site.boxes["c"].ssh(f"cd / && runuser -u nereus -- /opt/nereus/current/nereus {command}").stdout

    def nodes(self) -> dict[str, dict]:
        return {node["name"]: node for node in json.loads(self.manage("rest GET nodes/"))}

    def versions(self) -> dict[str, str]:
        """The release that each box's process really runs in."""
        command = "basename $(readlink /proc/$(systemctl show -p MainPID --value nereus)/cwd)"
        return {name: box.ssh(command).stdout.partition("-")[0] for name, box in self.site.boxes.items()}


def version() -> str:
    import workers

    return workers.__version__


def succeeded(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def changed(text: str) -> int:
    recap = text.rpartition("PLAY RECAP")[2]
    return sum(int(line.partition("changed=")[2].split()[0]) for line in recap.splitlines() if "changed=" in line)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = Path("/var/tmp") / tmp_path_factory.mktemp("boxes").name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        with boxes.site(folder) as site:
            made = Cluster(site)
            made.prepare()
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_tampered_bundle_is_refused_before_a_box_is_touched(cluster):
    extra = cluster.bundle / "wheels" / "extra-1.0-py3-none-any.whl"
    extra.write_text("not from us")
    refused = cluster.play("site.yml")
    extra.unlink()
    assert refused.returncode != 0 and "extra-1.0" in refused.stdout
    assert cluster.site.boxes["c"].ssh("test -e /opt/nereus", check=False).returncode != 0


def test_bare_boxes_become_a_cluster_without_a_network(cluster):
    assert cluster.site.boxes["c"].ssh("ip route get 192.0.2.1", check=False).returncode != 0, "there is a way out"
    would = succeeded(cluster.play("site.yml", "--check"))
    assert "would be installed" in would
    text = succeeded(cluster.play("site.yml"))
    assert {name for name, node in cluster.nodes().items() if node["connected"]} == {"n1", "n2"}
    secret = json.loads(cluster.site.boxes["c"].ssh("cat /var/lib/nereus/credentials.json").stdout)
    assert not [name for name in ("api_token", "api_key", "join_token") if secret[name] in text]
    assert json.loads(cluster.manage("rest GET join-tokens/"))[0]["name"] == "local", "used tokens are gone"
    assert changed(succeeded(cluster.play("site.yml"))) == 0
    assert changed(succeeded(cluster.play("site.yml", "--check"))) == 0


@pytest.mark.parametrize("name", SUITES)
def test_each_unit_keeps_its_service_from_the_box(cluster, name):
    judged = cluster.site.boxes[name].ssh("systemd-analyze security --threshold=30 --no-pager nereus", check=False)
    assert judged.returncode == 0, judged.stdout


def test_an_upgrade_that_was_cut_off_goes_on(cluster):
    """What the earlier run cordoned is uncordoned; what an operator cordoned stays so."""
    archive = cluster.release("9.1")
    box = cluster.site.boxes["n1"]
    cluster.manage("rest POST nodes/n1/cordon/")
    before = box.ssh("basename $(readlink /opt/nereus/current)").stdout.strip()
    note = json.dumps({"before": before, "cordoned": True})
    box.ssh(f"echo '{note}' > /opt/nereus/.unfinished")
    cluster.manage("rest POST nodes/n2/cordon/")
    succeeded(cluster.play("upgrade.yml", nereus_archive=archive))
    assert set(cluster.versions().values()) == {"9.1"}
    nodes = cluster.nodes()
    assert nodes["n1"]["cordoned_at"] is None and nodes["n2"]["cordoned_at"] is not None
    cluster.manage("rest DELETE nodes/n2/cordon/")


def test_a_node_that_fails_its_gate_returns_and_stops_the_run(cluster):
    broken = cluster.release("9.2", **{"workers/node/daemon.py": "raise RuntimeError('a node that does not start')\n"})
    refused = cluster.play("upgrade.yml", nereus_archive=broken, nereus_wait_s=60)
    assert refused.returncode != 0 and "is in use again" in refused.stdout
    assert cluster.versions() == {"c": "9.2", "g": "9.2", "n1": "9.1", "n2": "9.1"}
    assert [node["cordoned_at"] for node in cluster.nodes().values()] == [None, None]
    succeeded(cluster.play("rollback.yml", "--limit", "c:g"))
    assert set(cluster.versions().values()) == {"9.1"}


def test_secrets_are_replaced_and_members_join_again(cluster):
    succeeded(cluster.play("rotate.yml", nereus_rotate=["members", "tls-authority", "api-token"]))
    assert all(node["connected"] for node in cluster.nodes().values())


def test_a_backup_comes_back(cluster, tmp_path):
    cluster.manage('rest POST api-keys/ --data \'{"name": "kept"}\'')
    succeeded(cluster.play("backup.yml", nereus_backup_to=str(tmp_path)))
    cluster.manage("rest DELETE api-keys/kept/")
    (copy,) = tmp_path.glob("*.tar")
    assert tmp_path.stat().st_mode & 0o077 == 0
    succeeded(cluster.play("restore.yml", nereus_restore=str(copy)))
    assert "kept" in cluster.manage("rest GET api-keys/")


def test_a_box_is_taken_off(cluster):
    assert cluster.play("remove.yml", "--limit", "n2").returncode != 0
    succeeded(cluster.play("remove.yml", "--limit", "n2", nereus_remove=True))
    box = cluster.site.boxes["n2"]
    assert box.ssh("test -e /opt/nereus", check=False).returncode != 0
    box.ssh("test -d /var/lib/nereus/members")
    assert set(cluster.nodes()) == {"n1"}
