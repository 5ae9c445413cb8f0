"""The content-addressed store of models and validation sets.

A file is at ``NEREUS_HOME/models/ab/abcdef…`` by its sha256. A file comes in through :class:`Incoming`, which hashes
while it writes, and gets its place by an atomic rename. Rows of :class:`~registry.models.Variant` and
:class:`~registry.models.ValidationSet` are the references; a file is removed some minutes after the last of them
(:func:`sweep`). A file lock (:func:`lock`) keeps the web process, which adds files with their rows, and the scheduler,
which removes files, apart.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.db import transaction

from registry import clock
from registry.errors import NoSpace, UploadTooLarge
from workers import disk

CHUNK = 1 << 20
#: an upload that has not grown for this long lost its process
STALE_S = 3600.0
#: a file that no row has needed for this long is removed
LATE_S = 600.0
SWEEP_EVERY_S = 60.0

_uploads, _orphans = clock.Unchanged(), clock.Unchanged()
_swept_at: float | None = None


def root() -> Path:
    return settings.NEREUS.home / "models"


def path(digest: str) -> Path:
    """The path of a file, there or not. Raises ValueError: no sha256 in lower case."""
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ValueError(f"digest: {digest[:80]!r} is not a sha256 in lower-case hex")
    return root() / digest[:2] / digest


def _incoming_folder() -> Path:
    folder = root() / "incoming"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Incoming:
    """A file on its way into the store; gone unless it is placed.

    ``limit``: bytes at most; ``field`` names it in errors, ``setting`` made the limit.
    """

    def __init__(self, limit: int, field: str = "file", setting: str = "NEREUS_MAX_UPLOAD_MB"):
        self.limit = limit
        self.field = field
        self.setting = setting
        self.size = 0
        self._hash = hashlib.sha256()
        with _full_disk():
            descriptor, name = tempfile.mkstemp(dir=_incoming_folder())
        self.path = Path(name)
        self._file = os.fdopen(descriptor, "wb")

    def write(self, chunk: bytes) -> None:
        if self.size + len(chunk) > self.limit:
            raise UploadTooLarge(self.field, self.limit, self.setting)
        with _full_disk():
            self._file.write(chunk)
        self._hash.update(chunk)
        self.size += len(chunk)

    def finish(self) -> str:
        """All bytes are here: bring them to the disk. Returns the digest."""
        if not self._file.closed:
            with _full_disk():
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
        return self.digest

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def place(self) -> None:
        """Give the file its place in the store; call within :func:`lock`."""
        target = path(self.digest)
        if target.exists():
            self.discard()
            return
        with _full_disk():
            target.parent.mkdir(exist_ok=True)
            self.path.chmod(0o600)
            self.path.replace(target)
        for folder in (target.parent, root()):
            disk.sync_folder(folder)

    def discard(self) -> None:
        """Remove what is not placed; safe to call at any time and repeatedly."""
        with contextlib.suppress(OSError):
            self._file.close()
        self.path.unlink(missing_ok=True)


@contextlib.contextmanager
def _full_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace(f"no space left under {root()}") from error
        raise


@contextlib.contextmanager
def lock() -> Iterator[None]:
    """One holder on this box, for a rename and a row, never while bytes stream."""
    root().mkdir(parents=True, exist_ok=True)
    with open(root() / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def referenced(digest: str) -> bool:
    from registry.models import ValidationSet, Variant

    return Variant.objects.filter(digest=digest).exists() or ValidationSet.objects.filter(digest=digest).exists()


@contextlib.contextmanager
def placing(incoming: Incoming) -> Iterator[None]:
    """A transaction that stores the row of a file, which leaves the store if that fails."""
    with lock():
        try:
            with transaction.atomic():
                yield
        except BaseException:
            release_locked(incoming.digest)
            raise


def release_locked(digest: str) -> bool:
    """Remove a placed file without its row; call within :func:`lock`."""
    if referenced(digest):
        return False
    target = path(digest)
    existed = target.exists()
    target.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        target.parent.rmdir()
    return existed


def sweep() -> int:
    """Remove uploads whose process died, and files that rows no longer need.

    Files are removed once no row has needed them for :data:`LATE_S`. They are removed late because a power cut or a
    restored copy may bring back rows, and nodes fetch what the last plan named. Returns how many files went.
    """
    global _swept_at
    now = clock.steady()
    if _swept_at is not None and now - _swept_at < SWEEP_EVERY_S:
        return 0
    _swept_at = now
    with kept(exclusive=True) as alone:
        return _sweep_uploads() + (_sweep_orphans() if alone else 0)


def _sweep_uploads() -> int:
    sizes: dict[Path, int] = {}
    for file in [*_incoming_folder().iterdir(), *settings.NEREUS.home.glob("*.upload*")]:
        with contextlib.suppress(FileNotFoundError):
            sizes[file] = file.stat().st_size
    stale = [file for file, seconds in _uploads.ages(sizes).items() if seconds > STALE_S]
    for file in stale:
        file.unlink(missing_ok=True)
    return len(stale)


def _sweep_orphans() -> int:
    there = {file.name for file in root().glob("??/*")}
    orphans = dict.fromkeys(there - digests(), True)
    gone = 0
    for digest, seconds in _orphans.ages(orphans).items():
        if seconds > LATE_S:
            with lock():
                gone += release_locked(digest)
    return gone


def digests() -> set[str]:
    from registry.models import ValidationSet, Variant

    return {digest for model in (Variant, ValidationSet) for digest in model.objects.values_list("digest", flat=True)}


@contextlib.contextmanager
def kept(exclusive: bool = False) -> Iterator[bool]:
    """While held, no file leaves the store: for a backup, and the sweep.

    Yields False if ``exclusive`` (for the sweep, which does not wait) and another process holds it.
    """
    root().mkdir(parents=True, exist_ok=True)
    with open(root() / ".kept", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
            yield True
        except BlockingIOError:
            yield False
