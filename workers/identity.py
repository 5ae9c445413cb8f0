"""Identity of a running executor: digests of its code, settings and device.

It is compared with the identity of the executor that the node would start now. Both ends compute it: the executor when
it starts, from the code that it loads; the node daemon when it finds one that an earlier daemon started.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from .protocol.frames import ExecutorIdentity
from .protocol.specs import DeviceInfo

#: the settings that an executor reads
SETTINGS = ("NEREUS_CONFINE_EXECUTORS", "NEREUS_LOG_LEVEL", "NEREUS_PROFILE_SHARE", "NEREUS_QUEUE_ROWS")
#: folders of this package whose code an executor runs
_FOLDERS = (".", "confinement", "executor", "protocol", "dispatch", "net", "trust", "v2")
_LIBRARIES = ("cryptography", "msgspec", "numpy", "onnxruntime", "onnxruntime-gpu", "uvloop")


def of(device: DeviceInfo, environ: Mapping[str, str] | None = None) -> ExecutorIdentity:
    """The identity of an executor of ``device`` with this environment."""
    environ = os.environ if environ is None else environ
    settings = [f"{name}={environ.get(name, '')}" for name in SETTINGS]
    return ExecutorIdentity(code(), _digest("\n".join(settings).encode()), _digest(msgspec.json.encode(device)))


@functools.cache
def code() -> str:
    """Digest of the code of executors on disk, and of the versions of what it imports."""
    sha = hashlib.sha256(sys.version.encode())
    here = Path(__file__).parent
    for path in sorted(path for folder in _FOLDERS for path in (here / folder).glob("*.py")):
        sha.update(path.relative_to(here).as_posix().encode() + b"\0" + path.read_bytes())
    for library in _LIBRARIES:
        try:
            sha.update(f"{library} {importlib.metadata.version(library)}\n".encode())
        except importlib.metadata.PackageNotFoundError:
            continue
    return sha.hexdigest()[:16]


def difference(expected: ExecutorIdentity, found: ExecutorIdentity) -> str:
    """Why an executor of this identity has to be replaced; empty: it may stay."""
    names = {"code": "other code", "settings": "other settings", "device": "another description of its device"}
    return ", ".join(text for field, text in names.items() if getattr(expected, field) != getattr(found, field))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
