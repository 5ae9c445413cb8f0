"""Faults of disks: a small file system of its own, and system calls that strace makes fail.

A power cut is ext4's own shutdown (as xfstests do it): from one moment on nothing reaches the disk, the journal
included; then all processes are killed, and the file system is mounted again, which replays its journal.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from appliance.demo.rest import expect, pages
from benchmarks.growth import Verdict
from benchmarks.watch import may_fail
from tools.child import ROOT

from .checker import Query
from .site import MORE, MORE_OF, Site, Skipped

#: _IOR('X', 125, __u32) and EXT4_GOING_FLAGS_NOLOGFLUSH (fs/ext4/ext4.h)
EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2
DISK_MB = 400
#: seconds after which starts are cut: in imports, secrets, migrations, and while services start
STARTS_S = (0.7, 1.5, 2.5, 4.0, 7.0)
#: calls by which SQLite writes, and which sockets and pipes do not use; and calls that make what was written last
WRITES, FSYNC = "pwrite64,pwritev,pwritev2,ftruncate,fallocate", "fsync,fdatasync"


class OwnDisk(Site):
    """The home folder is on an ext4 file system of its own, in a file."""

    home = "disk/home"

    @property
    def mount_point(self) -> Path:
        return self.folder / "disk"

    def place(self) -> None:
        if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
            raise Skipped("mounting a file system needs root and mkfs.ext4")
        image = self.folder / "image"
        with image.open("wb") as file:
            file.truncate(DISK_MB * 1024 * 1024)
        _run("mkfs.ext4", "-q", "-F", str(image))
        self.mount_point.mkdir()
        self.mount()
        self.box.home.mkdir(mode=0o700)

    def mount(self) -> None:
        _run("mount", "-o", "loop,errors=remount-ro", str(self.folder / "image"), str(self.mount_point))

    def unmount(self) -> None:
        for _ in range(50):
            if subprocess.run(["umount", self.mount_point], capture_output=True, check=False).returncode == 0:
                return
            time.sleep(0.1)
        _run("umount", "-l", str(self.mount_point))

    def clear(self) -> None:
        if self.mount_point.is_mount():
            self.unmount()

    def cut(self) -> None:
        """Cut the power (first nothing reaches the disk, then nothing runs any more), and mount the disk again."""
        handle = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(handle)
        self.kill_all()
        self.unmount()
        self.mount()

    def start_and_cut(self) -> None:
        for seconds in STARTS_S:
            self.spawn()
            time.sleep(seconds)
            self.cut()


class FirstStartsCut(OwnDisk):
    def place(self) -> None:
        super().place()
        self.start_and_cut()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    if done.returncode:
        raise Skipped(f"{command[0]} failed: {done.stderr.decode()[-200:].strip()}")


@contextmanager
def disk_full(site: OwnDisk) -> Iterator[None]:
    ballast = site.mount_point / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    try:
        yield
    finally:
        ballast.unlink()


@contextmanager
def disk_read_only(site: OwnDisk) -> Iterator[None]:
    """Make ext4 find an error and become read-only; at the end mount it anew and restart the appliance."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    device = next(name for name, where, *_ in mounts if where == str(site.mount_point)).rpartition("/")[2]
    Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("1")
    yield
    site.box.stop()
    site.kill_all()
    site.unmount()
    subprocess.run(["e2fsck", "-p", site.folder / "image"], capture_output=True, check=False, timeout=60)
    site.mount()
    site.spawn()


@contextmanager
def power_cut(during: Callable[[OwnDisk], None], after_s: float, site: OwnDisk) -> Iterator[None]:
    def until_cut() -> None:
        with may_fail("what the power cut interrupts"):
            during(site)

    threading.Thread(target=until_cut, daemon=True).start()
    time.sleep(after_s)
    site.cut()
    yield
    site.spawn()


def uploads(site: OwnDisk) -> None:
    with site.box.rest() as rest:
        for name in MORE:
            site.upload(rest, "right", MORE_OF, name)


def plans(site: OwnDisk) -> None:
    with site.box.rest() as rest:
        for _ in range(50):
            rest.post("/plan/")
            time.sleep(0.05)


def keys(site: OwnDisk) -> None:
    with site.box.rest() as rest:
        for number in range(200):
            name = f"kept{number}"
            expect(rest.post("/api-keys/", json={"name": name}), "making a key", 201)
            with (site.folder / "acknowledged").open("a") as file:
                file.write(name + "\n")


def acknowledged(site: Site, _queries: Sequence[Query]) -> Verdict:
    """Keys that were acknowledged must be there."""
    made = (site.folder / "acknowledged").read_text().split()
    with site.box.rest() as rest:
        there = {one["name"] for one in pages(rest, "/api-keys/")}
    gone = [name for name in made if name not in there]
    return not gone, f"{len(gone)} of {len(made)} acknowledged keys are gone"


@contextmanager
def starts_cut(back_to: str, site: OwnDisk) -> Iterator[None]:
    """An appliance with data stops in order, and its next starts are cut.

    Args:
        back_to: first take the scheduler's tables back to this migration, so that starts migrate them; empty: not.
    """
    site.box.stop()
    if back_to:
        command = [sys.executable, "manage.py", "migrate", "scheduler", back_to]
        done = subprocess.run(command, cwd=ROOT, env=site.box.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"migrations cannot be taken back: {done.stderr[-500:]}")
    site.start_and_cut()
    yield
    site.spawn()


@contextmanager
def injected(role: str, calls: str, error: str, site: Site) -> Iterator[None]:
    """System calls of a role's processes fail with an error that strace returns while the fault lasts."""
    if not shutil.which("strace"):
        raise Skipped("strace is not installed")
    pids = [f"-p{process.pid}" for process in site.processes(role)]
    command = ["strace", "-f", "-qq", "-o/dev/null", *pids, f"-etrace={calls}", f"-einject={calls}:error={error}"]
    tracing = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(0.5)
    if tracing.poll() is not None:
        raise Skipped(f"strace: {tracing.stderr.read().decode()[-200:].strip()}")
    try:
        yield
    finally:
        tracing.send_signal(signal.SIGINT)
        tracing.wait(30)
