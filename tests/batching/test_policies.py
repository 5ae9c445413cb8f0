"""The registry of policies and what it says of wrong options."""

from __future__ import annotations

import pytest

from workers.batching.latency import LatencyModel
from workers.batching.policies import check, create, names, options
from workers.protocol.specs import DEFAULT_POLICY


def test_the_registry_names_every_policy_default_first():
    assert names() == ["nereus", "proteus", "nexus", "clipper", "fixed"]
    assert names()[0] == DEFAULT_POLICY


@pytest.mark.parametrize("name", names())
def test_every_policy_works_with_no_options_and_with_all_of_them(name):
    limits = options(name)
    for given in ({}, {k: o.low for k, o in limits.items()}, {k: o.high for k, o in limits.items()}):
        assert check(name, given) == []
        create(name, given)


@pytest.mark.parametrize(
    ("name", "given", "error"),
    [
        ("aimd", {}, "policy: unknown batch policy 'aimd'; known: nereus, proteus, nexus, clipper, fixed"),
        (None, {}, "policy: unknown batch policy None; known: nereus, proteus, nexus, clipper, fixed"),
        (["fixed"], {}, "policy: unknown batch policy ['fixed']; known: nereus, proteus, nexus, clipper, fixed"),
        ("fixed", [1], "options: must be an object of numbers, not list"),
        ("fixed", None, "options: must be an object of numbers, not NoneType"),
        ("proteus", {"batch": 1}, "options.batch: unknown option; this policy takes: none"),
        ("fixed", {"size": 1}, "options.size: unknown option; this policy takes: batch, timeout_ms"),
        ("fixed", {"batch": 0}, "options.batch: must be a whole number from 1 to 4096, not 0"),
        ("fixed", {"batch": 1.5}, "options.batch: must be a whole number from 1 to 4096, not 1.5"),
        ("fixed", {"batch": True}, "options.batch: must be a whole number from 1 to 4096, not True"),
        ("fixed", {"batch": "8"}, "options.batch: must be a whole number from 1 to 4096, not '8'"),
        ("fixed", {"batch": None}, "options.batch: must be a whole number from 1 to 4096, not None"),
        ("fixed", {"timeout_ms": -1}, "options.timeout_ms: must be a number from 0 to 600000, not -1"),
        ("fixed", {"timeout_ms": float("nan")}, "options.timeout_ms: must be a number from 0 to 600000, not nan"),
        ("clipper", {"backoff": 1}, "options.backoff: must be a number from 0.1 to 0.99, not 1"),
        ("nexus", {"batch": float("inf")}, "options.batch: must be a whole number from 1 to 4096, not inf"),
    ],
)
def test_wrong_names_and_options_are_refused_with_the_field_and_the_limit(name, given, error):
    assert check(name, given) == [error]
    if given is not None:
        with pytest.raises(ValueError) as raised:
            create(name, given)
        assert str(raised.value) == error


def test_all_errors_are_told_at_once_and_huge_values_are_cut():
    errors = check("fixed", {"batch": 10**400, "timeout_ms": "x" * 1000})
    assert len(errors) == 2
    assert all(len(error) < 200 for error in errors)


def test_whole_numbers_may_come_as_floats():
    assert check("fixed", {"batch": 8.0}) == []


def test_each_lane_gets_a_policy_of_its_own():
    assert create("clipper") is not create("clipper")


class TestLatencyModel:
    POINTS = [(8, 0.09), (2, 0.03), (4, 0.05)]

    def test_between_profiled_sizes_it_is_linear_below_the_smallest_it_costs_that(self):
        model = LatencyModel(self.POINTS)
        assert [round(model.seconds(rows), 6) for rows in range(9)] == [
            0.0, 0.03, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09,
        ]  # fmt: skip

    def test_with_padding_a_size_costs_what_the_next_larger_costs(self):
        model = LatencyModel(self.POINTS, interpolate=False)
        assert [model.seconds(rows) for rows in (1, 3, 5)] == [0.03, 0.05, 0.09]

    def test_beyond_the_largest_it_works_in_pieces(self):
        assert LatencyModel(self.POINTS).seconds(20) == pytest.approx(2 * 0.09 + 0.05)

    def test_least_and_ceiling_hold_where_a_larger_batch_is_quicker(self):
        model = LatencyModel([(1, 0.05), (2, 0.04), (4, 0.08)])
        assert model.least == 0.04
        assert [model.ceiling(rows) for rows in (1, 2, 4)] == [0.05, 0.05, 0.08]
        assert all(model.ceiling(20) >= model.seconds(rows) for rows in range(21))

    @pytest.mark.parametrize(
        "points", [[], [(0, 0.1)], [(1, 0.0)], [(1, float("nan"))], [(1, float("inf"))], [(1, 0.1), (1, 0.2)]]
    )
    def test_what_is_no_profile_is_refused(self, points):
        with pytest.raises(ValueError, match="points"):
            LatencyModel(points)
