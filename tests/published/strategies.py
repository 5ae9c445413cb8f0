"""Random profiles and arrivals for the property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.published.driver import Query
from workers.dispatch.latency import LatencyModel
from workers.dispatch.published.policy import Candidate

ms = st.floats(0.1, 100.0, allow_nan=False).map(lambda value: value / 1000)


@st.composite
def candidates(draw, rising: bool = False) -> Candidate:
    """Draw a variant with a measured-looking profile.

    Args:
        rising: larger batches take no less time; otherwise they may have been measured quicker.
    """
    batches = [1, 2, 4, 8, 16][: draw(st.integers(1, 5))]
    seconds = draw(st.lists(ms, min_size=len(batches), max_size=len(batches)))
    if rising:
        seconds = sorted(seconds)
    latency = LatencyModel(list(zip(batches, seconds, strict=True)), interpolate=draw(st.booleans()))
    return Candidate(7, 90.0, latency, draw(st.integers(1, batches[-1])))


@st.composite
def arrivals(draw, most_rows: int = 20, most: int = 40) -> list[Query]:
    """Draw queries in bursts and lulls, with tight budgets or many rows for some."""
    slo = draw(st.floats(0.005, 0.4))
    own_budgets = draw(st.booleans())
    rows = st.integers(1, most_rows) if draw(st.booleans()) else st.just(1)
    now, queries = 0.0, []
    for i in range(draw(st.integers(1, most))):
        now += draw(st.sampled_from([0.0, 0.0, 0.001, 0.01, 0.1])) * draw(st.floats(0.1, 2.0))
        budget = draw(st.floats(0.0, 1.0)) * slo if own_budgets else slo
        queries.append(Query(i, now, now + budget, draw(rows)))
    return queries
