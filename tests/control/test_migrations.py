"""Migrations of the models."""

import io

import pytest
from django.core.management import call_command


@pytest.mark.django_db
def test_every_change_of_the_models_has_its_migration():
    call_command("makemigrations", "scheduler", check=True, dry_run=True, stdout=io.StringIO())
