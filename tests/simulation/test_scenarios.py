"""Scenario files: what they may say, and the errors that bad ones get."""

from __future__ import annotations

import gzip

import pytest

from scheduler.simulation import ScenarioError, arrivals, load, simulate
from scheduler.simulation.profiles import padded
from workers.dispatch.latency import LatencyModel

from .worlds import PROFILES, SCENARIO, files

TRACED = SCENARIO[: SCENARIO.index("[generator]")] + "[control]\nperiod_s = 2\n"
TRACE = "arrival_ms,application\n0,faces\n1.5,words\n1.5,faces\n"


def traced(trace: str) -> str:
    return f'trace = "{trace}"\n' + TRACED


def test_a_scenario_is_read_with_its_defaults(tmp_path):
    scenario = load(files(tmp_path))
    assert scenario.name == "tiny" and scenario.seed == 3
    assert scenario.devices == (("cpu-0", "cpu"), ("cpu-1", "cpu"), ("gpu-0", "gpu"))
    assert scenario.slo_s == {"faces": 0.2, "words": 0.2}
    assert (scenario.load_time_s, scenario.network_s, scenario.profile_noise) == (0, 0, 0)
    assert (scenario.control.period_s, scenario.control.burst_check_s, scenario.control.initial_qps) == (2, 1, 10)
    assert {m.id for m in scenario.models} == {"faces/small", "faces/large", "words/tiny", "words/big"}


def test_the_forecaster_is_one_that_there_is(tmp_path):
    assert load(files(tmp_path)).control.forecaster == "trend"
    chosen = load(files(tmp_path, SCENARIO.replace("[control]", '[control]\nforecaster = "minute"')))
    assert chosen.control.forecaster == "minute"
    with pytest.raises(ScenarioError, match=r"control\.forecaster: must be one of trend, minute, not 'lstm'"):
        load(files(tmp_path, SCENARIO.replace("[control]", '[control]\nforecaster = "lstm"')))


@pytest.mark.parametrize("forecaster", ["trend", "minute"])
def test_each_forecaster_plans_for_what_comes(tmp_path, forecaster):
    chosen = SCENARIO.replace("[control]", f'[control]\nforecaster = "{forecaster}"')
    summary = simulate(load(files(tmp_path, chosen)), "nereus").summary
    assert summary["queries"] > 0
    assert summary["violation_ratio"] < 0.2


def test_traces_are_read_plain_and_packed_from_beside_the_scenario(tmp_path):
    plain = load(files(tmp_path, traced("trace.csv"), trace_csv=TRACE)).arrivals
    (tmp_path / "trace.csv.gz").write_bytes(gzip.compress(TRACE.encode()))
    packed = load(files(tmp_path, traced("trace.csv.gz"))).arrivals
    assert plain == packed
    assert plain.times == [0, 0.0015, 0.0015]
    assert [plain.names[i] for i in plain.applications] == ["faces", "words", "faces"]


def test_only_the_listed_batches_and_the_named_column_are_used(tmp_path):
    scenario = load(files(tmp_path, "batches = [1, 4]\n" + SCENARIO.replace("p50_ms", "p90_ms")))
    small = next(m for m in scenario.models if m.name == "small")
    assert small.points == {"cpu": ((1, 0.011), (4, 0.017))}


def test_an_application_may_have_its_own_slo(tmp_path):
    scenario = load(files(tmp_path, SCENARIO.replace("default = 200", "default = 200\nwords = 50")))
    assert scenario.slo_s == {"faces": 0.2, "words": 0.05}


