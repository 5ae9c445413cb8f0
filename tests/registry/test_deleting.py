"""Deleting: refused where in use, drained where asked; the rows decide races."""

from __future__ import annotations

import pytest

from registry import models, services, storage
from registry.errors import Conflict
from scheduler.models import Plan
from tests.registry import graphs
from tests.registry.conftest import problem

URL = "/api/v1/applications/tiny/"


def _plan(*residents: tuple[int, str]) -> Plan:
    run = {"rate": 1.0, "time_share": 0.1, "max_batch": 1}
    devices = [
        {"device": ref, "residents": [{"variant": {"id": pk, "name": "v", "application": "tiny"}, **run}]}
        for pk, ref in residents
    ]
    return Plan.objects.create(
        trigger="manual", stack="nereus", problem={}, allocation={}, wire={"devices": devices}, status="optimal"
    )


@pytest.mark.parametrize("holder", ["plan", "device"])
def test_a_variant_in_use_is_kept_and_the_reason_says_where(holder, client, variant, device):
    busy = variant("busy")
    if holder == "plan":
        _plan((busy.pk, "box/cpu7"))
    else:
        device("box/cpu7", warm=(busy.pk,))
    response = client.delete(URL + "variants/busy/")
    problem(response, 409)
    assert "busy on box/cpu7" in response.json()["detail"] and "drain=true" in response.json()["detail"]
    assert models.Variant.objects.get().state == "ready"
    assert client.get(URL + "variants/busy/").json()["resident_on"] == ["box/cpu7"]


def test_an_older_plan_and_a_device_that_is_down_hold_nothing(client, variant, device):
    idle = variant("idle")
    _plan((idle.pk, "box/cpu0"))
    _plan()
    device("box/cpu0", warm=(idle.pk,), state="down")
    assert client.delete(URL + "variants/idle/").status_code == 204


def test_a_drained_variant_goes_when_the_last_device_let_go(upload, client, device, files, announced, swept):
    pk = upload(graphs.good()).json()["id"]
    models.Variant.objects.update(state="ready")
    _plan((pk, "box/cpu0"))
    holder = device("box/cpu0", warm=(pk,))
    response = client.delete(URL + "variants/v/?drain=true")
    assert response.status_code == 202 and response.json()["state"] == "draining"
    assert announced[-1] == ("variant", "tiny/v")
    assert client.delete(URL + "variants/v/?drain=true").status_code == 202, "asking again changes nothing"
    assert services.finish_drains() == [], "the plan still wants it"
    _plan()
    assert services.finish_drains() == [], "the device still holds it"
    models.Device.objects.filter(pk=holder.pk).update(warm=[])
    assert len(files()) == 1
    assert services.finish_drains() == ["tiny/v"]
    assert not models.Variant.objects.exists() and len(files()) == 1
    swept()
    assert files() == []


def test_an_application_drains_with_all_of_its_variants(client, application, variant, device):
    one, _ = variant("one"), variant("two", state="profiling")
    holder = device(warm=(one.pk,))
    response = client.delete(URL)
    problem(response, 409)
    assert "one on box/cpu0" in response.json()["detail"]
    response = client.delete(URL + "?drain=true")
    assert response.status_code == 202 and response.json()["state"] == "draining"
    assert set(models.Variant.objects.values_list("state", flat=True)) == {"draining"}
    assert services.finish_drains() == []
    models.Device.objects.filter(pk=holder.pk).update(warm=[])
    assert services.finish_drains() == ["tiny"]
    assert not models.Application.objects.exists() and not models.Variant.objects.exists()


def test_an_idle_application_goes_at_once_and_its_files_some_minutes_later(upload, client, files, announced, swept):
    upload(graphs.good(seed=1), name="a"), upload(graphs.good(seed=2), name="b")
    assert len(files()) == 2
    assert client.delete(URL).status_code == 204
    assert storage.sweep() == 0 and len(files()) == 2
    swept()
    assert files() == [] and not models.Application.objects.exists()
    assert announced[-1] == ("application", "tiny")
    problem(client.delete(URL), 404)


def test_a_draining_variant_takes_no_changes(client, variant, device):
    variant("v", state="draining")
    device()
    for change in ({"accuracy": 50}, {"pinned": True}):
        response = client.patch(URL + "variants/v/", change)
        problem(response, 409)
        assert "is being deleted" in response.json()["detail"]
    problem(client.post(URL + "variants/v/profile/"), 409)
    made = models.Variant.objects.get()
    assert (made.accuracy, made.pinned) == (90, False)


def test_nothing_is_uploaded_to_a_draining_application(upload, application, files):
    models.Application.objects.update(state="draining")
    response = upload(graphs.good())
    problem(response, 409)
    assert files() == []


def test_an_upload_whose_application_changed_meanwhile_is_refused(application, files):
    """The change comes between the inspection, which held it against the older signature, and the row."""
    stale = models.Application.objects.get()
    models.Application.objects.update(signature={**graphs.SIGNATURE, "outputs": graphs.SIGNATURE["inputs"]})
    incoming = storage.Incoming(1 << 20)
    incoming.write(graphs.good())
    with pytest.raises(Conflict, match="signature changed during the upload"):
        services.create_variant(stale, "v", incoming, 90)
    assert files() == []


def test_deleting_cancels_open_profile_jobs(client, variant, device, announced):
    from registry import profiling

    device()
    (job,) = profiling.order(variant(), "registration")
    assert client.delete(URL + "variants/v/").status_code == 204
    assert ("profile_job", str(job.pk)) in announced


@pytest.mark.django_db
def test_uploads_whose_process_died_are_swept(files, later):
    storage.Incoming(10)
    grows = storage.Incoming(10)
    assert storage.sweep() == 0
    later(storage.STALE_S + 1)
    with grows.path.open("ab") as file:
        file.write(b"1")
    assert storage.sweep() == 1
    assert files() == [grows.path.name]
    grows.discard()


@pytest.mark.django_db
def test_a_file_whose_row_was_never_committed_is_swept_but_not_during_a_backup(files, swept):
    """As a power cut between the file's place and the row's commit leaves it."""
    incoming = storage.Incoming(100)
    incoming.write(b"a model")
    incoming.finish()
    incoming.place()
    incoming.discard()
    with storage.kept():
        swept()
        assert files() == [incoming.digest]
    swept()
    assert files() == []


def test_a_file_that_is_needed_again_in_time_stays(upload, client, files, later):
    upload(graphs.good())
    assert client.delete(URL + "variants/v/").status_code == 204
    storage.sweep()
    later(storage.LATE_S - 60)
    storage.sweep()
    assert upload(graphs.good(), name="again").status_code == 201
    for _ in range(3):
        later(storage.LATE_S)
        storage.sweep()
    assert len(files()) == 1
