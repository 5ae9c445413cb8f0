"""Uploads under way; :mod:`scheduler.uploads` receives the signals."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from django.dispatch import Signal

from registry.audit.origins import origin

#: sent with ``upload``; a receiver answers with the account that cancelled it, or with nothing
upload_moved = Signal()
#: sent with ``upload``: it was accepted or refused
upload_ended = Signal()
#: the upload of the request under way
_current: ContextVar[Upload | None] = ContextVar("upload", default=None)


@dataclass
class Upload:
    """A file on its way in; ``size``: bytes as announced, 0: not.

    ``name``: of the variant; empty: not known before all of it came. ``phase``: ``receiving``, then ``inspecting``.
    """

    application: str
    by: str
    size: int
    received: int = 0
    name: str = ""
    phase: str = "receiving"
    key: str = field(default_factory=lambda: uuid.uuid4().hex[:12])


def begin(upload: Upload) -> None:
    _current.set(upload)


def moved(upload: Upload) -> str:
    """Tell how far it is; returns the account that cancelled it, or nothing."""
    # send_robust logs failures: an upload does not depend on its being shown.
    answers = (answer for _, answer in upload_moved.send_robust(sender=None, upload=upload))
    return next((answer for answer in answers if isinstance(answer, str)), "")


def ended(upload: Upload) -> None:
    upload_ended.send_robust(sender=None, upload=upload)


@contextmanager
def inspecting(application: str, name: str, size: int) -> Iterator[None]:
    upload = _current.get() or Upload(application, origin().actor, size)
    upload.phase, upload.name, upload.received = "inspecting", name, size
    moved(upload)
    try:
        yield
    finally:
        ended(upload)
