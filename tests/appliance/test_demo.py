"""The demo as a new user starts it.

It registers, profiles and serves. In bursts it gives up accuracy rather than answers in time.
"""

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


def reports(demo, application) -> list[dict]:
    """The load's lines about an application, each of ten seconds."""
    found = [line for line in demo.events("load") if line.get("process") == "load" and "variants" in line]
    return [line for line in found if line["application"] == application.name]


def several_variants(lines: list[dict]) -> bool:
    return len({name for line in lines for name in line["variants"]}) >= 2


def test_a_burst_changes_variants_by_a_new_plan(demo):
    def burst_came() -> bool:
        lines = [reports(demo, each) for each in applications()]
        # The demo takes all cores for as long as it runs: one application's burst will do in the short form.
        return any(map(several_variants, lines)) and any(plan["trigger"] == "burst" for plan in demo.events("plan"))

    eventually(burst_came, 600, every=1, why="a burst changes variants")
    for application in applications():
        eventually(
            lambda name=application: any(line["in_time"] for line in reports(demo, name)), 600, why="answers in time"
        )


@pytest.mark.long
def test_bursts_come_to_each_application_and_most_answers_stay_in_time(demo):
    eventually(
        lambda: all(
            several_variants(lines) and max(line["t"] for line in lines) >= 30
            for lines in (reports(demo, each) for each in applications())
        ),
        600,
        every=1,
        why="bursts change variants of all",
    )
    for application in applications():
        lines = reports(demo, application)
        sent, in_time = sum(line["sent"] for line in lines), sum(line["in_time"] for line in lines)
        # Far from what refusing each burst would leave. Long tests run alone: on a busy machine it would not hold.
        assert in_time >= 0.7 * sent


def test_ctrl_c_stops_the_load_first(demo):
    demo.stop(signal.SIGINT)
    assert demo.process.returncode == 0
    order = [line["service"] for line in demo.events("service_stopped")]
    assert order[0] == "load" and order[-1] == "redis"
    assert not [line for line in demo.events("service_failed")]
    eventually(lambda: not demo.group_members(), why="no process left")
