"""The scheduler's reactions to changes of the registry.

They are connected in :mod:`scheduler.apps`.
"""

from __future__ import annotations

from registry.models import Gateway, Node
from scheduler import live, queue
from scheduler.control.requests import request_plan

#: kinds of change after which another allocation may be better
REPLAN = {"application", "variant"}
#: kinds of changes that are pushed to members; a member that was revoked leaves the others' peers
PUSH = {"application", "api_key", "node", "gateway"}
#: kinds whose names operators alone may read: browsers of other roles learn that one of them changed, not which
NAMELESS = {"api_key", "api_token", "join_token", "webhook"}


def on_change(sender, kind: str, ref: str, replan: bool, **_) -> None:
    """React to a change of the registry; called after commit.

    ``kind``, ``ref`` and ``replan`` are as in :func:`registry.events.changed`.
    """
    # Here and not above: these load numpy, a sixth of a command's start, which few commands need.
    from scheduler.control.upkeep import replan_if_devices_changed
    from scheduler.members import push

    if kind in ("node", "gateway"):
        model = Node if kind == "node" else Gateway
        pk = model.objects.filter(name=ref).values_list("pk", flat=True).first()
        if pk is not None:
            push.recheck(model, pk)
    if kind == "node":
        replan_if_devices_changed()
    if kind == "profile_job":
        push.cancel_profile(int(ref))
    if kind in ("variant", "profile_job"):
        queue.send("scheduler.dispatch_profiles")
    if replan and kind in REPLAN:
        request_plan("change", f"{kind} {ref} changed")
    if kind in PUSH:
        queue.send("scheduler.push")
    # Last: browsers' events matter least.
    live.publish("changed", {"kind": kind, "ref": "" if kind in NAMELESS else ref})
