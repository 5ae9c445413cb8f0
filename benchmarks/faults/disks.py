"""Faults of disks: a small file system of its own, and failing system calls.

Errors are returned by strace instead of carrying out a call.

A power cut is ext4's own shutdown (as xfstests do it): from one moment on nothing reaches the disk, the journal
included; then all processes are killed, and the file system is mounted again, which replays its journal. Lost is
everything that was neither synchronised nor written back in time. Limits: the disk itself keeps what it was given (no
torn sectors, no lying write cache), and only one file system is cut.
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
from pathlib import Path

from appliance.demo.rest import client, expect, pages
from tools.child import ROOT

from .breaking import Fault
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
        """Mount it. Errors make it read-only, as on most systems."""
        _run("mount", "-o", "loop,errors=remount-ro", str(self.folder / "image"), str(self.mount_point))

    def unmount(self) -> None:
        """Unmount it, once nothing uses it any more."""
        for _ in range(50):
            if subprocess.run(["umount", self.mount_point], capture_output=True, check=False).returncode == 0:
                return
            time.sleep(0.1)
        _run("umount", "-l", str(self.mount_point))

    def clear(self) -> None:
        if self.mount_point.is_mount():
            self.unmount()

    def device(self) -> str:
        """The loop device's name."""
        lines = Path("/proc/mounts").read_text().splitlines()
        return next(line.split()[0] for line in lines if line.split()[1] == str(self.mount_point)).rpartition("/")[2]


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    if done.returncode:
        raise Skipped(f"{command[0]} failed: {done.stderr.decode()[-200:].strip()}")


@contextlib.contextmanager
def disk_full(site: OwnDisk) -> Iterator[None]:
    """A file takes all that is left, and an upload is tried."""
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


@contextlib.contextmanager
def disk_read_only(site: OwnDisk) -> Iterator[None]:
    """Make ext4 find an error and become read-only.

    At the end it is mounted anew, and the appliance restarts.
    """
    Path(f"/sys/fs/ext4/{site.device()}/trigger_fs_error").write_text("1")
    yield
    site.box.stop()
    site.kill_all()
    site.unmount()
    subprocess.run(["e2fsck", "-p", site.folder / "image"], capture_output=True, check=False, timeout=60)
    site.mount()
    site.spawn()


def cut(site: OwnDisk) -> None:
    """Cut the power, and mount the disk again.

    First nothing reaches the disk any more, then nothing runs any more.
    """
    handle = os.open(site.mount_point, os.O_RDONLY)
    try:
        fcntl.ioctl(handle, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
    finally:
        os.close(handle)
    site.kill_all()
    site.unmount()
    site.mount()


def power_cut(during: Callable[[OwnDisk], None], after_s: float) -> Fault:
    """A cut ``after_s`` seconds into something, and a new start."""

    @contextlib.contextmanager
    def fault(site: OwnDisk) -> Iterator[None]:
        doing = threading.Thread(target=_quietly, args=(during, site), daemon=True)
        doing.start()
        time.sleep(after_s)
        cut(site)
        yield
        site.spawn()

    return fault


def _quietly(during: Callable[[OwnDisk], None], site: OwnDisk) -> None:
    with contextlib.suppress(Exception):
        during(site)


def uploads(site: OwnDisk) -> None:
    """Uploads of variants, one after the other."""
    with client(site.box.console, site.box.credentials["api_token"]) as rest:
        for name in MORE:
            site.upload(rest, "right", MORE_OF, name)


def plans(site: OwnDisk) -> None:
    """Plans, one after the other."""
    with client(site.box.console, site.box.credentials["api_token"]) as rest:
        for _ in range(50):
            rest.post("/plan/")
            time.sleep(0.05)


def keys(site: OwnDisk) -> None:
    """Make API keys, and note those that were acknowledged.

    They must outlive the cut (:func:`acknowledged`).
    """
    with client(site.box.console, site.box.credentials["api_token"]) as rest:
        for number in range(200):
            name = f"kept{number}"
            expect(rest.post("/api-keys/", json={"name": name}), "making a key", 201)
            with (site.folder / "acknowledged").open("a") as file:
                file.write(name + "\n")


def acknowledged(site: Site) -> str:
    """Say which keys were acknowledged and are gone; empty: none."""
    made = (site.folder / "acknowledged").read_text().split()
    with client(site.box.console, site.box.credentials["api_token"]) as rest:
        there = {one["name"] for one in pages(rest, "/api-keys/")}
    gone = [name for name in made if name not in there]
    return f"{len(gone)} of {len(made)} acknowledged keys are gone" if gone else ""


def start_and_cut(site: OwnDisk, after_s: Sequence[float]) -> None:
    """Starts that are cut at different moments, one after the other."""
    for seconds in after_s:
        site.spawn()
        time.sleep(seconds)
        cut(site)


def starts_cut(after_s: Sequence[float], migrate_to: tuple[str, str] | None = None) -> Fault:
    """An appliance with data stops in order, and its next starts are cut.

    Args:
        migrate_to: first take an app's tables back to this migration, so that starts migrate them.
    """

    @contextlib.contextmanager
    def fault(site: OwnDisk) -> Iterator[None]:
        site.box.stop()
        if migrate_to is not None:
            command = [sys.executable, "manage.py", "migrate", *migrate_to]
            done = subprocess.run(command, cwd=ROOT, env=site.box.environment, capture_output=True, check=False)
            if done.returncode:
                site.box.start()
                raise Skipped(f"migrations cannot be taken back: {done.stderr.decode()[-200:].strip()}")
        start_and_cut(site, after_s)
        yield
        site.spawn()

    return fault


class FirstStartsCut(OwnDisk):
    """An appliance whose first starts were cut before one was allowed to end."""

    def place(self) -> None:
        super().place()
        start_and_cut(self, STARTS_S)


def injected(role: str, calls: str, error: str) -> Fault:
    """Return a fault: system calls of a role's processes fail with an error.

    strace returns the error while the fault lasts.

    Raises:
        Skipped: strace is not installed or cannot trace.
    """

    @contextlib.contextmanager
    def fault(site: Site) -> Iterator[None]:
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

    return fault
