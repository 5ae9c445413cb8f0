"""``manage.py up`` where Django is loaded already."""

from __future__ import annotations

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from appliance.local.preconditions import StartError
from appliance.local.roles import ALL, Roles
from appliance.local.up import add_arguments, up


class Command(BaseCommand):
    help = (
        "Start the local appliance: Redis, web, Celery, node, gateway, or with --only some of them; with --demo, demo "
        "applications and load too."
    )
    # Checks concern the control plane, which is prepared by a process of its own.
    requires_system_checks = []
    requires_migrations_checks = False

    def add_arguments(self, parser) -> None:
        add_arguments(parser)

    def handle(self, *args, demo: bool = False, only: Roles = ALL, **options) -> None:
        try:
            up(settings.NEREUS, demo, self.stdout, only)
        except StartError as error:
            raise CommandError(str(error)) from None
