"""Single queries: the slowest and the refused of the last hour, by application.

They are kept in Redis. A gateway sends one of each a second. Kept are the slowest :data:`SLOWEST` and the latest
:data:`REFUSED` of each minute, under keys that expire after an hour: at most 610 samples of an application, of some 300
bytes each.
"""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any

import msgspec

from registry import clock
from workers.protocol.control import GatewayStats

from . import live

KEEP_S = 3600
#: samples of an application and minute
SLOWEST, REFUSED = 5, 5
#: samples of an application that readers get
SHOWN = 20


def _key(kind: str, application: str, minute: int) -> str:
    return live.key(f"query_{kind}:{application}:{minute}")


def record(t: int, stats: GatewayStats, known: Container[str]) -> None:
    """Keep those of applications that exist; ``t``: unix time of the second."""
    minute = t // 60
    with live.client().pipeline(transaction=False) as pipe:
        for name, counts in stats.applications.items():
            if name not in known:
                continue
            if counts.slowest is not None:
                key = _key("slow", name, minute)
                text = live.dumps({"t": t, **msgspec.to_builtins(counts.slowest)})
                pipe.zadd(key, {text: counts.slowest.latency_ms})
                pipe.zremrangebyrank(key, 0, -SLOWEST - 1)
                pipe.expire(key, KEEP_S + 60)
            if counts.refused is not None:
                key = _key("refused", name, minute)
                pipe.lpush(key, live.dumps({"t": t, **msgspec.to_builtins(counts.refused)}))
                pipe.ltrim(key, 0, REFUSED - 1)
                pipe.expire(key, KEEP_S + 60)
        if pipe:
            pipe.execute()


def last_hour(application: str) -> dict[str, list[dict[str, Any]]]:
    """``slowest`` (first) and ``refused`` (the latest first), each with ``why``."""
    now = int(clock.wall())
    minutes = range(now // 60, (now - KEEP_S) // 60 - 1, -1)
    with live.client().pipeline(transaction=False) as pipe:
        for minute in minutes:
            pipe.zrange(_key("slow", application, minute), 0, -1)
            pipe.lrange(_key("refused", application, minute), 0, -1)
        found = pipe.execute()
    slow = [json.loads(text) for texts in found[0::2] for text in texts]
    refused = [json.loads(text) for texts in found[1::2] for text in texts]
    slow.sort(key=lambda one: (-one["latency_ms"], -one["t"]))
    refused.sort(key=lambda one: -one["t"])
    return {
        kind: [{**one, "why": why(one)} for one in some[:SHOWN] if one["t"] > now - KEEP_S]
        for kind, some in (("slowest", slow), ("refused", refused))
    }


_STAGES = {
    "queue_ms": "waiting for a device",
    "network_ms": "between gateway and device",
    "batch_ms": "in assembling its batch and its answer",
    "model_ms": "in the model",
}


def why(sample: dict[str, Any]) -> str:
    if sample["outcome"] in ("dropped", "failed"):
        return sample["reason"]
    stage = max(_STAGES, key=lambda name: sample[name])
    spent = f"{sample[stage]:.0f} of {sample['latency_ms']:.0f} ms were spent {_STAGES[stage]}"
    over = sample["latency_ms"] - sample["budget_ms"]
    verdict = f"{over:.0f} ms late" if sample["outcome"] == "late" else "In time"
    again = f"; it was sent {sample['tries']} times" if sample["tries"] > 1 else ""
    return f"{verdict}: {spent}{again}."
