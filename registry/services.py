"""Operations on applications and variants.

Entry points parse, call these and render. Every change is conditional on the state that it was decided on, and
announces itself through :mod:`registry.events` once it is committed.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction

from registry import events, profiling, storage, uploads, usage
from registry.errors import Conflict, invalid
from registry.inspection import sandbox
from registry.models import Application, ProfileJob, ValidationSet, Variant
from registry.signatures import with_rows
from workers import log

logger = log.get("registry")


# --- applications ---------------------------------------------------------------------------------------------------


def create_application(fields: dict[str, Any]) -> Application:
    """A new application. Raises Conflict: the name is taken."""
    try:
        with transaction.atomic():
            application = Application.objects.create(**fields)
            # Nothing can be planned for it before it has a variant that is ready.
            events.changed("application", application.name, replan=False)
    except IntegrityError:
        raise Conflict(f"an application named {fields['name']!r} exists", "name") from None
    return application


def change_application(application: Application, fields: dict[str, Any]) -> Application:
    """Change some fields of an active application.

    A longer SLO and other sizes order profiles again: profiles end at the SLO, and are taken at the sizes.

    Raises:
        Conflict: it drains or is gone, or the signature would change under existing variants.
    """
    with transaction.atomic():
        current = Application.objects.select_for_update().filter(pk=application.pk).first()
        if current is None or current.state != Application.State.ACTIVE:
            raise Conflict(f"application {application.name!r} is being deleted")
        for name in ("signature", "batch"):
            if fields.get(name, getattr(current, name)) != getattr(current, name) and _bound(current):
                raise Conflict(
                    f"the {_BOUND[name]} cannot change while the application has variants or a validation set; "
                    "delete those first, or register another application",
                    name,
                )
        changes = {name: value for name, value in fields.items() if getattr(current, name) != value}
        if changes:
            Application.objects.filter(pk=current.pk).update(**changes)
            events.changed("application", current.name, replan=changes.keys() != {"group"})
        if changes.get("slo_ms", 0) > current.slo_ms or "sizes" in changes:
            profiling.order_anew(current)
        current.refresh_from_db()
    return current


_BOUND = {"signature": "signature", "batch": "batch dimension"}


def _bound(application: Application) -> bool:
    return application.variants.exists() or ValidationSet.objects.filter(application=application).exists()


def delete_application(application: Application, drain: bool = False) -> bool:
    """True when it is gone, False when it drains. Raises Conflict: in use."""
    with transaction.atomic():
        current = Application.objects.select_for_update().filter(pk=application.pk).first()
        if current is None:
            return True
        ids = list(current.variants.values_list("pk", flat=True))
        resident = usage.resident_on(ids)
        if resident and not drain:
            raise Conflict(_in_use(f"application {current.name!r}", current.variants.all(), resident))
        if resident:
            Application.objects.filter(pk=current.pk, state=Application.State.ACTIVE).update(
                state=Application.State.DRAINING
            )
            current.variants.exclude(state=Variant.State.DRAINING).update(state=Variant.State.DRAINING)
            events.changed("application", current.name)
            return False
        _cancel_profiling(ids)
        current.delete()
        events.changed("application", current.name)
    return True


def _cancel_profiling(variants: list[int]) -> None:
    jobs = ProfileJob.objects.filter(variant__in=variants, state__in=profiling.OPEN)
    profiling.cancel(jobs, "the variant was deleted")


def _in_use(what: str, variants: Iterable[Variant], resident: dict[int, list[str]]) -> str:
    places = "; ".join(f"{v.name} on {', '.join(resident[v.pk])}" for v in variants if v.pk in resident)
    return f"{what} is in use: {places}. Add ?drain=true to take it out of the plan first and delete it then"


# --- variants -------------------------------------------------------------------------------------------------------


def create_variant(
    application: Application,
    name: str,
    incoming: storage.Incoming,
    accuracy: float | None = None,
    sample: storage.Incoming | None = None,
) -> Variant:
    """Inspect an upload, store it and order its profiles.

    The upload is consumed: it is in the store afterwards, or gone.

    Args:
        accuracy: percent; None: to be measured.
        sample: rows to try the model with, where the application has no validation set; it is not kept.

    Raises:
        InvalidInput: what the inspection found, or no accuracy and nothing to measure it with.
        Conflict: the name is taken, or the application is being deleted or got another signature meanwhile.
        Busy: other uploads are being inspected.
    """
    try:
        digest = incoming.finish()
        _check_new_variant(application, name, accuracy)
        with uploads.inspecting(application.name, name, incoming.size):
            facts = sandbox.inspect_model(
                incoming.path,
                application.signature,
                settings.NEREUS,
                application.sizes,
                application.padding,
                application.batch,
                *_trial_rows(application, sample),
            )
        with storage.placing(incoming):
            _check_unchanged(application)
            # Again, as the validation set may have gone while the model was inspected.
            _check_new_variant(application, name, accuracy)
            incoming.place()
            variant = Variant.objects.create(
                application=application,
                name=name,
                digest=digest,
                size_bytes=incoming.size,
                accuracy=accuracy,
                accuracy_source=Variant.Source.MEASURED if accuracy is None else Variant.Source.DECLARED,
                opset=facts["opset"],
                alone=facts.pop("alone"),
                trial_rows=base64.b64decode(facts.pop("rows")),
                inspection=facts,
            )
            profiling.order(variant, ProfileJob.Reason.REGISTRATION)
            events.changed("variant", str(variant), replan=False)
    except IntegrityError:
        raise _name_taken(application, name) from None
    finally:
        incoming.discard()
    logger.info("variant_created", variant=str(variant), digest=digest, bytes=incoming.size)
    return variant


def _trial_rows(application: Application, sample: storage.Incoming | None) -> tuple[Path | None, str]:
    """The file of rows to try a model with, and where they are from."""
    validation = ValidationSet.objects.filter(application=application).first()
    if validation is not None:
        return storage.path(validation.digest), "the validation set"
    return (None, "") if sample is None else (sample.path, "the sample")


def _name_taken(application: Application, name: str) -> Conflict:
    return Conflict(f"application {application.name!r} has a variant named {name!r} already", "name")


def _check_new_variant(application: Application, name: str, accuracy: float | None) -> None:
    if application.variants.filter(name=name).exists():
        raise _name_taken(application, name)
    _check_measurable(application, accuracy)


def _check_measurable(application: Application, accuracy: float | None) -> None:
    if accuracy is None and not ValidationSet.objects.filter(application=application).exists():
        raise invalid(
            "accuracy", "is required (percent, 0 to 100): the application has no validation set to measure it"
        )


def _check_unchanged(application: Application) -> None:
    """The application is as it was when the upload was checked against it."""
    current = Application.objects.select_for_update().filter(pk=application.pk).first()
    if current is None or current.state != Application.State.ACTIVE:
        raise Conflict(f"application {application.name!r} is being deleted")
    if (current.signature, current.batch) != (application.signature, application.batch):
        raise Conflict("the application's signature changed during the upload; upload again", "file")


def change_variant(variant: Variant, fields: dict[str, Any]) -> Variant:
    """Change some fields of a variant.

    Args:
        fields: some of ``accuracy`` (percent; None: have it measured again), ``pinned`` and ``excluded``.

    Raises:
        InvalidInput: nothing to measure the accuracy with.
        Conflict: the variant drains or is gone, or would be pinned and excluded at once.
    """
    measure = "accuracy" in fields and fields["accuracy"] is None
    if measure:
        _check_measurable(variant.application, None)
    with transaction.atomic():
        current = Variant.objects.select_for_update().filter(pk=variant.pk).first()
        if current is None or current.state == Variant.State.DRAINING:
            raise Conflict(f"variant {variant} is being deleted")
        wanted = dict(fields)
        if measure:
            # The one that it has counts until then.
            wanted["accuracy"], wanted["accuracy_source"] = current.accuracy, Variant.Source.MEASURED
        elif "accuracy" in fields:
            wanted["accuracy_source"] = Variant.Source.DECLARED
        changes = {name: value for name, value in wanted.items() if getattr(current, name) != value}
        if changes.get("pinned", current.pinned) and changes.get("excluded", current.excluded):
            field, other = ("pinned", "excluded") if changes.get("pinned") else ("excluded", "pinned")
            raise Conflict(f"variant {variant} is {other}; it cannot be {field} as well", field)
        if changes:
            Variant.objects.filter(pk=current.pk).update(**changes)
        if changes or measure:
            events.changed("variant", str(variant), replan=bool(changes) and current.state in Variant.PLANNED)
        if measure:
            # An open job may have been ordered without the validation set.
            profiling.cancel(variant.profile_jobs.filter(state__in=profiling.OPEN), "ordered again to measure accuracy")
            profiling.order(variant, ProfileJob.Reason.DEMAND, profiling.known_device_types()[:1])
    variant.refresh_from_db()
    return variant


def run_alone(variant: Variant, why: str) -> None:
    """Have a variant's queries run alone from now on; the first reason stays."""
    with transaction.atomic():
        if Variant.objects.filter(pk=variant.pk, alone="").update(alone=why):
            events.changed("variant", str(variant), replan=variant.state in Variant.PLANNED)
            logger.error("variant_runs_alone", variant=str(variant), reason=why)


