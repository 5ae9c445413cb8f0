"""The checker passes histories of a correct server, and finds each fault that is planted in one."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.faults import history
from benchmarks.faults.checker import check, queries_of
from benchmarks.faults.history import Arrived, Counted, Ended, Event, Follows, Planned, Sent
from benchmarks.faults.running import costs
from tests.examples import examples

pytestmark = pytest.mark.wide

APPLICATIONS, DEVICES = ("left", "right"), ("cpu0", "cpu1")
ACCURACY = {f"{name}/{variant}": 70.0 + 10 * i for name in APPLICATIONS for i, variant in enumerate("abc")}


@dataclass
class Server:
    """A correct server's history: plans each 10 s, queries each 0.1 s, counters each second, a restart."""

    plans: list[set[tuple[str, str, str]]]
    choices: list[int]
    restart: int
    cut: int

    def events(self) -> list[Event]:
        found: list[Event] = [Counted("gateway", 0.0, {})]
        counts, started = dict.fromkeys(APPLICATIONS, 0), 0.0
        for version, allowed in enumerate(self.plans, 1):
            at = 10.0 * (version - 1)
            found.append(Planned(version, at, f"digest{version}", tuple(sorted(allowed)), ACCURACY))
            found += [Follows(member, version, at + 1.0) for member in ("gateway", *DEVICES)]
        for number, choice in enumerate(self.choices):
            at = 2.0 + 0.1 * number
            plan = sorted(self.plans[min(int(at / 10), len(self.plans) - 1)])
            application, variant, device = plan[choice % len(plan)]
            found.append(Sent(f"q{number}", application, "http", at))
            ended = at + 0.05
            counts[application] += 1
            if number == self.cut:
                found.append(Ended(f"q{number}", ended, "unknown", note="connection lost"))
            else:
                accuracy = ACCURACY[f"{application}/{variant}"]
                found.append(Ended(f"q{number}", ended, "ok", 200, f"q{number}", variant, device, accuracy))
            if number % 10 == 9:
                found.append(Counted("gateway", ended + 0.001, dict(counts), started))
                found.append(Arrived(f"{number}-0", "gateway", self._second(number)))
            if number == self.restart:
                counts, started = dict.fromkeys(APPLICATIONS, 0), 1.0
        found.append(Counted("gateway", 3.0 + 0.1 * len(self.choices), dict(counts), started))
        return sorted(found, key=lambda event: getattr(event, "at", 0.0))

    def _second(self, number: int) -> dict[str, int]:
        """Arrivals of the last ten queries; those of the second with the restart are lost."""
        if number - 10 < self.restart <= number:
            return {}
        found = dict.fromkeys(APPLICATIONS, 0)
        for one in range(number - 9, number + 1):
            plan = sorted(self.plans[min(int((2.0 + 0.1 * one) / 10), len(self.plans) - 1)])
            found[plan[self.choices[one] % len(plan)][0]] += 1
        return found

    def check(self, events: list[Event]) -> set[str]:
        at = 2.0 + 0.1 * self.cut
        return {violation.rule for violation in check(events, at, at + 0.1)}


#: each application has a variant in each plan
PLANS = st.lists(
    st.tuples(*(st.tuples(st.just(name), st.sampled_from("abc"), st.sampled_from(DEVICES)) for name in APPLICATIONS)),
    min_size=2,
    max_size=3,
).map(lambda plans: [set(plan) for plan in plans])
SERVERS = st.builds(
    Server,
    PLANS,
    st.lists(st.integers(0, 5), min_size=40, max_size=200),
    restart=st.integers(0, 30),
    cut=st.integers(0, 30),
)


@given(SERVERS)
def test_a_correct_server_passes(server):
    assert server.check(server.events()) == set()


CUT_ELSEWHERE = [Sent("late", "left", "http", 500.0), Ended("late", 501.0, "unknown")]


def _answer(events: list[Event], server: Server) -> int:
    return next(i for i, one in enumerate(events) if isinstance(one, Ended) and one.end == "ok" and one.at > 5.2)


def _replaced(events: list[Event], server: Server, **changes) -> None:
    place = _answer(events, server)
    events[place] = msgspec.structs.replace(events[place], **changes)


def _old_plan(events, server):
    """Answer with a variant of the first plan alone long after the gateway followed the next one."""
    events[:] = [one for one in events if not isinstance(one, Planned)]
    events.append(Planned(1, 0.0, "digest1", (("left", "old", "cpu0"),)))
    events.append(Planned(2, 0.0, "digest2", tuple({key for plan in server.plans for key in plan})))
    events.append(Sent("old", "left", "http", 500.0))
    events.append(Ended("old", 501.0, "ok", 200, "old", "old", "cpu0"))


def _count_twice(events, server):
    last = max((one for one in events if isinstance(one, Counted)), key=lambda one: one.at)
    events.append(Counted("gateway", 500.0, {**last.queries, "left": last.queries["left"] + 300}, last.started))


def _forget_to_count(events, server):
    """Make the last counts those after the restart, which explains nothing that is missing."""
    events[:] = [one for one in events if not isinstance(one, Counted)]
    events += [Counted("gateway", 0.0, {"left": 0}), Counted("gateway", 500.0, {"left": 1})]


