"""Latency of any batch size from a profile."""

from __future__ import annotations

import pytest

from workers.dispatch.latency import LatencyModel


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
