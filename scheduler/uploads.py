"""Uploads under way, in Redis: every console shows them, and every owner can end them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from registry import clock
from registry.errors import Conflict
from registry.uploads import Upload
from scheduler import live

UPLOADS = live.key("uploads")
#: seconds without an update after which an upload has lost its process, by phase: senders may be silent for 30 s, and
#: inspections wait for their turn
LOST_S = {"receiving": 60.0, "inspecting": 900.0}
#: seconds for which an order to cancel is kept
ORDER_S = 900


def _order(key: str) -> str:
    return live.key(f"upload_cancelled:{key}")


def on_moved(sender: object, upload: Upload, **_: Any) -> str | None:
    """Store how far it is; returns the account that cancelled it."""
    client = live.client()
    known = json.loads(client.hget(UPLOADS, upload.key) or "{}")
    row = {**asdict(upload), "since": known.get("since") or clock.wall(), "at": clock.stamp(clock.steady())}
    client.hset(UPLOADS, upload.key, live.dumps(row))
    return client.get(_order(upload.key))


def on_ended(sender: object, upload: Upload, **_: Any) -> None:
    live.client().hdel(UPLOADS, upload.key)


def current() -> list[dict[str, Any]]:
    """Fields of :class:`~registry.uploads.Upload` and ``since``, the oldest first."""
    found, lost = [], []
    for key, text in live.client().hgetall(UPLOADS).items():
        row = json.loads(text)
        (lost if clock.age(row["at"]) > LOST_S[row["phase"]] else found).append(row | {"key": key})
    if lost:
        live.client().hdel(UPLOADS, *(row["key"] for row in lost))
    return sorted(found, key=lambda row: (row["since"], row["key"]))


def cancel(key: str, by: str) -> dict[str, Any] | None:
    """End an upload that is being received; returns it, None: there is none.

    Raises:
        Conflict: all of it has come.
    """
    row = next((row for row in current() if row["key"] == key), None)
    if row is not None and row["phase"] != "receiving":
        raise Conflict("all of the file has come and is being inspected; delete the variant if it is accepted")
    if row is not None:
        live.client().set(_order(key), by, ex=ORDER_S)
    return row
