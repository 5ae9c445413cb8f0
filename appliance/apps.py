"""Django's configuration of the appliance."""

from django.apps import AppConfig


class ApplianceConfig(AppConfig):
    name = "appliance"

    def ready(self) -> None:
        # Tasks are sent from web processes too; without this import they would go to Celery's default broker. Not in
        # the package's __init__, so that what only needs a part of it (the demo's load) stays light.
        from appliance.celery import app  # noqa: F401
