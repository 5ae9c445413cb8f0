"""The largest frames that a member on another box may send. Pure.

They depend on its role, and on the largest queries that are accepted. Settings count as they are on the box that
receives, and should be the same on all boxes of a cluster.
"""

from __future__ import annotations

from typing import NamedTuple

from .framing import MAX_HEADER

#: bytes of tensors in one frame of several queries; senders make several frames of more
SEVERAL_BYTES = 64 * 1024 * 1024
#: the most bytes of a tensor that a byte of JSON can stand for: ``1,`` is an INT64
JSON_EXPANDS = 4
#: bytes of a run's outputs that always fit, and as a multiple of the largest query
LEAST_ANSWER_BYTES, ANSWER_EXPANDS = 256 * 1024 * 1024, 4


class FrameLimits(NamedTuple):
    header: int
    body: int


#: until a peer's Hello is accepted
GREETING = FrameLimits(16 * 1024, 0)


class PeerLimits(NamedTuple):
    """Bytes of frames that may be received from a peer, and sent to it."""

    received: FrameLimits
    sent: FrameLimits


class QueryLimits(NamedTuple):
    """NEREUS_MAX_REQUEST_MB and NEREUS_MAX_JSON_MB of this box, in bytes."""

    request_bytes: int
    json_bytes: int

    @property
    def queries(self) -> FrameLimits:
        """Of a frame with queries, from a front to a core or a core to an executor."""
        return FrameLimits(MAX_HEADER, max(SEVERAL_BYTES, self.request_bytes, JSON_EXPANDS * self.json_bytes))

    @property
    def answers(self) -> FrameLimits:
        return FrameLimits(MAX_HEADER, max(LEAST_ANSWER_BYTES, ANSWER_EXPANDS * self.queries.body))

    @property
    def asking(self) -> PeerLimits:
        return PeerLimits(self.answers, self.queries)

    @property
    def answering(self) -> PeerLimits:
        return PeerLimits(self.queries, self.answers)
