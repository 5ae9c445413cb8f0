"""Variants that cannot run. All is real but time."""

import os
from datetime import timedelta

import pytest
from django.utils import timezone

from registry import profiling, storage
from registry.access.roles import AccessRole
from registry.models import Fault, Profile, ProfileJob, ValidationSet, Variant
from scheduler.members import faults
from tests.control.world import KIND, variant
from tests.repairs.looks import found, store
from workers.protocol import control

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis", "fresh")]


def test_a_profile_that_failed_has_its_error_and_a_button(world):
    third = variant(world["application"], "third", 99, 5, state=Variant.State.FAILED)
    third.digest = world["big"].digest
    third.save()
    third.profiles.all().delete()
    at = timezone.now() - timedelta(hours=2)
    ProfileJob.objects.create(variant=third, device_type=KIND, state="failed", detail="out of memory", finished=at)
    repair = found()[f"profile:digits/third:{KIND}"]
    assert repair.since == at and "out of memory" in repair.action.text and repair.severity == "error"
    assert repair.effect == "It cannot run on 2 of 2 devices. 1 of 3 variants of digits cannot run."
    assert repair.action.url == "/api/v1/applications/digits/variants/third/profile/"
    assert repair.action.permitted(AccessRole.OWNER) and not repair.action.permitted(AccessRole.VIEWER)
    profiling.order(third, "demand")
    assert f"profile:digits/third:{KIND}" not in found()


def test_a_profile_that_failed_after_others_leaves_the_old_one(world):
    ProfileJob.objects.create(variant=world["big"], device_type=KIND, state="failed", finished=timezone.now())
    repair = found()[f"profile:digits/big:{KIND}"]
    assert repair.severity == "warning" and "runs by its profile of" in repair.effect


def test_a_variant_that_waits_for_its_profile_for_too_long(world, lasting):
    Variant.objects.filter(name="big").update(state=Variant.State.PROFILING)
    Profile.objects.filter(variant=world["big"]).delete()
    assert found() == {}
    repair = lasting(601)["unprofiled:digits"]
    assert "1 of 2 variants of digits cannot run" in repair.effect and "2 devices up" in repair.effect


def test_a_variant_that_keeps_crashing_is_suspended_until_it_is_profiled_again(world):
    for _ in range(faults.CRASHES):
        crash = control.FaultReport(device="box/cpu0", variant=world["big"].pk, cause="crashed", detail="SIGSEGV")
        faults.record(world["node"], crash)
    repair = found()[f"blocked:digits/big:{KIND}"]
    assert repair.since == Fault.objects.order_by("id").first().at
    assert "crashed 5 times within 10 minutes" in repair.effect and "2 of 2 devices" in repair.effect
    assert "1 of 2 variants of digits cannot run" in repair.effect
    assert repair.action.url.endswith("/variants/big/profile/")
    Profile.objects.update(blocked="")
    assert found() == {}


def test_a_variant_whose_answers_depended_on_other_queries_runs_them_alone_from_then_on(world):
    mixed = control.FaultReport(device="box/cpu0", variant=world["big"].pk, cause="mixed", detail="y: changed")
    for _ in range(2):
        faults.record(world["node"], mixed)
    repair = found()["mixed:digits/big"]
    assert repair.since == Fault.objects.order_by("id").first().at
    assert repair.effect.startswith("y: changed. Answers before that")
    assert Variant.objects.get(name="big").why_alone == "y: changed"


def test_files_of_the_store_that_are_missing_or_damaged(world):
    storage.path(world["big"].digest).unlink()
    assert found()["files:digits"].effect.endswith("cannot load 1 of 2 variants: big is missing.")
    store(world["big"])
    assert found() == {}
    os.truncate(storage.path(world["big"].digest), 10)
    storage.path(world["small"].digest).unlink()
    repair = found()["files:digits"]
    assert "2 of 2 variants" in repair.effect and "10 bytes instead of 1000" in repair.effect
    store(world["big"])
    store(world["small"])
    ValidationSet.objects.create(application=world["application"], digest="e" * 64, size_bytes=5, metric="top1", rows=1)
    assert "0 of 2 variants: the validation set is missing" in found()["files:digits"].effect