@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (lambda events, server: events.pop(_answer(events, server)), "one answer"),
        (lambda events, server: events.append(events[_answer(events, server)]), "one answer"),
        (lambda events, server: _replaced(events, server, answer_id="q999"), "one answer"),
        (lambda events, server: _replaced(events, server, right=False), "one answer"),
        (lambda events, server: _replaced(events, server, id="q999"), "one answer"),
        (lambda events, _: events.extend(CUT_ELSEWHERE), "one answer"),
        (lambda events, server: _replaced(events, server, variant="z"), "allowed variant"),
        (lambda events, server: _replaced(events, server, device="cpu9"), "allowed variant"),
        (lambda events, server: _replaced(events, server, accuracy=1.0), "allowed variant"),
        (_old_plan, "allowed variant"),
        (lambda events, _: events.append(Follows("cpu0", 1, 500.0)), "plan versions"),
        (lambda events, _: events.append(Planned(1, 500.0, "other", ())), "plan versions"),
        (_count_twice, "demand"),
        (_forget_to_count, "demand"),
        (lambda events, _: events.append(Arrived("again-0", "gateway", {"left": 300})), "demand"),
    ],
)
@examples(10)
@given(server=SERVERS)
def test_a_planted_fault_is_found(plant, rule, server):
    events = server.events()
    plant(events, server)
    assert rule in server.check(events)


def test_a_version_of_zero_is_no_plan():
    assert check([Follows("gateway", 5, 1.0), Follows("gateway", 0, 2.0), Follows("gateway", 5, 3.0)]) == []


@pytest.mark.parametrize(
    ("versions", "unstored", "right"),
    [
        # By second, from 1.0 on.
        ([5, 6, 5, 7], (1.5, 2.5), True),
        ([5, 6, 5], (9.0, 9.5), False),
        # Stored before.
        ([5, 6, 4], (1.5, 2.5), False),
        ([5, 6, 5], (2.5, 2.8), False),
        # Lost once, at the end.
        ([5, 7, 6, 5], (1.5, 3.5), False),
        ([5, 6, 5, 6, 5], (1.5, 2.5), False),
    ],
)
def test_a_member_may_lose_only_plans_that_it_could_not_store(versions, unstored, right):
    events = [Follows("cpu0", version, 1.0 + second) for second, version in enumerate(versions)]
    assert [one.rule for one in check(events, unstored=unstored)] == ([] if right else ["plan versions"])


def test_a_gateway_may_answer_by_the_plan_that_it_had_stored():
    def planned(version: int, variant: str) -> Planned:
        return Planned(
            version, float(version), f"digest{version}", (("left", variant, "cpu0"),), {f"left/{variant}": 80.0}
        )

    events = [
        planned(5, "a"),
        Follows("gateway", 5, 5.5),
        planned(6, "b"),
        Follows("gateway", 6, 8.0),
        Follows("gateway", 5, 12.0),
        Sent("q", "left", "http", 13.0),
        Ended("q", 13.1, "ok", 200, "q", "a", "cpu0", 80.0),
    ]
    assert check(events, unstored=(7.0, 10.0)) == []
    assert {one.rule for one in check(events)} == {"plan versions", "allowed variant"}


# --- figures ----------------------------------------------------------------------------------------------------------


def _queries(ok: list[bool]) -> list:
    events: list[Event] = []
    for number, answered in enumerate(ok):
        at = 100.0 + 0.05 * number
        events.append(Sent(f"q{number}", "left", "http", at))
        events.append(Ended(f"q{number}", at + 0.02, "ok" if answered else "fail", accuracy=80.0))
    return queries_of(events)


def test_costs_of_an_outage():
    queries = _queries([True] * 20 + [False] * 20 + [True] * 40)
    cost = costs(queries, 0.4, 100.0, 200.0)["left"]
    assert (cost.sent, cost.refused, cost.unknown, cost.late) == (80, 20, 0, 0)
    assert cost.lost_s == pytest.approx(1.0, abs=0.11)
    assert cost.back_s == pytest.approx(2.0, abs=0.11)
    # Counted from later on, too.
    assert costs(queries, 0.4, 101.5, 200.0)["left"].back_s == pytest.approx(0.5, abs=0.11)


def test_service_that_never_returns_has_no_time():
    assert costs(_queries([True] * 20 + [False] * 20), 0.4, 100.0, 200.0)["left"].back_s is None
    assert costs(_queries([True] * 60), 0.4, 100.0, 200.0)["left"].back_s == 0.0


def test_a_file_that_grows_is_read_by_whole_lines(tmp_path):
    path = tmp_path / "events.jsonl"
    sent = Sent("q", "left", "http", 1.0)
    path.write_bytes(history.line(sent) + b'{"type":"en')
    tail = history.Tail(path)
    assert list(tail.new()) == [sent]
    history.write(path, [sent, Ended("q", 2.0, "ok")])
    assert list(tail.new()) == [Ended("q", 2.0, "ok")]
    assert history.read(path) == [sent, Ended("q", 2.0, "ok")]