def answers(application: str) -> None:
    """Note that every gateway answers queries of the application."""
    with transaction.atomic():
        loading = Variant.objects.filter(application__name=application, state=Variant.State.LOADING)
        names = [str(variant) for variant in loading.select_related("application")]
        if loading.update(state=Variant.State.READY, detail=""):
            for name in names:
                events.changed("variant", name, replan=False)


def delete_variant(variant: Variant, drain: bool = False) -> bool:
    """True when it is gone, False when it drains. Raises Conflict: in use."""
    with transaction.atomic():
        current = Variant.objects.select_for_update().select_related("application").filter(pk=variant.pk).first()
        if current is None:
            return True
        resident = usage.resident_on([current.pk])
        if resident and not drain:
            raise Conflict(_in_use(f"variant {current}", [current], resident))
        if resident:
            staying = Variant.objects.filter(pk=current.pk).exclude(state=Variant.State.DRAINING)
            if staying.update(state=Variant.State.DRAINING):
                events.changed("variant", str(current))
            return False
        _cancel_profiling([current.pk])
        current.delete()
        events.changed("variant", str(current), replan=current.state in Variant.PLANNED)
    return True


def finish_drains() -> list[str]:
    """Delete what drains and is held nowhere any more; their names."""
    gone = []
    for variant in Variant.objects.filter(
        state=Variant.State.DRAINING, application__state=Application.State.ACTIVE
    ).select_related("application"):
        if delete_variant(variant, drain=True):
            gone.append(str(variant))
    for application in Application.objects.filter(state=Application.State.DRAINING):
        if delete_application(application, drain=True):
            gone.append(application.name)
    if gone:
        logger.info("drained", gone=gone)
    return gone


