"""The content-addressed store of models and validation sets: ``NEREUS_HOME/models/ab/abcdef…`` by sha256.

A file comes in through :class:`Incoming`, which hashes while it writes, and gets its place by an atomic rename. Rows of
:class:`~registry.models.Variant` and :class:`~registry.models.ValidationSet` are the references; the file goes with the
last of them. Placing-with-its-row and releasing exclude each other by a file lock (:func:`lock`), because the web
workers and the scheduler both do either.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from registry.errors import NoSpace, UploadTooLarge

CHUNK = 1 << 20
#: an incoming file that nobody has written to for this long lost its process
STALE_S = 6 * 3600


def root() -> Path:
    """The store's folder."""
    return settings.NEREUS.home / "models"


def path(digest: str) -> Path:
    """Where the file of that digest is or would be.

    Raises:
        ValueError: not a sha256 in lower-case hex, so it never names a file elsewhere.
    """
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ValueError(f"digest: {digest[:80]!r} is not a sha256 in lower-case hex")
    return root() / digest[:2] / digest


def _incoming_folder() -> Path:
    folder = root() / "incoming"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Incoming:
    """A file on its way in, at most ``limit`` bytes. It vanishes with :meth:`discard` unless :meth:`place` came first.

    ``field`` names it in errors; ``setting`` is the setting that made the limit.
    """

    def __init__(self, limit: int, field: str = "file", setting: str = "NEREUS_MAX_UPLOAD_MB"):
        self.limit = limit
        self.field = field
        self.setting = setting
        self.size = 0
        self._hash = hashlib.sha256()
        descriptor, name = tempfile.mkstemp(dir=_incoming_folder())
        self.path = Path(name)
        self._file = os.fdopen(descriptor, "wb")

    @classmethod
    def copy(cls, source: Path, limit: int | None = None) -> Incoming:
        """A file of this box, copied in and finished."""
        incoming = cls(settings.NEREUS.max_upload_bytes if limit is None else limit)
        try:
            with source.open("rb") as file:
                while chunk := file.read(CHUNK):
                    incoming.write(chunk)
            incoming.finish()
        except BaseException:
            incoming.discard()
            raise
        return incoming

    def write(self, chunk: bytes) -> None:
        """Append.

        Raises:
            UploadTooLarge: this chunk exceeds the limit; it is not written.
            NoSpace: the disk is full.
        """
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
        """Give the file its place in the store; call within :func:`lock`. A file that is there already stays."""
        target = path(self.digest)
        if target.exists():
            self.discard()
            return
        target.parent.mkdir(exist_ok=True)
        self.path.chmod(0o600)
        self.path.replace(target)
        for folder in (target.parent, root()):
            _sync_folder(folder)

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


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def lock() -> Iterator[None]:
    """One holder on this box at a time. Held for a rename and a row, never while bytes stream or models run."""
    root().mkdir(parents=True, exist_ok=True)
    with open(root() / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def referenced(digest: str) -> bool:
    """Whether a row still needs the file."""
    from registry.models import ValidationSet, Variant

    return Variant.objects.filter(digest=digest).exists() or ValidationSet.objects.filter(digest=digest).exists()


def release(digest: str) -> bool:
    """Remove the file if no row needs it (call once the row's deletion is committed). True when it went."""
    with lock():
        return release_locked(digest)


def release_locked(digest: str) -> bool:
    """As :func:`release`, for a caller that holds the lock."""
    if referenced(digest):
        return False
    target = path(digest)
    existed = target.exists()
    target.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        target.parent.rmdir()
    return existed


def sweep(now: float | None = None) -> int:
    """Remove incoming files whose process died. Returns how many."""
    now = time.time() if now is None else now
    gone = 0
    for file in _incoming_folder().iterdir():
        with contextlib.suppress(FileNotFoundError):
            if now - file.stat().st_mtime > STALE_S:
                file.unlink()
                gone += 1
    return gone
