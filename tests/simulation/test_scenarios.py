"""The front door: what a scenario file may say, and what it is told when it says something else."""

from __future__ import annotations

import gzip

import pytest

from scheduler.simulation import ScenarioError, load
from scheduler.simulation.profiles import padded
from workers.batching.latency import LatencyModel

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
    "not a number": ("profile_noise = nan\n" + SCENARIO, "profile_noise: must be a number", "nan"),
    "bad batches": ("batches = [0]\n" + SCENARIO, "batches: must be a list of whole numbers of at least 1", "[0]"),
    "no such column": (SCENARIO.replace("p50_ms", "p51_ms"), "latency: ", "Is 'p50_ms' meant?"),
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
    "period": (SCENARIO.replace("period_s = 2", "period_s = 0"), "control.period_s: must be a number from 0.1", ""),
    "a table for a number": (SCENARIO + "[load_time_s]\na = 1\n", "load_time_s: must be a number", ""),
    "a number for a table": ("devices = 3\n" + SCENARIO.replace("[devices]\ncpu = 2\ngpu = 1", ""), "devices: ", "3"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_scenario_is_told_its_field_and_limit(case, tmp_path):
    text, *expected = BAD[case]
    with pytest.raises(ScenarioError) as error:
        load(files(tmp_path, text, trace_csv=TRACE))
    assert any(all(part in fault for part in expected) for fault in error.value.faults), error.value.faults


def test_all_faults_are_told_together(tmp_path):
    text = "load_time_s = -1\nnetwork_ms = -1\n" + SCENARIO.replace("period_s = 2", "period_s = 0")
    with pytest.raises(ScenarioError) as error:
        load(files(tmp_path, text))
    assert len(error.value.faults) == 3


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("2,dogs", "line 5 of"),
        ("1,faces", "must be at least 1.5"),
        ("-1,faces", "must be at least"),
        ("x,faces", "needs arrival_ms as a number"),
        ("nan,faces", "must be at least"),
        ("7", "needs arrival_ms"),
    ],
)
def test_a_bad_line_of_a_trace_is_named(line, told, tmp_path):
    with pytest.raises(ScenarioError, match="trace: line 5 of") as error:
        load(files(tmp_path, traced("trace.csv"), trace_csv=TRACE + line + "\n"))
    assert told in str(error.value)


def test_a_packed_trace_that_is_cut_short_is_no_trace(tmp_path):
    (tmp_path / "trace.csv.gz").write_bytes(gzip.compress(TRACE.encode())[:-12])
    with pytest.raises(ScenarioError, match="cannot be read"):
        load(files(tmp_path, traced("trace.csv.gz")))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("faces,small,90,cpu,8,-1,1,1", "p50_ms above 0"),
        ("faces,small,90,cpu,0,1,1,1", "batch must be at least 1"),
        ("faces,small,90,cpu,x,1,1,1", "must be numbers"),
        ("faces,small,91,cpu,8,1,1,1", "90 further up"),
        ("faces,small,90,cpu,4,1,1,1", "twice"),
        ("faces,small,190,cpu,4,1,1,1", "from 0 to 100"),
        ("faces,small,90,cpu,8,nan,1,1", "p50_ms above 0"),
    ],
)
def test_a_bad_line_of_the_profiles_is_named(line, told, tmp_path):
    path = files(tmp_path)
    (tmp_path / "profiles.csv").write_text(PROFILES + line + "\n")
    with pytest.raises(ScenarioError, match="profiles: line 10 of") as error:
        load(path)
    assert told in str(error.value)


def test_planners_see_the_padding_that_devices_pay():
    points = ((1, 0.01), (2, 0.02), (8, 0.05))
    device, planner = LatencyModel(points, interpolate=False), LatencyModel(padded(points))
    assert [planner.seconds(n) for n in range(1, 9)] == pytest.approx([device.seconds(n) for n in range(1, 9)])
