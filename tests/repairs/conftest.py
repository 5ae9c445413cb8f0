"""A small cluster in which everything works, and time that passes."""

from __future__ import annotations

import pytest

from registry import clock, storage
from scheduler import troubles
from scheduler.control import requests
from scheduler.repairs import known, listing
from tests.control.world import application, node, variant
from tests.repairs.looks import found, keep_alive, store
from workers import confinement


@pytest.fixture
def fresh(monkeypatch):
    """As in a process that just started, on a box that isolates uploads, with planning under way."""
    complete = confinement.Isolation(landlock=7, seccomp=True)
    monkeypatch.setattr(confinement, "isolation", lambda: complete)
    monkeypatch.setattr(known, "_here", clock.Unchanged())
    monkeypatch.setattr(known, "_looked_at", None)
    monkeypatch.setattr(listing, "_shared", None)
    troubles._troubles.clear()
    requests.served(0)
    yield
    troubles._troubles.clear()


@pytest.fixture
def world():
    """Two equal devices that are up, and one application with a small and a big variant, files and all."""
    owner = application()
    made = {}
    for name, accuracy, ms in (("small", 90, 1), ("big", 98, 20)):
        made[name] = variant(owner, name, accuracy, ms)
        made[name].digest = name.encode().hex().ljust(64, "0")
        made[name].save()
        store(made[name])
    yield {"node": node(), "application": owner, **made}
    for one in ("small", "big"):
        storage.path(made[one].digest).unlink(missing_ok=True)


@pytest.fixture
def lasting(later):
    def wait(seconds: float) -> dict[str, object]:
        found()
        later(seconds)
        keep_alive()
        return found()

    return wait
