"""Ordering profiles, and reading them."""

import pytest

from registry import events, models, profiling
from registry.errors import Conflict
from tests.registry.conftest import problem

URL = "/api/v1/applications/tiny/variants/v/profile/"


def test_profiling_is_ordered_once_on_each_type_of_approved_nodes(client, variant, device, announced):
    variant()
    device("box/cpu0", "cpu-a"), device("box/cpu1", "cpu-a"), device("box/gpu0", "gpu-b")
    models.Node.objects.create(name="stranger", state="pending").devices.create(
        ref="stranger/x", kind="cpu", type="odd"
    )
    response = client.post(URL)
    assert response.status_code == 202
    jobs = response.json()["jobs"]
    assert [(job["device_type"], job["state"], job["reason"]) for job in jobs] == [
        ("cpu-a", "queued", "demand"),
        ("gpu-b", "queued", "demand"),
    ]
    assert client.post(URL).json()["jobs"] == jobs, "open jobs are returned as they are"
    assert sum(kind == "profile_job" for kind, _ in announced) == 2
    assert client.get(f"/api/v1/profile-jobs/{jobs[0]['id']}/").json() == jobs[0]


def test_without_devices_there_is_nothing_to_order(client, variant):
    variant()
    response = client.post(URL)
    problem(response, 409)
    assert "no approved node" in response.json()["detail"]


def test_a_failed_variant_gets_its_chance_again(client, variant, device):
    variant(state="failed", detail="out of memory")
    device()
    client.post(URL)
    again = models.Variant.objects.get()
    assert (again.state, again.detail) == ("profiling", "")


def test_a_new_device_type_is_measured_for_what_was_never_tried_there(variant, device):
    profiled, tried, draining = variant("profiled"), variant("tried"), variant("gone", state="draining")
    device("box/cpu0", "cpu-a")
    models.Profile.objects.create(variant=profiled, device_type="cpu-a", load_s=1, memory_bytes=1)
    models.ProfileJob.objects.create(variant=tried, device_type="cpu-a", state="failed")
    assert profiling.order_missing("cpu-a") == []
    device("box/gpu0", "gpu-b")
    ordered = {(job.variant.name, job.device_type, job.reason) for job in profiling.order_missing("gpu-b")}
    assert ordered == {("profiled", "gpu-b", "new_type"), ("tried", "gpu-b", "registration")}
    assert profiling.order_missing("gpu-b") == []
    assert not draining.profile_jobs.exists()


def test_jobs_of_a_type_that_no_box_has_any_more_end_with_a_reason(variant, device):
    measured, fresh = variant("measured"), variant("fresh", state="profiling")
    models.Profile.objects.create(variant=measured, device_type="gpu-b", load_s=1, memory_bytes=1)
    gone, _ = device("box/gpu0", "gpu-b"), device("other/cpu0", "cpu-a")
    profiling.order(fresh, "registration", ["gpu-b"]), profiling.order(measured, "demand", ["gpu-b", "cpu-a"])
    models.Node.objects.filter(name="box").update(state="revoked")
    assert profiling.end_orphaned() == 0, "its box may be taken back"
    models.Device.objects.filter(pk=gone.pk).update(state="down")
    assert profiling.end_orphaned() == 2
    ended = models.ProfileJob.objects.filter(state="cancelled")
    reason = "ended: no box has a device of type gpu-b any more"
    assert {(job.variant.name, job.detail) for job in ended} == {("fresh", reason), ("measured", reason)}
    assert models.ProfileJob.objects.get(state="queued").device_type == "cpu-a"
    fresh.refresh_from_db(), measured.refresh_from_db()
    assert (fresh.state, measured.state) == ("failed", "ready") and reason in fresh.detail
    # The type comes back: what is missing is ordered again.
    assert {job.variant.name for job in profiling.order_missing("gpu-b")} == {"fresh"}
    fresh.refresh_from_db()
    assert fresh.state == "profiling"


def test_jobs_of_a_device_that_its_node_no_longer_has_end(variant, device):
    gone = device("box/gpu0", "gpu-b")
    profiling.order(variant(), "demand")
    models.Device.objects.filter(pk=gone.pk).update(state="down")
    assert profiling.end_orphaned() == 0, "it may come up again"
    models.Device.objects.filter(pk=gone.pk).update(detail=models.Device.GONE)
    assert profiling.end_orphaned() == 1


def test_profiles_are_listed_with_their_latencies_and_filtered(client, variant):
    for name, kind in (("a", "cpu"), ("a", "gpu"), ("b", "cpu")):
        owner = models.Variant.objects.filter(name=name).first() or variant(name)
        profile = models.Profile.objects.create(variant=owner, device_type=kind, load_s=0.5, memory_bytes=1000)
        for batch in (4, 1):
            profile.latencies.create(batch=batch, p50_ms=batch, p95_ms=2 * batch, mean_ms=batch, samples=9)
    everything = client.get("/api/v1/profiles/").json()
    assert everything["count"] == 3
    first = everything["results"][0]
    assert (first["application"], first["variant"], first["device_type"]) == ("tiny", "a", "cpu")
    assert [point["batch"] for point in first["latencies"]] == [1, 4]
    assert first["latencies"][1] == {"size": 0, "batch": 4, "p50_ms": 4, "p95_ms": 8, "mean_ms": 4, "samples": 9}
    assert client.get("/api/v1/profiles/?variant=a&device_type=gpu").json()["count"] == 1
    assert client.get("/api/v1/profiles/?application=other").json()["count"] == 0
    assert client.get("/api/v1/profiles/?application=tiny&variant=b").json()["count"] == 1


def test_jobs_are_filtered_by_state(client, variant):
    models.ProfileJob.objects.create(variant=variant(), device_type="cpu", state="done")
    assert client.get("/api/v1/profile-jobs/?state=done").json()["count"] == 1
    assert client.get("/api/v1/profile-jobs/?state=queued").json()["count"] == 0
    assert "is not one of queued" in problem(client.get("/api/v1/profile-jobs/?state=lost"), 400)["state"]
    problem(client.get("/api/v1/profile-jobs/99999999/"), 404)


def test_a_listener_that_fails_fails_nobody_else(client, announced):
    def broken(**_):
        raise RuntimeError("no Redis")

    events.registry_changed.connect(broken, weak=False)
    assert client.post("/api/v1/api-keys/", {"name": "k"}).status_code == 201
    assert announced == [("api_key", "k")]


def test_a_job_that_ended_meanwhile_is_not_cancelled(variant):
    waiting = variant(state="profiling", accuracy=None)
    job = models.ProfileJob.objects.create(variant=waiting, device_type="cpu-a", state="running")
    models.ProfileJob.objects.update(state="failed")
    with pytest.raises(Conflict, match="has ended already: failed"):
        profiling.withdraw(job, "cancelled by operator")
    waiting.refresh_from_db()
    assert waiting.state == "profiling", "why it failed is for the failure to say"
