"""The table of audit entries."""

from __future__ import annotations

from django.db import models


class AuditEntry(models.Model):
    at = models.DateTimeField(auto_now_add=True, db_index=True)
    #: an account's name, ``system``, or the operating system's user of a command
    actor = models.CharField(max_length=150, db_index=True)
    #: REST, console, admin site, command, or the appliance itself
    origin = models.CharField(max_length=120)
    address = models.CharField(max_length=45, blank=True, default="")
    action = models.CharField(max_length=20)
    #: the object's kind and name
    kind = models.CharField(max_length=20)
    ref = models.CharField(max_length=150, db_index=True)
    #: the values that changed; empty before the object was made and after it was deleted
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)

    class Meta:
        app_label = "registry"
        ordering = ["-id"]
        verbose_name_plural = "audit entries"

    @property
    def kind_words(self) -> str:
        return self.kind.replace("_", " ")

    @property
    def fields(self) -> list[tuple[str, object, object]]:
        """(field, before, after) of every value in it; None where there is none."""
        return [(name, self.before.get(name), self.after.get(name)) for name in {**self.before, **self.after}]