# --- validation sets ------------------------------------------------------------------------------------------------


def set_validation(application: Application, metric: str, incoming: storage.Incoming) -> tuple[ValidationSet, bool]:
    """Give an application its validation set, replacing one that was there.

    Measured variants are measured again. The upload is consumed as in :func:`create_variant`.

    Returns:
        The set, and whether it is the first.

    Raises:
        InvalidInput: what the inspection found.
        Conflict: the application is being deleted or got another signature meanwhile.
        Busy: other uploads are being inspected.
    """
    try:
        digest = incoming.finish()
        with uploads.inspecting(application.name, "", incoming.size):
            signature = with_rows(application.signature, application.batch)
            facts = sandbox.inspect_validation(incoming.path, signature, metric, settings.NEREUS)
        with storage.placing(incoming):
            _check_unchanged(application)
            incoming.place()
            stored = {"digest": digest, "size_bytes": incoming.size, "metric": metric, "rows": facts["rows"]}
            validation, first = ValidationSet.objects.update_or_create(application=application, defaults=stored)
            profiling.measure_again(application)
            events.changed("validation_set", application.name)
    finally:
        incoming.discard()
    return validation, first


def delete_validation(application: Application) -> None:
    """Measured accuracies stay. Raises Conflict: variants wait to be measured."""
    with transaction.atomic():
        # As uploads do: a variant that is to be measured may be stored in this very moment.
        Application.objects.select_for_update().filter(pk=application.pk).first()
        validation = ValidationSet.objects.filter(application=application).first()
        if validation is None:
            return
        waiting = application.variants.filter(accuracy=None).exclude(state=Variant.State.DRAINING)
        if waiting.exists():
            names = ", ".join(waiting.values_list("name", flat=True)[:10])
            raise Conflict(f"the validation set is in use: {names} have no accuracy until they are measured with it")
        validation.delete()
        events.changed("validation_set", application.name)
