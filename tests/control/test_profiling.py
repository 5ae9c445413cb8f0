"""Profile jobs: given to free devices, one a device, stored whole, and retried before a failure is reported."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from registry import clock, profiling
from registry.models import Device, Node, Profile, ProfileJob, Variant
from scheduler import telemetry
from scheduler.profiling import dispatch, results
from tests.control.world import KIND, application, node, seen, variant
from workers.protocol import control
from workers.protocol.specs import ProfilePoint

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]
POINTS = (ProfilePoint(1, 0.01, 0.012, 0.01, 30), ProfilePoint(2, 0.018, 0.02, 0.018, 20))


@pytest.fixture
def fresh(box):
    made = variant(application(), "new", 95, 5, state=Variant.State.PROFILING)
    made.profiles.all().delete()
    (job,) = profiling.order(made, "registration")
    return made, job


def test_a_job_goes_to_a_device_of_its_type(fresh):
    _, job = fresh
    assert dispatch.dispatch() == 1
    job.refresh_from_db()
    assert job.state == "running" and job.device.type == KIND and job.attempts == 1


@pytest.mark.parametrize(
    ("here", "elsewhere", "ordered"),
    [
        ({"best": 1.8}, {"best": 1.0}, 0),
        ({"best": 1.8}, {"best": 1.7}, 1),
        ({"best": 1.8}, {"best": 1.7, "other": 1.0}, 1),
        ({"best": 1.8}, {"other": 1.0}, 0),
        ({"best": 1.8, "other": 1.6}, {"other": 1.0}, 0),
        ({"best": 1.8, "other": 1.0}, {"other": 1.0}, 1),
    ],
)
def test_drift_of_one_device_alone_orders_no_new_profile(box, here, elsewhere, ordered):
    """Where others of the type run as profiled, the device is slow, unless it runs other variants as profiled."""
    owner = application()
    variants = {"best": variant(owner, "best", 90, 10), "other": variant(owner, "other", 80, 5)}
    variants["best"].profiles.update(measured="2020-01-01T00:00:00Z")
    devices = [
        {
            "device": f"box/{name}",
            "variants": [
                {"variant": variants[of].pk, "rows": 9, "batches": 9, "busy_s": 1, "drift": ratio}
                for of, ratio in ratios.items()
            ],
        }
        for name, ratios in (("cpu0", here), ("cpu1", elsewhere))
    ]
    telemetry.record(telemetry.NODE_STREAM, {"t": clock.wall(), "node": "box", "devices": devices})
    results.drifted(box, control.Drift(device="box/cpu0", variant=variants["best"].pk, ratio=1.8))
    assert ProfileJob.objects.count() == ordered


def test_a_device_measures_one_variant_at_a_time(box, fresh):
    owner = fresh[0].application
    for name in ("b", "c"):
        made = variant(owner, name, 95, 5, state=Variant.State.PROFILING)
        profiling.order(made, "registration")
    assert dispatch.dispatch() == 2  # two devices, three jobs
    assert dispatch.dispatch() == 0


def test_people_go_before_drift_and_take_its_device(box, fresh):
    made, uploaded = fresh
    one, other = (variant(made.application, name, 90, 5) for name in ("one", "other"))
    for drifting in (one, other):
        profiling.order(drifting, ProfileJob.Reason.DRIFT, [KIND])
    ProfileJob.objects.filter(pk=uploaded.pk).update(state="done")
    assert dispatch.dispatch() == 1  # two devices are free, and one measures for drift
    (drift,) = ProfileJob.objects.filter(state="running")
    Device.objects.exclude(pk=drift.device_id).update(state=Device.State.DOWN)
    ProfileJob.objects.filter(pk=uploaded.pk).update(state="queued")
    assert dispatch.dispatch() == 1
    uploaded.refresh_from_db()
    assert (uploaded.state, uploaded.device) == ("running", drift.device)
    device = drift.device
    drift.refresh_from_db()
    assert (drift.state, drift.device, drift.attempts) == ("queued", None, 0)
    # Nobody takes a device from people, and drift waits for its end.
    late = variant(made.application, "late", 90, 5, state=Variant.State.PROFILING)
    profiling.order(late, ProfileJob.Reason.REGISTRATION, [KIND])
    assert dispatch.dispatch() == 0
    (cancel,) = [m for m in dispatch.reconcile(box, [drift.pk, uploaded.pk]) if isinstance(m, control.ProfileCancel)]
    assert cancel.job == drift.pk
    for _ in range(2):
        job = ProfileJob.objects.get(state="running", device=device)
        results.done(box, control.ProfileDone(job=job.pk, load_s=0.3, memory_bytes=5000, points=POINTS))
        assert dispatch.dispatch() == 1
    assert ProfileJob.objects.get(state="running").reason == ProfileJob.Reason.DRIFT


@pytest.mark.parametrize(
    ("queued", "first"),
    [
        (["drift", "registration"], 1),
        (["drift", "demand"], 1),
        (["drift", "new_type"], 1),
        (["registration", "demand"], 0),
        (["drift", "drift"], 0),
    ],
)
def test_of_a_queue_for_one_device_people_are_first_then_the_oldest(box, queued, first):
    Device.objects.filter(pk=Device.objects.first().pk).update(state=Device.State.DOWN)
    owner = application()
    jobs = [
        profiling.order(variant(owner, str(place), 90, 5), reason, [KIND])[0] for place, reason in enumerate(queued)
    ]
    assert dispatch.dispatch() == 1
    assert ProfileJob.objects.get(state="running").pk == jobs[first].pk


def test_people_who_ask_for_what_drift_has_ordered_are_first_too(box):
    Device.objects.filter(pk=Device.objects.first().pk).update(state=Device.State.DOWN)
    owner = application()
    one, other = (variant(owner, name, 90, 5) for name in ("one", "other"))
    for drifting in (one, other):
        profiling.order(drifting, ProfileJob.Reason.DRIFT, [KIND])
    assert dispatch.dispatch() == 1
    (asked,) = profiling.order(other, ProfileJob.Reason.DEMAND, [KIND])
    assert dispatch.dispatch() == 1
    assert ProfileJob.objects.get(state="running").pk == asked.pk


def test_no_device_of_a_cordoned_node_is_taken_from_drift(box, fresh):
    made, uploaded = fresh
    ProfileJob.objects.filter(pk=uploaded.pk).update(state="done")
    (drift,) = profiling.order(made, ProfileJob.Reason.DRIFT, [KIND])
    assert dispatch.dispatch() == 1
    Node.objects.update(cordoned_at=timezone.now())
    ProfileJob.objects.filter(pk=uploaded.pk).update(state="queued", variant=variant(made.application, "b", 90, 5))
    assert dispatch.dispatch() == 0
    drift.refresh_from_db()
    assert drift.state == "running"


def test_a_job_waits_while_no_device_of_its_type_is_up(fresh):
    Device.objects.update(state=Device.State.DOWN)
    assert dispatch.dispatch() == 0
    assert ProfileJob.objects.get().state == "queued"


def test_many_jobs_that_wait_for_a_type_cost_one_look_at_its_devices(box, fresh):
    owner = fresh[0].application
    Device.objects.update(state=Device.State.DOWN)
    with CaptureQueriesContext(connection) as one:
        assert dispatch.dispatch() == 0
    for i in range(10):
        profiling.order(variant(owner, f"more{i}", 95, 5, state=Variant.State.PROFILING), "registration")
    with CaptureQueriesContext(connection) as many:
        assert dispatch.dispatch() == 0
    assert len(many) == len(one)


def test_results_are_stored_by_batch_size_and_the_variant_can_be_planned(box, fresh):
    made, job = fresh
    dispatch.dispatch()
    results.done(box, control.ProfileDone(job=job.pk, load_s=0.3, memory_bytes=5000, points=POINTS))
    made.refresh_from_db()
    job.refresh_from_db()
    assert (made.state, job.state, job.progress) == ("loading", "done", 1.0)
    profile = Profile.objects.get(variant=made, device_type=KIND)
    assert (profile.load_s, profile.memory_bytes) == (0.3, 5000)
    assert list(profile.latencies.values_list("batch", "p95_ms")) == [(1, 12.0), (2, 20.0)]


def test_a_result_that_is_repeated_counts_once(box, fresh):
    _, job = fresh
    dispatch.dispatch()
    message = control.ProfileDone(job=job.pk, load_s=0.3, memory_bytes=5000, points=POINTS)
    results.done(box, message)
    measured = Profile.objects.get().measured
    results.done(box, message)
    assert Profile.objects.get().measured == measured and ProfileJob.objects.get().state == "done"


def test_a_result_counts_though_its_job_was_queued_again_meanwhile(box, fresh):
    made, job = fresh
    message = control.ProfileDone(job=job.pk, load_s=0.3, memory_bytes=5000, points=POINTS)
    results.done(box, message)
    assert not made.profiles.exists(), "nobody has been asked to measure it"
    dispatch.dispatch()
    Node.objects.update(channel="")
    assert dispatch.requeue_silent() == 1
    other = Node.objects.create(name="other", state=Node.State.APPROVED)
    results.done(other, message)
    assert not made.profiles.exists(), "a node without a device of this type"
    results.done(box, message)
    job.refresh_from_db()
    assert (job.state, job.attempts) == ("done", 1) and made.profiles.exists()


def test_a_measured_accuracy_is_stored_unless_it_was_declared_meanwhile(box, fresh):
    made, job = fresh
    Variant.objects.update(accuracy=None, accuracy_source=Variant.Source.MEASURED)
    dispatch.dispatch()
    results.done(box, control.ProfileDone(job=job.pk, load_s=1, memory_bytes=1, points=POINTS, accuracy=91.25))
    made.refresh_from_db()
    assert (made.accuracy, made.state) == (91.25, "loading")
    Variant.objects.update(accuracy=80.0, accuracy_source=Variant.Source.DECLARED)
    (job,) = profiling.order(made, "demand")
    dispatch.dispatch()
    results.done(box, control.ProfileDone(job=job.pk, load_s=1, memory_bytes=1, points=POINTS, accuracy=91.25))
    made.refresh_from_db()
    assert made.accuracy == 80.0


def test_a_new_profile_replaces_the_old_one_whole(box, fresh):
    made, job = fresh
    dispatch.dispatch()
    results.done(box, control.ProfileDone(job=job.pk, load_s=1, memory_bytes=1, points=POINTS))
    (job,) = profiling.order(made, "drift")
    dispatch.dispatch()
    results.done(box, control.ProfileDone(job=job.pk, load_s=2, memory_bytes=2, points=POINTS[:1]))
    assert list(made.profiles.get().latencies.values_list("batch", flat=True)) == [1]


def test_a_failure_that_may_pass_is_tried_again_three_times_then_reported(box, fresh):
    made, job = fresh
    for attempt in (1, 2, 3):
        assert dispatch.dispatch() == 1
        results.failed(box, control.ProfileFailed(job=job.pk, message="the executor died", retry=True))
        job.refresh_from_db()
        assert job.state == ("failed" if attempt == 3 else "queued")
    made.refresh_from_db()
    assert made.state == "failed" and "executor died" in made.detail


def test_a_final_failure_is_not_tried_again(box, fresh):
    made, job = fresh
    dispatch.dispatch()
    results.failed(box, control.ProfileFailed(job=job.pk, message="first run took longer than 3 s"))
    made.refresh_from_db()
    assert made.state == "failed" and dispatch.dispatch() == 0


def test_a_failure_of_an_earlier_attempt_says_nothing_about_this_one(box, fresh):
    _, job = fresh
    dispatch.dispatch()
    failure = control.ProfileFailed(job=job.pk, message="the executor died", retry=True, attempt=1)
    results.failed(box, failure)
    results.failed(box, failure)
    assert dispatch.dispatch() == 1
    results.failed(box, failure)
    job.refresh_from_db()
    assert (job.state, job.attempts) == ("running", 2), "the node repeated it"
    results.failed(box, control.ProfileFailed(job=job.pk, message="it died again", attempt=2))
    job.refresh_from_db()
    assert (job.state, job.detail) == ("failed", "it died again")


def test_a_job_whose_device_fell_silent_goes_back_to_the_queue(fresh, later):
    _, job = fresh
    dispatch.dispatch()
    assert dispatch.requeue_silent() == 0
    later(dispatch.SILENT_S + 1)
    assert dispatch.requeue_silent() == 1
    job.refresh_from_db()
    assert job.state == "queued" and job.device is None


def test_no_order_goes_to_a_node_that_reported_nothing_lately(fresh):
    Node.objects.update(**seen(ago=60))
    assert dispatch.dispatch() == 0


def test_another_nodes_report_about_a_job_is_ignored(fresh):
    made, job = fresh
    stranger = node("stranger", devices=1)
    dispatch.dispatch()
    results.done(stranger, control.ProfileDone(job=job.pk, load_s=1, memory_bytes=1, points=POINTS))
    job.refresh_from_db()
    assert job.state == "running" and not made.profiles.exists()


def test_a_report_about_a_deleted_variant_is_harmless(box, fresh):
    made, job = fresh
    dispatch.dispatch()
    made.delete()
    results.done(box, control.ProfileDone(job=job.pk, load_s=1, memory_bytes=1, points=POINTS))
    assert not Profile.objects.exists()


def test_drift_orders_a_new_profile_but_not_right_after_one(box):
    made = variant(application(), "worn", 95, 5)
    message = control.Drift(device="box/cpu0", variant=made.pk, ratio=1.8)
    results.drifted(box, message)
    assert not ProfileJob.objects.exists()
    Profile.objects.update(measured=timezone.now() - timedelta(minutes=10))
    results.drifted(box, message)
    assert ProfileJob.objects.get().reason == "drift"
