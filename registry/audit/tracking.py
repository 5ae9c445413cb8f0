"""Recording of changes of rows, whichever code makes them.

Rows may be saved, deleted, or updated by a query.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.db import models, transaction
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_save

from registry.audit.recording import record

#: characters of a value as JSON; longer ones are cut
MAX_VALUE = 500
#: columns whose values are never shown, only that they changed
SECRETS = frozenset({"password", "key_hash", "token_hash", "credential_hash"})

#: kind and recorded fields by model
_tracked: dict[type[models.Model], tuple[str, tuple[str, ...]]] = {}


class AuditedQuerySet(models.QuerySet):
    def update(self, **values: Any) -> int:
        _, fields = _tracked.get(self.model, ("", ()))
        if not values.keys() & set(fields):
            return super().update(**values)
        with transaction.atomic():
            before = {row.pk: (_name(row), _values(row)) for row in self.all()}
            changed = super().update(**values)
            if changed:
                for row in self.model._base_manager.filter(pk__in=before):
                    _changed(row, before[row.pk][1])
        return changed

    update.alters_data = True


def track(model: type[models.Model], kind: str, *fields: str) -> None:
    """Record changes of these fields; the manager is an :class:`AuditedQuerySet`."""
    _tracked[model] = (kind, fields)
    uid = f"audit-{model.__name__}"
    pre_save.connect(_remember, sender=model, dispatch_uid=uid)
    post_save.connect(_saved, sender=model, dispatch_uid=uid)
    post_delete.connect(_deleted, sender=model, dispatch_uid=uid)


def track_groups(through: type[models.Model]) -> None:
    m2m_changed.connect(_groups_changed, sender=through, dispatch_uid="audit-groups")


def _remember(sender, instance, raw=False, update_fields=None, **_) -> None:
    _, fields = _tracked[sender]
    instance._audited = None
    if raw or instance.pk is None or (update_fields is not None and not set(update_fields) & set(fields)):
        return
    stored = sender._base_manager.filter(pk=instance.pk).first()
    instance._audited = None if stored is None else _values(stored)


def _saved(sender, instance, created, raw=False, update_fields=None, **_) -> None:
    kind, _ = _tracked[sender]
    if raw:
        return
    if created:
        record("created", kind, _name(instance), after=_shown(_set(instance)))
    elif instance._audited is not None:
        _changed(instance, instance._audited)


def _deleted(sender, instance, **_) -> None:
    kind, _ = _tracked[sender]
    record("deleted", kind, _name(instance), before=_shown(_set(instance)))


def _groups_changed(sender, instance, action, reverse, **_) -> None:
    if reverse or action not in ("pre_add", "pre_remove", "pre_clear", "post_add", "post_remove", "post_clear"):
        return
    roles = sorted(instance.groups.values_list("name", flat=True))
    if action.startswith("pre_"):
        instance._audited_roles = roles
        return
    before = getattr(instance, "_audited_roles", [])
    if before != roles:
        record("changed", "account", instance.get_username(), {"roles": before}, {"roles": roles})


def _changed(row: models.Model, before: Mapping[str, Any]) -> None:
    kind, _ = _tracked[type(row)]
    after = _values(row)
    names = [name for name in after if after[name] != before[name]]
    if names:
        shown = _shown(after, "(new secret)")
        earlier = _shown(before)
        record("changed", kind, _name(row), {n: earlier[n] for n in names}, {n: shown[n] for n in names})


def _values(row: models.Model) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _tracked[type(row)][1]}


def _set(row: models.Model) -> dict[str, Any]:
    return {name: value for name, value in _values(row).items() if value not in (None, "", [], {})}


def _name(row: models.Model) -> str:
    return str(getattr(row, "username", None) or getattr(row, "setting", None) or _qualified(row))


def _qualified(row: models.Model) -> str:
    application = getattr(row, "application", None)
    name = getattr(row, "name", None)
    if application is None:
        return str(name)
    return application.name if name is None else f"{application.name}/{name}"


def _shown(values: Mapping[str, Any], secret: str = "(secret)") -> dict[str, Any]:
    return {name: secret if name in SECRETS else _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, models.Model):
        return str(value)
    text = json.dumps(value, default=str)
    return json.loads(text) if len(text) <= MAX_VALUE else text[:MAX_VALUE] + "…"
