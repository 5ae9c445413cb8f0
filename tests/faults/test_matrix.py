"""The fault matrix on a real appliance: rows whose figures a busy machine cannot change, and all rows."""

import pytest

from benchmarks.faults import history
from benchmarks.faults.checker import queries_of
from benchmarks.faults.rows import QUICK, ROWS
from benchmarks.faults.running import results

pytestmark = pytest.mark.wide


def test_nothing_is_lost_or_counted_twice_when_an_executor_and_the_gateway_are_killed(tmp_path):
    (result,) = results([QUICK], tmp_path)
    assert not result.skipped and not result.wrong
    assert not result.violations, result.violations[:10]
    events = history.read(tmp_path / "quick.jsonl")
    (healed,) = [event.at for event in events if isinstance(event, history.Mark) and event.name == "healed"]
    answered = {
        query.sent.application for query in queries_of(events) if query.sent.at > healed and query.end.end == "ok"
    }
    assert answered == {"left", "right"}, "service returned"
    # The gateway was killed, and its successor counts.
    assert len({event.started for event in events if isinstance(event, history.Counted)}) == 2


@pytest.mark.long
@pytest.mark.parametrize("name", ROWS)
def test_row(name, tmp_path):
    (result,) = results([ROWS[name]], tmp_path)
    if result.skipped:
        pytest.skip(result.skipped)
    assert not result.violations, result.violations[:10]
    assert result.misses() == []
