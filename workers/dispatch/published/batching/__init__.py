"""Batch policies of published systems.

They decide which queries of one queue run together, and when.

Entry point: :data:`POLICIES`; ``policy`` is the interface, ``forming`` what the policies share. The simulator adds a
policy of its own (``scheduler/simulation/nereus_policy``). Pure. May import
``workers.dispatch.latency``, ``policy_tables`` and ``published.load_monitor``.
"""

from __future__ import annotations

from collections.abc import Callable

from .clipper import ClipperPolicy
from .nexus import NexusPolicy
from .policy import BatchPolicy
from .proteus import ProteusPolicy
from .ramsis import ByLoadPolicy, RamsisPolicy

#: by name: makes the policy of one queue
POLICIES: dict[str, Callable[[], BatchPolicy]] = {
    "proteus": ProteusPolicy,
    "nexus": NexusPolicy,
    "clipper": ClipperPolicy,
    "ramsis": RamsisPolicy,
    "by-load": ByLoadPolicy,
}
