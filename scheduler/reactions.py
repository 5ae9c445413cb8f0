"""The scheduler's reactions to changes of the registry (connected in :mod:`scheduler.apps`)."""

from __future__ import annotations

from scheduler import live, queue
from scheduler.control.requests import request_plan

#: kinds of change after which another allocation may be better
REPLAN = {"application", "variant"}
#: kinds of changes that members follow; a member that was revoked leaves the others' peers
FOLLOWED = {"application", "variant", "api_key", "node", "gateway", "profile_job"}
#: kinds whose names operators alone may read: browsers of other roles learn that one of them changed, not which
NAMELESS = {"api_key", "api_token", "join_token", "webhook"}


def on_change(sender, kind: str, ref: str, replan: bool, **_) -> None:
    """Called after commit; arguments as in :func:`registry.events.changed`."""
    # Here and not above: these load numpy, a sixth of a command's start, which few commands need.
    from scheduler.control.upkeep import replan_if_devices_changed

    if kind == "node":
        replan_if_devices_changed()
    if kind in ("variant", "profile_job"):
        queue.send("scheduler.dispatch_profiles")
    if replan and kind in REPLAN:
        request_plan("change", f"{kind} {ref} changed")
    if kind in FOLLOWED:
        live.members_changed()
    # Last: browsers' events matter least.
    live.publish("changed", {"kind": kind, "ref": "" if kind in NAMELESS else ref})
