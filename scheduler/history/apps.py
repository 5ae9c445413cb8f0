"""Django's configuration of the history."""

from django.apps import AppConfig


class HistoryConfig(AppConfig):
    name = "scheduler.history"
    label = "history"

    def ready(self) -> None:
        from django.db.models.signals import post_save

        from registry.models import AuditEntry, Fault, Variant
        from scheduler.history.marking import changed, faulted, uploaded

        post_save.connect(uploaded, sender=Variant, dispatch_uid="history")
        post_save.connect(changed, sender=AuditEntry, dispatch_uid="history-changes")
        post_save.connect(faulted, sender=Fault, dispatch_uid="history-faults")
