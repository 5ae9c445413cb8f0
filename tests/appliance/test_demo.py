"""The demo as a new user starts it: registers, profiles, serves, and gives accuracy way in bursts, not punctuality."""

from __future__ import annotations

import signal

import pytest

from appliance.demo.manifest import applications
from tests.running import RunningAppliance, eventually


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    appliance = RunningAppliance(tmp_path_factory.mktemp("demo") / "home", "--demo").start()
    try:
        yield appliance
    finally:
        appliance.stop()
        print(appliance.log()[-8000:])


def test_every_variant_is_profiled_and_its_accuracy_measured_as_published(demo):
    eventually(lambda: "load runs" in demo.read(), 800, every=1, why="the demo's load starts")
    with demo.rest() as client:
        for application in applications():
            found = {v["name"]: v for v in client.get(f"/applications/{application.name}/variants/").json()["results"]}
            assert len(found) >= 4
            for variant in application.variants:
                assert found[variant.name]["accuracy_source"] == "measured"
                assert found[variant.name]["accuracy"] == pytest.approx(variant.accuracy, abs=0.5)


def test_bursts_change_variants_by_new_plans_and_most_answers_stay_in_time(demo):
    def reports(application):
        found = [line for line in demo.events("load") if line.get("process") == "load" and "variants" in line]
        return [line for line in found if line["application"] == application.name]

    def bursts_came() -> bool:
        """Each application was answered by several variants in half a minute or more, and a burst made a plan."""
        lines = [reports(each) for each in applications()]
        return (
            all(len({name for line in mine for name in line["variants"]}) >= 2 for mine in lines)
            and all(max(line["t"] for line in mine) >= 30 for mine in lines)
            and any(plan["trigger"] == "burst" for plan in demo.events("plan"))
        )

    # One comes once a minute to each application.
    eventually(bursts_came, every=1, why="bursts change variants")
    for application in applications():
        lines = reports(application)
        sent, in_time = sum(line["sent"] for line in lines), sum(line["in_time"] for line in lines)
        # Not a measure of speed (benchmarks are): far from what refusing each burst would leave.
        assert in_time >= 0.7 * sent


def test_ctrl_c_stops_the_load_first(demo):
    demo.stop(signal.SIGINT)
    assert demo.process.returncode == 0
    order = [line["service"] for line in demo.events("service_stopped")]
    assert order[0] == "load" and order[-1] == "redis"
    assert not [line for line in demo.events("service_failed")]
    eventually(lambda: not demo.group_members(), why="no process left")
