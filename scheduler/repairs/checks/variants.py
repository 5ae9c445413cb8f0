"""Variants that cannot run."""

from __future__ import annotations

import stat
from collections.abc import Iterator

from django.db.models import Min

from registry import storage
from registry.models import Fault, ProfileJob, ValidationSet, Variant
from registry.profiling import OPEN
from scheduler import words
from scheduler.repairs.facts import Facts
from scheduler.repairs.repair import Action, Repair, Severity

#: seconds that a first profile may take to come
PROFILING_S = 600.0


def _again(variant: Variant, text: str) -> Action:
    arguments = {"name": variant.application.name, "variant": variant.name}
    return Action(text, "Profile again", address="variant-profile", arguments=arguments)


def _able(facts: Facts, application: str) -> str:
    mine = [variant for variant in facts.variants if variant.application.name == application]
    types = {device.type for device in facts.devices}
    able = sum(any(p.device_type in types and not p.blocked for p in variant.profiles.all()) for variant in mine)
    return f"{len(mine) - able} of {words.several(len(mine), 'variant')} of {application} cannot run."


def _devices(facts: Facts, device_type: str) -> str:
    count = sum(device.type == device_type for device in facts.devices)
    return f"{count} of {words.several(len(facts.devices), 'device')}"


def profiles(facts: Facts) -> Iterator[Repair]:
    types = {device.type for device in facts.devices}
    for variant in facts.variants:
        known = {profile.device_type: profile for profile in variant.profiles.all()}
        for device_type in sorted(types):
            job = facts.jobs.get((variant.pk, device_type))
            if variant.excluded or job is None or job.state != ProfileJob.State.FAILED:
                continue
            old = known.get(device_type)
            if old is not None:
                effect = f"It runs by its profile of {old.measured:%Y-%m-%d} on {_devices(facts, device_type)}."
            else:
                where = _devices(facts, device_type)
                effect = f"It cannot run on {where}. {_able(facts, variant.application.name)}"
            yield Repair(
                key=f"profile:{variant}:{device_type}",
                severity=Severity.WARNING if old is not None or known else Severity.ERROR,
                title=f"{variant} could not be profiled on {device_type}",
                effect=effect,
                action=_again(
                    variant, f"The error: {job.detail or 'none was reported'}. If it persists, replace the model."
                ),
                since=job.finished,
                application=variant.application.name,
            )


def unprofiled(facts: Facts) -> Iterator[Repair]:
    names: dict[str, list[str]] = {}
    for variant in facts.variants:
        if variant.state == Variant.State.PROFILING:
            names.setdefault(variant.application.name, []).append(variant.name)
    for application, waiting in names.items():
        up = len(facts.usable)
        open_jobs = sum(job.state in OPEN for job in facts.jobs.values())
        yield Repair(
            key=f"unprofiled:{application}",
            severity=Severity.WARNING,
            title=f"{application}: {words.listed(waiting)} not profiled yet",
            effect=f"{_able(facts, application)} {words.several(open_jobs, 'profile job')} open, "
            f"{words.several(up, 'device')} up.",
            action=Action(
                "Have an approved node with a device connected; see the jobs on its page."
                if not up
                else "Wait if a job makes progress on its page; else read the log of the node."
            ),
            lasting_s=PROFILING_S,
            application=application,
        )


def blocked(facts: Facts) -> Iterator[Repair]:
    types = {device.type for device in facts.devices}
    for variant in facts.variants:
        for profile in variant.profiles.all():
            if not profile.blocked or profile.device_type not in types or variant.excluded:
                continue
            crashed = Fault.objects.filter(
                variant=variant.pk, device_type=profile.device_type, cause=Fault.Cause.CRASHED, at__gte=profile.measured
            )
            yield Repair(
                key=f"blocked:{variant}:{profile.device_type}",
                severity=Severity.ERROR,
                title=f"{variant} is suspended on {profile.device_type}: it keeps crashing",
                effect=f"It {profile.blocked}. Plans leave it out on {_devices(facts, profile.device_type)}. "
                f"{_able(facts, variant.application.name)}",
                action=_again(variant, "Replace or exclude it; profiling it again lifts the suspension."),
                since=crashed.order_by("id").values_list("at", flat=True).first(),
                application=variant.application.name,
            )


def mixed(facts: Facts) -> Iterator[Repair]:
    faults = Fault.objects.filter(cause=Fault.Cause.MIXED).order_by("variant").values("variant")
    first = {fault["variant"]: fault["first"] for fault in faults.annotate(first=Min("at"))}
    for variant in facts.variants:
        if variant.pk in first:
            yield Repair(
                key=f"mixed:{variant}",
                severity=Severity.ERROR,
                title=f"{variant}: answers depended on other queries of their batch",
                effect=f"{variant.alone}. Earlier answers may contain data from other clients' queries; since then "
                "its queries run one by one.",
                action=Action("Replace the model by one whose rows are independent, or delete the variant."),
                since=first[variant.pk],
                application=variant.application.name,
            )


def files(facts: Facts) -> Iterator[Repair]:
    sets = ValidationSet.objects.select_related("application")
    rows = [(each.digest, each.size_bytes, each.application.name, each.name) for each in facts.variants]
    rows += [(each.digest, each.size_bytes, each.application.name, "") for each in sets]
    by_application: dict[str, list[tuple[str, str]]] = {}
    for digest, size, application, name in rows:
        if trouble := _trouble(digest, size):
            by_application.setdefault(application, []).append((name, trouble))
    for application, bad in by_application.items():
        variants = sum(variant.application.name == application for variant in facts.variants)
        names = [f"{name or 'the validation set'} {trouble}" for name, trouble in bad]
        lost = sum(bool(name) for name, _ in bad)
        yield Repair(
            key=f"files:{application}",
            severity=Severity.ERROR,
            title=f"{application}: files of the model store are missing or damaged",
            effect=f"Devices that do not have them yet cannot load {lost} of {words.several(variants, 'variant')}: "
            f"{words.listed(names)}.",
            action=Action("Restore the newest backup, or delete and upload the named files again."),
            application=application,
        )


def _trouble(digest: str, size: int) -> str:
    try:
        state = storage.path(digest).stat()
    except (FileNotFoundError, ValueError):
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if not stat.S_ISREG(state.st_mode) or state.st_size != size:
        return f"is damaged: it has {state.st_size} bytes instead of {size}"
    return ""
