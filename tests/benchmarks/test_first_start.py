"""Figures by which the demo's first start is judged.

They are ends of queries by minute, and promises with their outcomes.
"""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks import first_start

pytestmark = pytest.mark.wide

PAGE = """# TYPE nereus_gateway_queries_total counter
nereus_gateway_queries_total{application="a",outcome="in_time"} 7.0
nereus_gateway_queries_total{application="b",outcome="in_time"} 2.0
nereus_gateway_queries_total{application="b",outcome="late"} 1.0
# TYPE nereus_gateway_held gauge
nereus_gateway_held 5.0
"""


def test_ends_are_counted_over_all_applications():
    found = first_start.counts(PAGE)
    assert found == {"in_time": 9, "late": 1}
    assert first_start.row(1, found - Counter(in_time=4))["violations %"] == pytest.approx(100 / 6)
    assert first_start.row(2, Counter())["violations %"] == 0


def test_promises_count_where_something_came_to_compare_with():
    figures = {"accuracy": {"interval": [98.0, 100.0]}, "violations": {"interval": [0.0, 0.01]}}
    promises = [
        {"expected": {"a": figures}, "observed": {"a": {"accuracy": 99.0, "violations": 0.02}}},
        {"expected": {"a": figures, "b": figures}, "observed": {"a": {"accuracy": None, "violations": 0.0}}},
        {"expected": {"a": figures}, "observed": {}},
    ]
    assert first_start.held(promises) == [
        {"figure": "accuracy", "compared": 1, "held": 1},
        {"figure": "violations", "compared": 2, "held": 1},
    ]


def test_a_length_out_of_bounds_is_refused(capsys):
    with pytest.raises(SystemExit):
        first_start.main(["--minutes", "0"])
    assert "--minutes: must be from 1 to 240, not 0" in capsys.readouterr().err
