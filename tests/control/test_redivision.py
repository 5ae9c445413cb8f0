"""A node's cores become other devices; plans keep to the devices that serve until the new ones can."""

from __future__ import annotations

import pytest
from django.test import Client

from registry import dividing
from registry.errors import Conflict
from registry.models import AuditEntry, Device, Node, Profile, ProfileJob
from registry.profiling import known_device_types, order_missing
from scheduler.control import redivision
from scheduler.control.assemble import available_devices
from scheduler.control.planner import make_plan
from scheduler.members import contents, devices
from scheduler.models import Plan
from scheduler.profiling import dispatch, results
from tests.accounts import account, bearer
from tests.control.world import KIND, application, node, variant
from workers.protocol import control
from workers.protocol.specs import DeviceInfo, DeviceState, ProfilePoint

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]
WIDE = "cpu-test-2c"


def info(number: int, *cores: int) -> DeviceInfo:
    kind = WIDE if len(cores) == 2 else KIND
    return DeviceInfo(f"box/cpu{number}", "cpu", kind, "", cores, None, 2**30, f"unix:/tmp/cpu{number}")


def join(*infos: DeviceInfo, retiring: tuple[int, ...] = (), ordered: bool = True, problem: str = "") -> None:
    message = control.JoinNode(
        name="box",
        devices=infos,
        cores=(0, 1),
        divided="0-1" if ordered else "2x1",
        ordered=ordered,
        division_problem=problem,
        retiring=tuple(f"box/cpu{number}" for number in retiring),
    )
    devices.sync(Node.objects.get(), infos, message)


def up(number: int) -> None:
    devices.report(Node.objects.get(), [DeviceState(device=f"box/cpu{number}", state="up")])


def phases() -> dict[str, str]:
    return {ref.removeprefix("box/"): phase for ref, phase in Device.objects.values_list("ref", "phase")}


def planned() -> dict[str, int]:
    """Residents by device of a new plan."""
    return {one["device"].removeprefix("box/"): len(one["residents"]) for one in make_plan("change").wire["devices"]}


@pytest.fixture
def box():
    """A node with two devices of one core each, in a plan."""
    made = node("box", devices=0)
    join(info(0, 0), info(1, 1), ordered=False)
    up(0), up(1)
    held = variant(application(), "best", 90, 5)
    assert planned() == {"cpu0": 1, "cpu1": 1}
    return made, held


def test_plans_change_over_once_the_new_device_is_up_and_measured(box):
    made, held = box
    dividing.divide(Node.objects.get(), "0-1")
    (entry,) = AuditEntry.objects.filter(kind="node", after__has_key="cpu_devices")
    assert (entry.before["cpu_devices"], entry.after["cpu_devices"]) == ("", "0-1")
    assert contents.node_config(made.pk, contents.read().shared).cpu_devices == "0-1"
    join(info(2, 0, 1), info(0, 0), info(1, 1), retiring=(0, 1))
    assert phases() == {"cpu0": "retiring", "cpu1": "retiring", "cpu2": "coming"}
    assert redivision.waits_for(Node.objects.get()) == ["box/cpu2 is not up yet."]
    up(2)
    assert ProfileJob.objects.get().device_type == WIDE, "its type is new: the variant is measured on it"
    assert "1 measurement of variants" in redivision.waits_for(Node.objects.get())[0]
    assert planned() == {"cpu0": 1, "cpu1": 1, "cpu2": 0}, "named, so that cores connect with it"
    assert contents.node_config(made.pk, contents.read().shared).retired == ()
    # Measured, but nothing that it can run: the present devices go on.
    ProfileJob.objects.update(state=ProfileJob.State.FAILED)
    assert "No variant of digits can run" in redivision.waits_for(Node.objects.get())[0]
    assert redivision.advance() == []
    profile = Profile.objects.get()
    points = list(profile.latencies.all())
    profile.pk, profile.device_type = None, WIDE
    profile.save()
    for point in points:
        point.pk, point.profile = None, profile
        point.save()
    assert redivision.advance() == ["box"]
    assert planned() == {"cpu0": 0, "cpu1": 0, "cpu2": 1}
    assert phases() == {"cpu0": "retired", "cpu1": "retired", "cpu2": ""}
    shared = contents.read().shared
    config = contents.node_config(made.pk, shared)
    assert config.retired == ("box/cpu0", "box/cpu1")
    may_stay = {one.device: one.may_stay for one in config.plan.devices}
    assert may_stay["box/cpu0"] == () and may_stay["box/cpu2"] == (held.pk,), "retired ones unload everything"
    join(info(2, 0, 1), info(1, 1), retiring=(1,))
    assert phases() == {"cpu1": "retired", "cpu2": ""}, "one that its node has ended is forgotten"
    join(info(2, 0, 1))
    assert phases() == {"cpu2": ""} and [one.ref for one in available_devices()] == ["box/cpu2"]


