"""Content-addressed files of a node, fetched from the control plane.

They are models and validation sets, and are kept on disk.

A file is named by its sha256 and appears only after that was verified. Until then its part grows beside it, and is
continued after a lost link. Disks damage files: all are verified again by :meth:`ModelCache.verify`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import random
import re
import ssl
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import httpx2

from .. import disk, log

_DIGEST = re.compile(r"[0-9a-f]{64}")
_PARTIAL = ".partial-"
#: the longest pause before a file is asked for again that the control plane could not send now, seconds
LONGEST_WAIT_S = 60.0
#: files that are fetched at a time
PARALLEL = 2


class FetchError(Exception):
    """A file could not be obtained.

    Attributes:
        permanent: asking again will not help until somebody acts.
        wait_s: seconds after which to ask again, where the control plane sends as many files as it may.
    """

    def __init__(self, message: str, permanent: bool, wait_s: float | None = None):
        super().__init__(message)
        self.permanent = permanent
        self.wait_s = wait_s


class ModelCache:
    """The files under ``folder``, each named by its digest.

    Args:
        folder: made if need be (mode 0700); fetches that were cut off go on there.
        control_url: where ``/api/v1/blobs/<digest>/`` is.
        token: gives the bearer credential, or None before the node was admitted.
        limit_bytes: largest file that is fetched.
        spare_bytes: bytes of unneeded files that may stay, for a plan that needs them again.
        pauses: seconds before each further try of a failed fetch.
        context: whom to trust, asked at each fetch; None where the URL uses no TLS.
    """

    def __init__(
        self,
        folder: Path,
        control_url: str,
        token: Callable[[], str | None],
        *,
        limit_bytes: int,
        spare_bytes: int = 2 * 2**30,
        pauses: tuple[float, ...] = (0.3, 1.0, 3.0),
        context: Callable[[], ssl.SSLContext | None] = lambda: None,
    ):
        self._folder = folder
        self._token = token
        self._limit_bytes = limit_bytes
        self._spare_bytes = spare_bytes
        self._pauses = pauses
        self._slots = asyncio.Semaphore(PARALLEL)
        self._running: dict[str, asyncio.Task[Path]] = {}
        self._needed: set[str] = set()
        self._borrowed: dict[str, int] = {}
        self._control_url, self._context = control_url, context
        self._log = log.get("cache")
        self.fetched = 0
        self.failed = 0
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._forget_partial(lambda digest: bool(_DIGEST.fullmatch(digest)))

    def path(self, digest: str) -> Path | None:
        """The path of the file, or None when it has to be fetched first."""
        path = self._folder / digest
        return path if _DIGEST.fullmatch(digest) and path.is_file() else None

    def size_bytes(self) -> int:
        return sum(size for _, size, _ in self._entries())

    async def fetch(self, digest: str) -> Path:
        """Return the file with this digest, from disk or else from the control plane.

        Concurrent calls share one fetch.

        Raises:
            FetchError: it cannot be obtained, and why. The part that arrived is kept for the next call.
        """
        if not _DIGEST.fullmatch(digest):
            raise FetchError(f"digest {digest[:80]!r}: must be 64 hexadecimal digits, lower case", permanent=True)
        if (path := self.path(digest)) is not None:
            with contextlib.suppress(OSError):
                os.utime(path)  # what was used last is evicted last
            return path
        task = self._running.get(digest)
        if task is None:
            task = asyncio.create_task(self._fetch(digest), name=f"fetch-{digest[:12]}")
            self._running[digest] = task
            task.add_done_callback(lambda done: self._fetched(digest, done))
        # Shielded: a caller that gives up must not take the file from the others.
        return await asyncio.shield(task)

    @contextlib.contextmanager
    def borrowed(self, digests: Iterable[str]):
        """Within this block the files are in use and stay, whatever plans need."""
        digests = list(digests)
        for digest in digests:
            self._borrowed[digest] = self._borrowed.get(digest, 0) + 1
        try:
            yield
        finally:
            for digest in digests:
                self._borrowed[digest] -= 1
                if not self._borrowed[digest]:
                    del self._borrowed[digest]

    def need(self, digests: Iterable[str]) -> None:
        """Keep these files, borrowed ones, and ``spare_bytes`` of the latest others."""
        self._needed = set(digests)
        self._trim(self._spare_bytes)
        self._forget_partial(lambda digest: digest in self._needed)

    async def verify(self) -> set[str]:
        """Read every file once, at the lowest priority; remove and return damaged ones."""
        damaged = set()
        with ThreadPoolExecutor(1, "verify", initializer=os.setpriority, initargs=(os.PRIO_PROCESS, 0, 19)) as thread:
            for _, _, path in self._entries():
                digest = await asyncio.get_running_loop().run_in_executor(thread, _digest, path)
                if digest not in ("", path.name):
                    path.unlink(missing_ok=True)
                    damaged.add(path.name)
                    self._log.error("damaged_file_removed", digest=path.name, found=digest[:12])
        return damaged

    async def close(self) -> None:
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    # --- fetching ---------------------------------------------------------------------------------------------------

    def _fetched(self, digest: str, task: asyncio.Task[Path]) -> None:
        self._running.pop(digest, None)
        if not task.cancelled() and task.exception() is not None:
            self.failed += 1
            self._log.warning("fetch_failed", digest=digest, reason=str(task.exception()))

    async def _fetch(self, digest: str) -> Path:
        async with self._slots:
            pauses, had = [*self._pauses], 0
            while True:
                try:
                    path = await self._try(digest)
                except FetchError as error:
                    if error.wait_s is not None:
                        # Many nodes want files at once; this one has its turn.
                        await asyncio.sleep(error.wait_s * random.uniform(0.7, 1.0))
                        continue
                    if (has := self._arrived(digest)) > had:
                        # It gets on, however often its link is lost.
                        pauses, had = [*self._pauses], has
                    if error.permanent or not pauses:
                        raise
                    await asyncio.sleep(pauses.pop(0))
                else:
                    self.fetched += 1
                    self._log.info("fetched", digest=digest, size=path.stat().st_size)
                    return path

    def _partial(self, digest: str) -> Path:
        return self._folder / f"{_PARTIAL}{digest}"

    def _arrived(self, digest: str) -> int:
        """Bytes of a file that are here though it is not whole."""
        try:
            return self._partial(digest).stat().st_size
        except OSError:
            return 0

    def _forget_partial(self, kept: Callable[[str], bool]) -> None:
        """Remove parts of files, but those that are ``kept`` (by digest) or being fetched."""
        for path in self._folder.glob(_PARTIAL + "*"):
            digest = path.name.removeprefix(_PARTIAL)
            if digest not in self._running and not kept(digest):
                path.unlink(missing_ok=True)

    def _client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            base_url=self._control_url,
            # Without TLS nothing is verified, and httpx2 need not load the system's authorities.
            verify=self._context() or False,
            timeout=httpx2.Timeout(30.0, connect=5.0),
            trust_env=False,
            follow_redirects=False,
        )

    async def _try(self, digest: str) -> Path:
        token = self._token()
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        if start := self._arrived(digest):
            headers |= {"Range": f"bytes={start}-", "If-Range": f'"{digest}"'}
        try:
            async with (
                self._client() as client,
                client.stream("GET", f"/api/v1/blobs/{digest}/", headers=headers) as answer,
            ):
                status = answer.status_code
                if status in (200, 206):
                    return await self._store(digest, answer, start if status == 206 else 0)
                if status == 416:
                    # More is here than there is of it.
                    self._partial(digest).unlink(missing_ok=True)
                permanent = 400 <= status < 500 and status not in (401, 403, 408, 416, 425, 429)
                pause = answer.headers.get("retry-after", "") if status == 503 else ""
                wait_s = min(float(pause), LONGEST_WAIT_S) if pause.isdigit() else None
                raise FetchError(f"{digest[:12]}: the control plane answered HTTP {status}", permanent, wait_s)
        except httpx2.HTTPError as error:
            raise FetchError(f"{digest[:12]}: {type(error).__name__}: {error}", permanent=False) from error
        except OSError as error:
            if error.errno == errno.ENOSPC:
                self._trim(0)
                self._forget_partial(lambda other: False)
            raise FetchError(f"{digest[:12]}: {error}", permanent=False) from error

    async def _store(self, digest: str, answer: httpx2.Response, start: int) -> Path:
        """Write what arrives behind the first ``start`` bytes, which are here."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial, target = self._partial(digest), self._folder / digest
        with open(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as file:
            file.truncate(start)
            sha, size = await asyncio.to_thread(_hashed, file), start
            # As it arrives: what a larger chunk waits with is lost with the link.
            async for chunk in answer.aiter_bytes():
                size += len(chunk)
                if size > self._limit_bytes:
                    partial.unlink(missing_ok=True)
                    limit = f"{self._limit_bytes} bytes (NEREUS_MAX_UPLOAD_MB)"
                    raise FetchError(f"{digest[:12]}: larger than {limit}", permanent=True)
                sha.update(chunk)
                file.write(chunk)
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        if sha.hexdigest() != digest:
            partial.unlink(missing_ok=True)
            raise FetchError(f"{digest[:12]}: what arrived has the digest {sha.hexdigest()[:12]}", permanent=False)
        os.replace(partial, target)
        disk.sync_folder(self._folder)
        return target

    # --- eviction ---------------------------------------------------------------------------------------------------

    def _entries(self) -> list[tuple[float, int, Path]]:
        entries = []
        # An operator may empty or remove the folder at any time: what is gone is fetched again.
        for path in self._folder.glob("*"):
            if _DIGEST.fullmatch(path.name):
                with contextlib.suppress(FileNotFoundError):
                    status = path.stat()
                    entries.append((status.st_mtime, status.st_size, path))
        return entries

    def _trim(self, spare_bytes: int) -> None:
        spare = 0
        for _, size, path in sorted(self._entries(), reverse=True):
            if path.name in self._needed or path.name in self._borrowed:
                continue
            spare += size
            if spare > spare_bytes:
                path.unlink(missing_ok=True)
                self._log.info("evicted", digest=path.name, size=size)


def _hashed(file: BinaryIO) -> Any:
    """A hash of the file so far; leaves its position at the end."""
    sha = hashlib.sha256()
    file.seek(0)
    while chunk := file.read(1024 * 1024):
        sha.update(chunk)
    return sha


def _digest(path: Path) -> str:
    """sha256 of the file, hex; empty where it is gone or cannot be read now."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
