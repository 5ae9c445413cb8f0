"""The file format of a backup: a tar archive that begins with a manifest.

After ``manifest.json`` come the database's copy, the store's files and the secrets. The manifest lists size and SHA-256
of everything that follows, so that a reader can refuse a file that is damaged, cut off or not a backup before anything
changes.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
from django.conf import settings
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from registry import clock, storage
from workers import __version__, disk

from . import BackupError, databases

FORMAT = 1
MANIFEST = "manifest.json"
MANIFEST_BYTES = 64 * 2**20
CHUNK = 1 << 20
#: in the home folder: what an appliance cannot make anew without its operators and members noticing
SECRETS = ("secret_key", "credentials.json", "members/*.json", "members/*.pem", "tls/*", "*.pem", "*.key")
#: the secrets' and the store's folders in the archive
HOME_FOLDER, STORE_FOLDER = "home", "models"


class BackupPart(msgspec.Struct, frozen=True):
    name: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of a backup.

    Attributes:
        database: Django's name of its kind.
        made: unix seconds.
        migrations: (application, name) of all that the database went through.
        missing: digests that rows need and whose files were not in the store.
    """

    format: int
    version: str
    made: float
    database: str
    migrations: list[tuple[str, str]]
    parts: list[BackupPart]
    missing: list[str] = []


class _Hashing:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        return data

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def secrets() -> list[Path]:
    home = settings.NEREUS.home
    return sorted({path for pattern in SECRETS for path in home.glob(pattern) if path.is_file()})


def write(target: Path) -> Manifest:
    """Write a backup to ``target``, which appears once it is whole and on the disk.

    The file's mode is 0600.

    Raises:
        BackupError: the file exists, or something cannot be read.
        OSError: it cannot be written.
    """
    if target.exists():
        raise BackupError(f"{target} exists; choose another name, a backup never replaces a file")
    home = settings.NEREUS.home
    with databases.temporary_folder(f".backup-{os.getpid()}") as folder, storage.kept():
        copy = folder / databases.NAMES[connection.vendor]
        needed = sorted(databases.copy_to(copy))
        sources = {copy.name: copy}
        for number, path in enumerate(secrets()):
            # As they are now: they may be rotated meanwhile.
            sources[f"{HOME_FOLDER}/{path.relative_to(home)}"] = Path(shutil.copy(path, folder / str(number)))
        parts = [BackupPart(name, path.stat().st_size, sha256(path)) for name, path in sources.items()]
        stored = {digest: storage.path(digest) for digest in needed if storage.path(digest).is_file()}
        for digest, path in stored.items():
            sources[f"{STORE_FOLDER}/{digest}"] = path
            parts.append(BackupPart(f"{STORE_FOLDER}/{digest}", path.stat().st_size, digest))
        manifest = Manifest(
            format=FORMAT,
            version=__version__,
            made=clock.wall(),
            database=connection.vendor,
            migrations=sorted(MigrationRecorder(connection).applied_migrations()),
            parts=parts,
            missing=[digest for digest in needed if digest not in stored],
        )
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            _write_tar(partial, manifest, sources)
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
    disk.sync_folder(target.parent)
    return manifest


def _write_tar(target: Path, manifest: Manifest, sources: dict[str, Path]) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            text = msgspec.json.encode(manifest)
            tar.addfile(_entry(MANIFEST, len(text)), io.BytesIO(text))
            for part in manifest.parts:
                path = sources[part.name]
                with path.open("rb") as source:
                    hashing = _Hashing(source)
                    tar.addfile(_entry(part.name, part.size), hashing)
                if hashing.sha256 != part.sha256:
                    raise BackupError(
                        f"{path} is damaged: its content is not what its name says; delete and upload it again"
                    )
        file.flush()
        os.fsync(file.fileno())


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o600
    return entry


def read_manifest(tar: tarfile.TarFile) -> Manifest:
    """The manifest, which must come first. Raises BackupError."""
    entry = tar.next()
    if entry is None or entry.name != MANIFEST or not entry.isfile() or entry.size > MANIFEST_BYTES:
        raise BackupError(f"not a backup: it does not begin with {MANIFEST}")
    data = tar.extractfile(entry).read()
    try:
        version = msgspec.json.decode(data, type=dict).get("format")
        if version != FORMAT:
            raise BackupError(f"the backup has format {version!r}; this release reads format {FORMAT}")
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise BackupError(f"not a backup: {MANIFEST}: {error}") from error


def extract(tar: tarfile.TarFile, manifest: Manifest, folder: Path) -> Iterator[tuple[BackupPart, Path]]:
    """Write the files behind the manifest to ``folder``, under numbers.

    Each is checked before it is yielded. Raises BackupError.
    """
    expected = {part.name: part for part in manifest.parts}
    for number, entry in enumerate(iter(tar.next, None)):
        part = expected.pop(entry.name, None)
        if part is None or not entry.isfile():
            raise BackupError(f"{entry.name!r} is not listed in {MANIFEST}")
        path = folder / str(number)
        with tar.extractfile(entry) as source, path.open("xb") as file:
            hashing = _Hashing(source)
            while chunk := hashing.read(CHUNK):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        if path.stat().st_size != part.size or hashing.sha256 != part.sha256:
            raise BackupError(f"{part.name} is damaged: its size or checksum is not the one in {MANIFEST}")
        yield part, path
    if expected:
        raise BackupError(f"the backup is cut off: {', '.join(sorted(expected)[:3])} of {len(expected)} are missing")
