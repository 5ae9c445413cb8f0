from django.apps import AppConfig


class SchedulerConfig(AppConfig):
    name = "scheduler"

    def ready(self) -> None:
        from registry import usage
        from registry.events import registry_changed
        from scheduler.control.residents import in_force
        from scheduler.reactions import on_change

        registry_changed.connect(on_change, dispatch_uid="scheduler")
        usage.planned.append(in_force)
