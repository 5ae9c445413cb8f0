from django.apps import AppConfig
from django.core import checks


class SchedulerConfig(AppConfig):
    name = "scheduler"

    def ready(self) -> None:
        from registry import usage
        from registry.events import registry_changed
        from scheduler.control.residents import in_force
        from scheduler.reactions import on_change

        registry_changed.connect(on_change, dispatch_uid="scheduler")
        usage.planned.append(in_force)
        checks.register(_names_exist)


def _names_exist(app_configs, **_):
    """``NEREUS_STRATEGY`` and ``NEREUS_ROUTING`` must name what there is; only the control plane knows all of it."""
    from scheduler.control import choices

    defaults, allowed = choices.defaults(), choices.allowed()
    return [
        checks.Error(f"{variable}={name!r}: must be one of {', '.join(allowed[setting])}", id=id)
        for setting, variable, name, id in (
            ("strategy", "NEREUS_STRATEGY", defaults.strategy, "nereus.E001"),
            ("routing", "NEREUS_ROUTING", defaults.routing, "nereus.E002"),
        )
        if name not in allowed[setting]
    ]