HUGE = f"1{'0' * 400}"
UNWRITABLE = f"0x{'f' * 5000}"
BAD = {
    "unknown key": ('sed = 1\n' + SCENARIO, "sed: unknown key", "Is 'seed' meant?"),
    "unknown control key": (SCENARIO + "periods = 1\n", "control.periods: unknown key", "'period_s'"),
    "unknown generator key": (SCENARIO.replace("qps", "qqps = 1\nqps"), "generator.qqps: unknown key", "'qps'"),
    "not toml": ("name = ", "is not TOML", ""),
    "no devices": (SCENARIO.replace("cpu = 2\ngpu = 1", ""), "devices: at least one", ""),
    "half a device": (SCENARIO.replace("cpu = 2", "cpu = 2.5"), "devices.cpu: must be a whole number from 0", "2.5"),
    "a device without profiles": (SCENARIO.replace("cpu = 2\ngpu = 1", "tpu = 1"), "no line with a device type", ""),
    "residents of nothing": (SCENARIO + "[max_resident]\nnpu = 1\n", "max_resident.npu", "no such device type"),
    "no resident at all": (SCENARIO + "[max_resident]\ncpu = 0\n", "max_resident.cpu: must be a whole number", "1"),
    "no slo": (SCENARIO.replace("default = 200", ""), "slo_ms: needs a default", ""),
    "slo of nobody": (SCENARIO.replace("default", "dogs = 1\ndefault"), "slo_ms.dogs: has no profile", "faces, words"),
    "slo of zero": (SCENARIO.replace("200", "0"), "slo_ms.default: must be a number from 0.001", ""),
    "negative load time": ("load_time_s = -1\n" + SCENARIO, "load_time_s: must be a number from 0 to 3600", "-1"),
    "a text for a number": ('network_ms = "1"\n' + SCENARIO, "network_ms: must be a number", "'1'"),
    "true is no number": ("profile_noise = true\n" + SCENARIO, "profile_noise: must be a number", "True"),
    "a profile that is wrong by all": ("profile_error = 1\n" + SCENARIO, "profile_error: must be a number", "0.9"),
    "not a number": ("profile_noise = nan\n" + SCENARIO, "profile_noise: must be a number", "nan"),
    "bad batches": ("batches = [0]\n" + SCENARIO, "batches: must be a list of whole numbers of at least 1", "[0]"),
    "no such column": (SCENARIO.replace("p50_ms", "p51_ms"), "has no column 'p51_ms'", "Is 'p50_ms' meant?"),
    "no profiles": (SCENARIO.replace('profiles = "profiles.csv"', ""), "profiles: is needed", ""),
    "profiles missing": (SCENARIO.replace("profiles.csv", "other.csv"), "profiles: ", "cannot be read"),
    "no arrivals": (TRACED, "either a trace or a [generator]", ""),
    "two sources": (traced("trace.csv") + SCENARIO[SCENARIO.index("[gen") : SCENARIO.index("[con")], "not both", ""),
    "trace missing": (traced("none.csv"), "trace: ", "cannot be read"),
    "kind": (SCENARIO.replace("poisson", "poison"), "generator.kind: must be one of", "Is 'poisson' meant?"),
    "shape": (SCENARIO.replace("qps", "shape = 2\nqps"), "generator.shape: belongs to kind = 'gamma'", ""),
    "no rate": (SCENARIO.replace("qps = 60", ""), "generator.qps: is needed", ""),
    "too much": (SCENARIO.replace("duration_s = 4", "duration_s = 4e6"), "generator.duration_s: ", "50000000"),
    "rates and qps": (SCENARIO.replace("[control]", "[generator.rates]\nfaces = 1\n[control]"), "generator.qps", ""),
    "a seed of many digits": (SCENARIO.replace("seed = 3", f"seed = {HUGE}"), "seed: must be a whole number", "401"),
    "a seed that cannot be written": (SCENARIO.replace("seed = 3", f"seed = {UNWRITABLE}"), "seed: must be", "digits"),
    "a seed that cannot be read": (SCENARIO.replace("seed = 3", f"seed = 1{'0' * 5000}"), "is not TOML", "digits"),
    "an endless slo": (SCENARIO.replace("200", HUGE), "slo_ms.default: must be a number from 0.001", ""),
    "endlessly many devices": (SCENARIO.replace("cpu = 2", f"cpu = {HUGE}"), "devices.cpu: must be", "100000"),
    "a path with NUL": (SCENARIO.replace("profiles.csv", "a\\u0000b"), "profiles: must not hold", "NUL"),
    "unknown stack": ('stack = "nerus"\n' + SCENARIO, "stack: must be one of", "Is 'nereus' meant?"),
    "batches of late binding": ('batching = "nexus"\n' + SCENARIO, "batching: nereus forms batches itself", ""),
    "unknown batching": ('batching = "nexsus"\n' + SCENARIO, "batching: must be one of", "Is 'nexus' meant?"),
    "period": (SCENARIO.replace("period_s = 2", "period_s = 0"), "control.period_s: must be a number from 0.1", ""),
    "a table for a number": (SCENARIO + "[load_time_s]\na = 1\n", "load_time_s: must be a number", ""),
    "a number for a table": ("devices = 3\n" + SCENARIO.replace("[devices]\ncpu = 2\ngpu = 1", ""), "devices: ", "3"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_scenario_is_reported_with_its_field_and_limit(case, tmp_path):
    text, *expected = BAD[case]
    with pytest.raises(ScenarioError) as error:
        load(files(tmp_path, text, trace_csv=TRACE))
    assert any(all(part in fault for part in expected) for fault in error.value.faults), error.value.faults


def test_all_faults_are_reported_together(tmp_path):
    text = "load_time_s = -1\nnetwork_ms = -1\n" + SCENARIO.replace("period_s = 2", "period_s = 0")
    with pytest.raises(ScenarioError) as error:
        load(files(tmp_path, text))
    assert len(error.value.faults) == 3


def test_what_one_fault_hides_is_reported_with_it(tmp_path):
    text = "stack = 3\nbatching = 'nexsus'\n" + SCENARIO.replace("cpu = 2", "cpu = -2").replace("poisson", "poison")
    with pytest.raises(ScenarioError) as error:
        load(files(tmp_path, text.replace("default = 200", "default = 200\ndogs = 1")))
    faults = error.value.faults
    assert [fault.split(":")[0] for fault in faults] == [
        "devices.cpu", "stack", "batching", "slo_ms.dogs", "generator.kind",
    ]  # fmt: skip


def test_a_trace_and_a_generator_are_looked_at_even_where_no_application_is_known(tmp_path):
    text = SCENARIO.replace("profiles.csv", "none.csv")
    with pytest.raises(ScenarioError) as error:
        load(files(tmp_path, text.replace("duration_s = 4", "duration_s = -4")))
    assert [fault.split(":")[0] for fault in error.value.faults] == ["profiles", "generator.duration_s"]
    with pytest.raises(ScenarioError) as error:
        load(files(tmp_path, traced("trace.csv").replace("profiles.csv", "none.csv"), trace_csv=TRACE + "x,faces\n"))
    assert [fault.split(":")[0] for fault in error.value.faults] == ["profiles", "trace"]


def test_a_file_that_is_not_there_is_named_once(tmp_path):
    with pytest.raises(ScenarioError) as error:
        load(files(tmp_path, traced("none.csv").replace("profiles.csv", "no.csv")))
    assert error.value.faults == [
        f"profiles: {tmp_path / 'no.csv'} cannot be read: No such file or directory",
        f"trace: {tmp_path / 'none.csv'} cannot be read: No such file or directory",
    ]


def test_files_may_begin_with_a_byte_order_mark(tmp_path):
    plain = load(files(tmp_path, traced("trace.csv"), trace_csv=TRACE))
    (tmp_path / "trace.csv").write_text(TRACE, encoding="utf-8-sig")
    (tmp_path / "profiles.csv").write_text(PROFILES, encoding="utf-8-sig")
    marked = load(tmp_path / "scenario.toml")
    assert (marked.arrivals, marked.models) == (plain.arrivals, plain.models)
    (tmp_path / "trace.csv.gz").write_bytes(gzip.compress(TRACE.encode("utf-8-sig")))
    (tmp_path / "scenario.toml").write_text(traced("trace.csv.gz"))
    assert load(tmp_path / "scenario.toml").arrivals == plain.arrivals


def test_a_trace_has_no_more_queries_than_a_scenario_can_hold(tmp_path, monkeypatch):
    monkeypatch.setattr(arrivals, "MOST_ARRIVALS", 3)
    path = files(tmp_path, traced("trace.csv"), trace_csv=TRACE)
    assert len(load(path).arrivals) == 3
    (tmp_path / "trace.csv").write_text(TRACE + "2,faces\n")
    with pytest.raises(ScenarioError, match=r"trace: line 5 of .*: a trace can have at most 3 queries"):
        load(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2,dogs", "line 5 of"),
        ("1763700000000,faces", "at most 10000000000, counted from the scenario's start, not '1763700000000'"),
        ("1,faces", "must be at least 1.5"),
        ("-1,faces", "must be at least"),
        ("x,faces", "needs arrival_ms as a number"),
        ("nan,faces", "must be at least"),
        ("7", "needs arrival_ms"),
    ],
)
def test_a_bad_line_of_a_trace_is_named(line, message, tmp_path):
    with pytest.raises(ScenarioError, match="trace: line 5 of") as error:
        load(files(tmp_path, traced("trace.csv"), trace_csv=TRACE + line + "\n"))
    assert message in str(error.value)


def test_a_packed_trace_that_is_cut_short_is_no_trace(tmp_path):
    (tmp_path / "trace.csv.gz").write_bytes(gzip.compress(TRACE.encode())[:-12])
    with pytest.raises(ScenarioError, match="cannot be read"):
        load(files(tmp_path, traced("trace.csv.gz")))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("faces,small,90,cpu,8,-1,1,1", "p50_ms above 0"),
        ("faces,small,90,cpu,0,1,1,1", "batch must be at least 1"),
        ("faces,small,90,cpu,x,1,1,1", "must be numbers"),
        ("faces,small,91,cpu,8,1,1,1", "90 further up"),
        ("faces,small,90,cpu,4,1,1,1", "twice"),
        ("faces,small,190,cpu,4,1,1,1", "from 0 to 100"),
        ("faces,small,90,cpu,8,nan,1,1", "p50_ms above 0"),
        ("faces,small,90,cpu,8,3600001,1,1", "at most 3600000"),
        ("faces,small,90,cpu,65537,1,1,1", "at most 65536"),
        (f"faces,small,90,cpu,1{'0' * 400},1,1,1", "at most 65536"),
        (f"faces,small,90,cpu,1{'0' * 5000},1,1,1", "must be numbers"),
        (",small,90,cpu,8,1,1,1", "application must not be empty"),
        ("faces, ,90,cpu,8,1,1,1", "variant must not be empty"),
    ],
)
def test_a_bad_line_of_the_profiles_is_named(line, message, tmp_path):
    path = files(tmp_path)
    (tmp_path / "profiles.csv").write_text(PROFILES + line + "\n")
    with pytest.raises(ScenarioError, match="profiles: line 10 of") as error:
        load(path)
    assert message in str(error.value)


def test_variants_that_nothing_would_distinguish_are_refused_with_their_line(tmp_path):
    path = files(tmp_path)
    text = PROFILES + "a/b,c,90,cpu,1,10,11,10\na,b/c,95,cpu,1,10,11,10\n"
    (tmp_path / "profiles.csv").write_text(text)
    with pytest.raises(ScenarioError, match="line 11 of") as error:
        load(path)
    assert "variant 'b/c' of application 'a' and variant 'c' of 'a/b'" in str(error.value)


def test_a_packed_trace_that_is_damaged_is_no_trace(tmp_path):
    packed = bytearray(gzip.compress((TRACE + "2,faces\n3,words\n" * 1000).encode()))
    packed[20:40] = bytes(20)
    (tmp_path / "trace.csv.gz").write_bytes(packed)
    with pytest.raises(ScenarioError, match="cannot be read"):
        load(files(tmp_path, traced("trace.csv.gz")))


def test_planners_see_the_padding_that_devices_pay():
    points = ((1, 0.01), (2, 0.02), (8, 0.05))
    device, planner = LatencyModel(points, interpolate=False), LatencyModel(padded(points))
    assert [planner.seconds(n) for n in range(1, 9)] == pytest.approx([device.seconds(n) for n in range(1, 9)])
