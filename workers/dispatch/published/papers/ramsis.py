"""RAMSIS (EuroSys '24): devices choose variants by policies."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...stack import published
from ..forming import classify, start, wait
from ..policy import BatchPolicy, Candidate, Decision, QueueView, Waiting


class RamsisPolicy(BatchPolicy):
    """Runs waiting queries on the variant that the present load's policy names.

    The policy names it for the number of waiting rows and the slack of the first query. All that wait run at once
    (maximal batching).

    The policy is that of the lowest load above the measured one; above all of them, and without a plan's policies, the
    fastest variant runs. Where the variant named is not loaded, or slower here than its profile, the most accurate of
    the faster ones runs that is in time. Where all of these would be late and late ones are served, they run on the
    fastest variant, as published; else the first ones are dropped, until the others are in time together. (To run the
    first ones alone would leave the others behind, which by then are as late.) Work-conserving.
    """

    def decide(self, view: QueueView) -> Decision:
        candidates = in_order(view)
        fastest = candidates[0]
        quick = msgspec.structs.replace(view, candidates=[fastest])
        classified = classify(quick, fastest.max_batch)
        if not classified.viable:
            return wait(quick, classified)
        slack_s = classified.viable[0].deadline - view.now
        allowed = candidates[: named_place(view, candidates, classified.rows, slack_s) + 1]
        chosen = _in_time(allowed, classified.rows, slack_s)
        if chosen is not None:
            exact = msgspec.structs.replace(view, candidates=[chosen])
            return start(exact, classified, len(classified.viable), classified.rows, chosen.max_batch)
        if view.serve_late:
            return start(quick, classified, len(classified.viable), classified.rows, fastest.max_batch)
        late = _late_first(classified.viable, view.now, fastest)
        rest = classified._replace(viable=classified.viable[late:], late=[*classified.late, *classified.viable[:late]])
        return start(quick, rest, len(rest.viable), classified.rows, fastest.max_batch)


def in_order(view: QueueView) -> list[Candidate]:
    if view.policies is None:
        ordered: Sequence[Candidate] = sorted(view.candidates, key=lambda c: (c.latency.seconds(1), -c.accuracy))
    else:
        by_variant = {candidate.variant: candidate for candidate in view.candidates}
        ordered = [by_variant[variant] for variant in view.policies.variants if variant in by_variant]
    return [
        candidate
        if candidate.max_batch >= candidate.largest
        else msgspec.structs.replace(candidate, max_batch=candidate.largest)
        for candidate in ordered or view.candidates
    ]


def named_place(view: QueueView, candidates: Sequence[Candidate], rows: int, slack_s: float) -> int:
    """The place of the variant that the present load's policy names, or the next faster one loaded."""
    if view.policies is None or view.load is None:
        return 0
    policy = view.policies.at(view.load.rate(view.now))
    if policy is None:
        return 0
    named = policy.choose(rows, slack_s)
    allowed = set(view.policies.variants[: named + 1])
    return max((place for place, candidate in enumerate(candidates) if candidate.variant in allowed), default=0)


def _late_first(viable: Sequence[Waiting], now: float, candidate: Candidate) -> int:
    rows = sum([query.rows for query in viable])
    for place, query in enumerate(viable[:-1]):
        if now + candidate.latency.seconds(rows) <= query.deadline:
            return place
        rows -= query.rows
    return len(viable) - 1


def _in_time(candidates: Sequence[Candidate], rows: int, slack_s: float) -> Candidate | None:
    for candidate in reversed(candidates):
        if rows <= candidate.max_batch and candidate.latency.seconds(rows) <= slack_s:
            return candidate
    return None


# Every worker gets each K-th query.
STACKS = (
    published(
        "ramsis",
        "ramsis",
        "shares",
        "Devices choose variants by policies for their queue, its first deadline and the load, as in RAMSIS.",
    ),
)
POLICIES, ROUTERS = {"ramsis": RamsisPolicy}, {}
