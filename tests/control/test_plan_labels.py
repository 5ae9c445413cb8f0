"""Labels of plan triggers for operators, and their presence in the database."""

import io

import pytest
from django.core.management import call_command

from scheduler.models import Plan


def test_an_overload_is_worded_so_that_executors_and_gateways_may_have_refused():
    assert Plan(trigger=Plan.Trigger.OVERLOAD).get_trigger_display() == "queries were refused"


@pytest.mark.django_db
def test_every_change_of_the_models_has_its_migration():
    call_command("makemigrations", "scheduler", check=True, dry_run=True, stdout=io.StringIO())
