"""Debian boxes with a systemd and an sshd of their own, in network namespaces.

They are on a bridge, and none has a way out.

Needs root, systemd-nspawn and mmdebstrap with a package mirror (for the first box of a suite; its root is kept).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.running import ROOT
from tools.waiting import eventually

#: NEREUS_TEST_ROOTS: where roots are kept between runs
ROOTS = Path(os.environ.get("TEST_ROOTS", "/var/tmp/nereus-roots"))
MIRROR = "http://deb.debian.org/debian"
PACKAGES = "systemd,systemd-sysv,dbus,python3,python3-venv,openssh-server,iproute2,procps,ca-certificates,tar"
NETWORK = "10.77.{}.{}"


def available() -> str:
    """Why boxes cannot be made here; empty: they can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in ("systemd-nspawn", "mmdebstrap", "ip", "ssh") if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode:
        return "no network namespaces"
    return ""


def root_archive(suite: str) -> Path:
    archive = ROOTS / f"{suite}.tar"
    if not archive.exists():
        ROOTS.mkdir(parents=True, exist_ok=True)
        partial = archive.with_suffix(".partial.tar")
        run("mmdebstrap", "--variant=apt", f"--include={PACKAGES}", suite, str(partial), MIRROR)
        partial.rename(archive)
    return archive


def run(*command: str, **more) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
    return done.stdout


@dataclass
class Site:
    folder: Path
    number: int = field(default_factory=lambda: secrets.randbelow(200) + 20)
    boxes: dict[str, Box] = field(default_factory=dict)

    @property
    def bridge(self) -> str:
        return f"nrs{self.number}"

    @property
    def key(self) -> Path:
        return self.folder / "key"

    def start(self) -> None:
        (self.folder / "number").write_text(str(self.number))
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "address", "add", f"{NETWORK.format(self.number, 1)}/24", "dev", self.bridge)
        run("ip", "link", "set", self.bridge, "up")
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key))

    def stop(self) -> None:
        for box in self.boxes.values():
            box.stop()
        subprocess.run(["ip", "link", "delete", self.bridge], capture_output=True)

    def add(self, name: str, suite: str = "bookworm") -> Box:
        box = Box(self, name, suite, NETWORK.format(self.number, len(self.boxes) + 2))
        self.boxes[name] = box
        box.make()
        box.boot()
        return box

    def find(self, suites: dict[str, str]) -> None:
        self.number = int((self.folder / "number").read_text())
        for name, suite in suites.items():
            self.boxes[name] = Box(self, name, suite, NETWORK.format(self.number, len(self.boxes) + 2))

    def ssh(self) -> str:
        return f"-i {self.key} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"


@dataclass
class Box:
    site: Site
    name: str
    suite: str
    address: str

    @property
    def root(self) -> Path:
        return self.site.folder / self.name

    @property
    def pid(self) -> Path:
        return self.site.folder / f"{self.name}.pid"

    @property
    def namespace(self) -> str:
        return f"{self.site.bridge}-{self.name}"

    def make(self) -> None:
        self.root.mkdir()
        run("tar", "-C", str(self.root), "-xf", str(root_archive(self.suite)), "--exclude=./dev/*")
        folder = self.root / "root" / ".ssh"
        folder.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(f"{self.site.key}.pub", folder / "authorized_keys")
        (self.root / "etc/hostname").write_text(f"{self.name}\n")
        (self.root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{self.address} {self.name}\n")
        # These wait for a network that never comes, or for hardware.
        for unit in ("systemd-networkd-wait-online.service", "apt-daily.timer", "apt-daily-upgrade.timer"):
            link = self.root / "etc/systemd/system" / unit
            link.unlink(missing_ok=True)
            link.symlink_to("/dev/null")
        inside, outside = f"{self.site.bridge}h{len(self.site.boxes)}i", f"{self.site.bridge}h{len(self.site.boxes)}"
        run("ip", "netns", "add", self.namespace)
        run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside)
        run("ip", "link", "set", inside, "netns", self.namespace)
        run("ip", "link", "set", outside, "master", self.site.bridge, "up")
        within = ("ip", "-n", self.namespace)
        run(*within, "link", "set", inside, "name", "host0")
        run(*within, "address", "add", f"{self.address}/24", "dev", "host0")
        run(*within, "link", "set", "host0", "up")
        run(*within, "link", "set", "lo", "up")

    def boot(self) -> None:
        log = (self.site.folder / f"{self.name}.log").open("ab")
        command = [
            "systemd-nspawn",
            *("-D", str(self.root), f"--machine={self.name}", "--boot", "--register=no", "--keep-unit"),
            *(f"--network-namespace-path=/run/netns/{self.namespace}", "--console=pipe", "--quiet"),
            *("--resolv-conf=off", "--timezone=off", "--system-call-filter=@sandbox"),
        ]
        unified = os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
        silent = subprocess.DEVNULL
        started = subprocess.Popen(command, stdin=silent, stdout=log, stderr=log, env=unified, start_new_session=True)
        self.pid.write_text(str(started.pid))
        answers = lambda: self.ssh("true", check=False).returncode == 0  # noqa: E731
        eventually(answers, why=f"sshd of {self.name} answers; its log is {log.name}", of=[started])

    def ssh(self, command: str, check: bool = True) -> subprocess.CompletedProcess:
        words = ["ssh", *self.site.ssh().split(), "-o", "ConnectTimeout=3", f"root@{self.address}", command]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
        return done

    def stop(self) -> None:
        with contextlib.suppress(FileNotFoundError, psutil.NoSuchProcess):
            process = psutil.Process(int(self.pid.read_text()))
            # Another process may have its number by now.
            if str(self.root) in process.cmdline():
                process.terminate()
                with contextlib.suppress(psutil.TimeoutExpired):
                    process.wait(40)
                if process.is_running():
                    process.kill()
                    process.wait()
            self.pid.unlink()
        subprocess.run(["ip", "netns", "delete", self.namespace], capture_output=True)


def python() -> str:
    return str(Path(sys.executable).parent)


__all__ = ["ROOT", "Box", "Site", "available", "python", "root_archive", "run"]
