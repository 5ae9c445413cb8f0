"""Checks a history as Jepsen does: pure, from events alone, after the fact.

1. Every query sent ends exactly once; an answer is its own (id, output).
2. An answer's variant was allowed on its device by a plan in force while the query was under way.
3. A member's plan version never goes back, and a version has one content.
4. Demand is counted once: no counter exceeds what was sent; what was answered is missing from none, except around a
   restart of the process that counts, and after the last sample of it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from .history import Arrived, Counted, Ended, Event, Follows, Planned, Sent


@dataclass(frozen=True)
class Violation:
    rule: str
    text: str


@dataclass(frozen=True)
class Query:
    sent: Sent
    end: Ended

    @property
    def took_s(self) -> float:
        return self.end.at - self.sent.at


#: from and to
NEVER = (math.inf, math.inf)


def check(
    events: Sequence[Event],
    cut_from: float = math.inf,
    cut_to: float = math.inf,
    gateways: Collection[str] = ("gateway",),
    unstored: tuple[float, float] = NEVER,
) -> list[Violation]:
    """All violations.

    Args:
        cut_from, cut_to: queries under way between these moments may end unknown, since fronts were hit.
        gateways: members whose plans decide; a plan is in force until all of them follow newer ones.
        unstored: members could not store between these moments what they followed, and may have lost it afterwards.
    """
    queries, found = _ends(events)
    found += _answers(queries, cut_from, cut_to)
    found += _allowed(queries, events, gateways, unstored)
    found += _versions(events, unstored)
    found += _demand(queries, events, (cut_from, cut_to))
    return found


def queries_of(events: Iterable[Event]) -> list[Query]:
    return list(_ends(events)[0].values())


def merged(attempts: Iterable[Query]) -> list[Query]:
    """Queries of clients that ask one address after another: the first attempt's beginning, the last one's end."""
    queries: dict[str, Query] = {}
    for one in attempts:
        id = one.sent.id.rpartition("@")[0] or one.sent.id
        queries[id] = Query(queries[id].sent if id in queries else one.sent, one.end)
    return list(queries.values())


# --- 1. one end, one's own answer -------------------------------------------------------------------------------------


def _ends(events: Iterable[Event]) -> tuple[dict[str, Query], list[Violation]]:
    sent: dict[str, Sent] = {}
    ends: dict[str, list[Ended]] = defaultdict(list)
    found = []
    for event in events:
        if isinstance(event, Sent):
            if event.id in sent:
                found.append(Violation("one answer", f"{event.id} was sent twice"))
            sent[event.id] = event
        elif isinstance(event, Ended):
            ends[event.id].append(event)
    for id in sent.keys() | ends.keys():
        times = len(ends[id])
        if id not in sent:
            found.append(Violation("one answer", f"{id} was answered, but never sent"))
        elif times != 1:
            found.append(Violation("one answer", f"{id} ended {times} times"))
    return {id: Query(one, ends[id][0]) for id, one in sent.items() if ends[id]}, found


def _answers(queries: dict[str, Query], cut_from: float, cut_to: float) -> list[Violation]:
    found = []
    for id, query in queries.items():
        end = query.end
        if end.at < query.sent.at:
            found.append(Violation("one answer", f"{id} was answered before it was sent"))
        if end.end == "ok" and end.answer_id != id:
            found.append(Violation("one answer", f"{id} got the answer of {end.answer_id!r}"))
        if end.end == "ok" and not end.right:
            found.append(Violation("one answer", f"{id} {end.note or f'got another output than {end.variant} gives'}"))
        if end.end == "unknown" and not (end.at >= cut_from and query.sent.at <= cut_to):
            found.append(Violation("one answer", f"{id} got no answer: {end.note}"))
    return found


# --- 2. a plan in force allowed it ------------------------------------------------------------------------------------


def _allowed(
    queries: dict[str, Query], events: Sequence[Event], gateways: Collection[str], unstored: tuple[float, float]
) -> list[Violation]:
    plans = sorted((one for one in events if isinstance(one, Planned)), key=lambda plan: plan.version)
    followed = [
        one
        for one in events
        if isinstance(one, Follows) and one.member in gateways and not unstored[0] <= one.at <= unstored[1]
    ]
    spans = []
    for plan in plans:
        # In force until its followers follow a newer one: queries sent before that may still have been under way.
        ends = dict.fromkeys(gateways, float("inf"))
        for one in followed:
            if one.version > plan.version:
                ends[one.member] = min(ends[one.member], one.at)
        spans.append((plan.at, max(ends.values()), frozenset(plan.allowed), plan.accuracy))
    found = []
    for id, query in queries.items():
        end = query.end
        if end.end != "ok":
            continue
        key, name = (query.sent.application, end.variant, end.device), f"{query.sent.application}/{end.variant}"
        known = [
            accuracy.get(name, end.accuracy)
            for start, over, allowed, accuracy in spans
            if key in allowed and start <= end.at and query.sent.at <= over
        ]
        if not known:
            found.append(Violation("allowed variant", f"{id}: no plan in force allowed {end.variant} on {end.device}"))
        elif end.accuracy not in known:
            found.append(Violation("allowed variant", f"{id}: accuracy {end.accuracy} of {name}, planned {known[-1]}"))
    return found


# --- 3. plan versions -------------------------------------------------------------------------------------------------


def _versions(events: Sequence[Event], unstored: tuple[float, float]) -> list[Violation]:
    found = []
    newest: dict[str, int] = {}
    stored: dict[str, int] = {}
    contents: dict[int, str] = {}
    for event in events:
        if isinstance(event, Follows) and event.version:
            before = (stored if event.at > unstored[1] else newest).get(event.member, 0)
            if event.version < before:
                found.append(Violation("plan versions", f"{event.member} went from {before} to {event.version}"))
            newest[event.member] = max(before, event.version)
            if not unstored[0] <= event.at <= unstored[1]:
                stored[event.member] = max(before, event.version)
        elif isinstance(event, Planned) and contents.setdefault(event.version, event.digest) != event.digest:
            found.append(Violation("plan versions", f"there are two plans with version {event.version}"))
    return found


# --- 4. demand --------------------------------------------------------------------------------------------------------


def _demand(queries: dict[str, Query], events: Sequence[Event], cut: tuple[float, float]) -> list[Violation]:
    sent = Counter(query.sent.application for query in queries.values())
    found = []
    least, most, gaps = counted_queries(events)
    for application, count in sorted(least.items()):
        if count > sent[application]:
            text = f"the gateway counted {count} queries of {application}; {sent[application]} were sent"
            found.append(Violation("demand", text))
    arrived = arrivals(events)
    for application, count in sorted(arrived.items()):
        if count > sent[application]:
            text = f"the control plane counted {count} queries of {application}; {sent[application]} were sent"
            found.append(Violation("demand", text))
    answered: Counter = Counter()
    # Answers after the last sample are in no counter that was seen.
    samples = {one.process: one.at for one in events if isinstance(one, Counted)}
    last = min(samples.values(), default=0.0)
    for query in queries.values():
        during = any(start <= query.end.at and query.sent.at <= end for start, end in (*gaps, cut))
        if query.end.end == "ok" and query.end.at <= last and not during:
            answered[query.sent.application] += 1
    for application, count in sorted(answered.items()):
        if most and most[application] < count:
            text = f"the gateway counted {most[application]} queries of {application}; it answered {count}"
            found.append(Violation("demand", text))
    return found


def counted_queries(events: Iterable[Event]) -> tuple[Counter, Counter, list[tuple[float, float]]]:
    """Queries that gateways counted, at least and at most, by application, and the spans in which one started anew.

    The first sample of each process is the one with which the others are compared. A process that starts anew begins at
    zero, or where its predecessor stopped.
    """
    least: Counter = Counter()
    most: Counter = Counter()
    gaps = []
    last: dict[str, Counted] = {}
    for event in events:
        if not isinstance(event, Counted):
            continue
        before = last.get(event.process)
        last[event.process] = event
        if before is None:
            continue
        anew = event.started != before.started
        if anew:
            gaps.append((before.at, event.at))
        for name, count in event.queries.items():
            more = count - before.queries.get(name, 0)
            least[name] += more if more >= 0 or not anew else count
            most[name] += count if anew else more
    return least, most, gaps


def arrivals(events: Iterable[Event]) -> Counter:
    total: Counter = Counter()
    for event in {event.entry: event for event in events if isinstance(event, Arrived)}.values():
        total.update(event.queries)
    return total
