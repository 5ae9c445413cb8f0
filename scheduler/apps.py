from django.apps import AppConfig


class SchedulerConfig(AppConfig):
    name = "scheduler"

    def ready(self) -> None:
        from registry import usage
        from registry.audit.tracking import track
        from registry.events import registry_changed
        from scheduler.control.residents import in_force
        from scheduler.models import Choice
        from scheduler.reactions import on_change

        track(Choice, "choice", "setting", "value")
        registry_changed.connect(on_change, dispatch_uid="scheduler")
        usage.planned.append(in_force)
