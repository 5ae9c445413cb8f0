"""InfAdapter's network and the regressions on its own task.

Tested are inputs, margins, and days that nothing was fitted to.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks.minute import comparison, fit, lstm, stream
from scheduler.control import learned

pytestmark = pytest.mark.wide

published = pytest.mark.skipif(not stream.PUBLISHED.is_dir(), reason=f"no published traces at {stream.PUBLISHED}")


def test_windows_hold_the_ten_minutes_before_and_the_minute_after():
    seconds = np.arange(1000.0)
    at = np.array([600, 660])
    assert stream.maxima(seconds, at).tolist() == [659, 719]
    assert stream.minutes_before(seconds, at)[0].tolist() == [59 + 60 * minute for minute in range(10)]
    assert fit.mean_after(seconds, at, 10).tolist() == [604.5, 664.5]
    assert (fit.inputs_at(seconds, at)[1] == learned.inputs(seconds[480:660, None])[0]).all()


def test_no_window_crosses_into_the_days_that_are_tested():
    at = stream.starts(1, stream.FITTED_DAYS)
    assert at[0] == stream.PAST_S
    assert at[-1] + stream.MINUTE_S == stream.FITTED_DAYS * stream.DAY_S


def test_the_network_is_the_papers():
    weights = {one.name: one.dims for one in onnx.load(lstm.MODEL).graph.initializer}
    assert list(weights["w"]) == [1, 4 * lstm.UNITS, 1]
    assert list(weights["r"]) == [1, 4 * lstm.UNITS, lstm.UNITS]
    steady = np.array([[rate] * 10 for rate in (50.0, 100.0, 200.0)])
    found = lstm.predict(steady)
    assert found.shape == (3,)
    assert (np.diff(found) > 0).all()


def test_the_export_computes_what_lstms_compute():
    random = np.random.default_rng(1)
    units = lstm.UNITS
    state = {
        "lstm.weight_ih_l0": random.normal(0, 0.5, (4 * units, 1)),
        "lstm.weight_hh_l0": random.normal(0, 0.3, (4 * units, units)),
        "lstm.bias_ih_l0": random.normal(0, 0.3, 4 * units),
        "lstm.bias_hh_l0": random.normal(0, 0.3, 4 * units),
        "dense.weight": random.normal(0, 0.5, (1, units)),
        "dense.bias": random.normal(0, 0.5, 1),
    }
    before = random.uniform(20, 300, (4, 10))
    hidden, cell = np.zeros((4, units)), np.zeros((4, units))
    for minute in before.T / lstm.SCALE:
        gates = minute[:, None] @ state["lstm.weight_ih_l0"].T + state["lstm.bias_ih_l0"]
        i, f, g, o = np.split(gates + hidden @ state["lstm.weight_hh_l0"].T + state["lstm.bias_hh_l0"], 4, axis=1)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        cell = f * cell + i * np.tanh(g)
        hidden = o * np.tanh(cell)
    expected = (hidden @ state["dense.weight"].T + state["dense.bias"])[:, 0] * lstm.SCALE
    assert lstm.predict(before, lstm.as_onnx(state)) == pytest.approx(expected, rel=1e-3, abs=1e-2)


def test_quantile_regression_leaves_its_share_above():
    random = np.random.default_rng(1)
    seen = np.column_stack([random.uniform(10, 100, 4000), np.ones(4000)])
    came = 2 * seen[:, 0] + 5 + random.exponential(10, 4000)
    for level in (0.5, 0.95):
        above = (came > seen @ fit.quantile_regression(seen, came, level)).mean()
        assert above == pytest.approx(1 - level, abs=0.02)


@published
def test_on_days_that_nothing_was_fitted_to_the_regressions_are_nearer_than_the_network():
    found = dict(comparison.measure())
    network, last = found["LSTM of InfAdapter"], found["the last minute's maximum"]
    assert network.mae < last.mae
    for name in ("`minute`, as it starts", "`minute`, refitted each minute"):
        assert found[name].mae < 7.5 < network.mae
        assert found[name].pinball < last.pinball
        assert 0.93 < found[name].covered < 0.97


def test_rolling_origin_fits_to_earlier_days_alone(monkeypatch):
    random = np.random.default_rng(1)
    seconds = random.poisson(50.0, 3 * stream.DAY_S).astype(float)
    monkeypatch.setattr(comparison, "rates", lambda: seconds)
    name = "the last minute's maximum"
    steady = dict(comparison.rolling(2, 2))[name]
    # The margin was fitted to a steady day, and the day that is forecast is wild.
    seconds[stream.DAY_S : 2 * stream.DAY_S] *= random.choice([0.5, 3.0], stream.DAY_S)
    wild = dict(comparison.rolling(2, 2))
    assert wild[name].covered < 0.9 < steady.covered
    # Later days change nothing.
    seconds[2 * stream.DAY_S :] = 0.0
    assert dict(comparison.rolling(2, 2)) == wild
