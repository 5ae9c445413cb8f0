"""Run times of batches in a simulation that differ from their profiles."""

from __future__ import annotations

from scheduler.simulation.run_times import RunTimes
from scheduler.simulation.scenario import load

from .worlds import SCENARIO, files, model, world

ONE = model("q", "m", cpu={1: 20})


def run_times(**options) -> RunTimes | None:
    return RunTimes.of(world([ONE], [(0.0, "q")], **options))


def test_without_noise_errors_and_stalls_profiles_hold():
    assert run_times() is None


def test_a_wrong_profile_is_wrong_by_one_factor_for_each_variant_and_type():
    times = run_times(profile_error=0.5, seed=1)
    pairs = [(f"q/{i}", kind) for i in range(40) for kind in ("cpu", "gpu")]
    factors = [times.factor(*pair) for pair in pairs]
    assert len(set(factors)) == len(pairs)
    assert 0.5 <= min(factors) < 0.7 and 1.3 < max(factors) <= 1.5
    assert all(times.draw(*pair, 0.1) == 0.1 * factor for pair, factor in zip(pairs, factors, strict=True))
    # Whatever is asked for first.
    again = run_times(profile_error=0.5, seed=1)
    assert [again.factor(*pair) for pair in reversed(pairs)] == factors[::-1]
    assert run_times(profile_error=0.5, seed=2).factor(*pairs[0]) != factors[0]


def test_one_batch_in_so_many_stalls():
    times = run_times(stall_s=0.5, stall_every=100.0)
    took = [times.draw("q/m", "cpu", 0.02) for _ in range(5000)]
    assert set(took) == {0.02, 0.52}
    assert 25 <= took.count(0.52) <= 75
    assert {run_times(stall_s=0.5, stall_every=1.0).draw("q/m", "cpu", 0.02) for _ in range(5)} == {0.52}


def test_the_noise_is_the_same_with_and_without_stalls():
    noisy, both = run_times(profile_noise=0.1), run_times(profile_noise=0.1, stall_s=9.0, stall_every=10.0)
    pairs = [(noisy.draw("q/m", "cpu", 0.02), both.draw("q/m", "cpu", 0.02)) for _ in range(200)]
    assert all(quiet == stalled or stalled == quiet + 9.0 for quiet, stalled in pairs)
    assert any(quiet != stalled for quiet, stalled in pairs)


def test_a_scenario_says_them_in_its_file(tmp_path):
    scenario = load(files(tmp_path, "profile_error = 0.5\nstall_ms = 500\nstall_every = 20\n" + SCENARIO))
    assert (scenario.profile_error, scenario.stall_s, scenario.stall_every) == (0.5, 0.5, 20.0)
    scenario = load(files(tmp_path))
    assert (scenario.profile_error, scenario.stall_s, scenario.stall_every) == (0, 0, 100)
