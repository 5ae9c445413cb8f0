"""Django's configuration of the scheduler."""

from django.apps import AppConfig


class SchedulerConfig(AppConfig):
    name = "scheduler"

    def ready(self) -> None:
        from registry import uploads as incoming
        from registry import usage
        from registry.audit.tracking import track
        from registry.events import registry_changed
        from scheduler import plans, uploads
        from scheduler.models import Choice
        from scheduler.reactions import on_change

        track(Choice, "choice", "setting", "value")
        registry_changed.connect(on_change, dispatch_uid="scheduler")
        usage.planned.append(plans.residents)
        incoming.upload_moved.connect(uploads.on_moved, dispatch_uid="scheduler")
        incoming.upload_ended.connect(uploads.on_ended, dispatch_uid="scheduler")