def test_variants_measured_on_shared_cores_are_measured_again_on_cores_of_their_own(box):
    made, held = box
    point = ProfilePoint(batch=1, p50_s=0.01, p95_s=0.012, mean_s=0.01, samples=20)
    join(info(2, 0, 1), info(0, 0), info(1, 1), retiring=(0, 1))
    up(2)
    assert dispatch.dispatch() == 1
    first = ProfileJob.objects.get()
    results.done(made, control.ProfileDone(job=first.pk, load_s=1, memory_bytes=1, points=(point,)))
    assert redivision.advance() == ["box"]
    assert not redivision._change_over(Node.objects.get()), "nothing is left to a process that found it ready, too"
    again = ProfileJob.objects.get(state=ProfileJob.State.QUEUED)
    assert (again.variant, again.device_type, again.reason) == (held, WIDE, ProfileJob.Reason.DRIFT)
    assert dispatch.dispatch() == 0, "the retired devices still have their cores"
    join(info(2, 0, 1))
    assert dispatch.dispatch() == 1
    again.refresh_from_db()
    assert again.device.ref == "box/cpu2"
    assert ProfileJob.objects.count() == 2


def test_a_job_for_drift_delays_no_change_over(box):
    join(info(2, 0, 1), info(0, 0), info(1, 1), retiring=(0, 1))
    up(2)
    assert "1 measurement of variants" in redivision.waits_for(Node.objects.get())[0]
    ProfileJob.objects.update(reason=ProfileJob.Reason.DRIFT)
    assert "measurement" not in " ".join(redivision.waits_for(Node.objects.get()))


def test_an_order_that_is_taken_back_in_the_middle_changes_nothing_for_queries(box):
    join(info(2, 0, 1), info(0, 0), info(1, 1), retiring=(0, 1))
    up(2)
    join(info(0, 0), info(1, 1), info(2, 0, 1), retiring=(2,), ordered=False)
    assert phases() == {"cpu0": "", "cpu1": "", "cpu2": "retired"}
    assert planned() == {"cpu0": 1, "cpu1": 1, "cpu2": 0}
    join(info(0, 0), info(1, 1), ordered=False)
    assert phases() == {"cpu0": "", "cpu1": ""}


def test_devices_whose_cores_stay_together_stay(box):
    join(info(0, 0), info(1, 1), retiring=(1,))
    assert phases() == {"cpu0": "", "cpu1": "retiring"}
    assert redivision.advance() == ["box"]
    assert planned() == {"cpu0": 1, "cpu1": 0} and phases()["cpu1"] == "retired"
    assert not any(order_missing(kind) for kind in known_device_types()), "no new type"


def test_the_order_over_rest_names_faults(box):
    path = "/api/v1/nodes/box/division/"
    client = Client(headers={"authorization": bearer(account("operator", "operator"))})
    for wrong, why in {
        "two": "must be auto, none, COUNTxCORES",
        "3x1": "asks for 3 cores",
        "0;7": "core 7 is not among the usable cores 0-1",
        "none": "has no GPU",
        ";".join(["0"] * 101): "200 characters",
    }.items():
        answer = client.post(path, {"cpu_devices": wrong}, content_type="application/json")
        assert answer.status_code == 400 and why in answer.json()["errors"][0]["detail"], answer.content
        assert answer.json()["errors"][0]["field"] == "cpu_devices"
    assert client.post(path, {"cpu_devices": "0-1"}, content_type="application/json").json()["cpu_devices"] == "0-1"
    viewer = Client(headers={"authorization": bearer(account("viewer", "viewer"))})
    assert viewer.post(path, {"cpu_devices": "2x1"}, content_type="application/json").status_code == 403
    join(info(0, 0), info(1, 1), ordered=False, problem="core 1 is gone")
    assert client.get("/api/v1/nodes/box/").json()["division"]["problem"] == "core 1 is gone"
    assert client.delete(path).json()["cpu_devices"] == ""
    Node.objects.update(division={})
    with pytest.raises(Conflict, match="has not reported its cores"):
        dividing.divide(Node.objects.get(), "2x1")
    assert Plan.objects.exists()
