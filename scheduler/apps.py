from django.apps import AppConfig
from django.core import checks


class SchedulerConfig(AppConfig):
    name = "scheduler"

    def ready(self) -> None:
        from registry.events import registry_changed
        from scheduler.reactions import on_change

        registry_changed.connect(on_change, dispatch_uid="scheduler")
        checks.register(_strategy_exists)


def _strategy_exists(app_configs, **_):
    """``NEREUS_STRATEGY`` must name a strategy; only the control plane knows which there are."""
    from django.conf import settings

    from scheduler.allocation import strategies

    if settings.NEREUS.strategy not in strategies.names():
        known = ", ".join(strategies.names())
        return [checks.Error(f"NEREUS_STRATEGY={settings.NEREUS.strategy!r}: must be one of {known}", id="nereus.E001")]
    return []
