"""Requests made from the OpenAPI schema, by each role and by none, are answered as the schema says."""

from __future__ import annotations

import pytest
from django.core.cache import cache
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, Phase, given, seed, settings

from registry.access.roles import BY_LABEL
from tests.accounts import account, bearer

ROLES = [None, *BY_LABEL]

pytestmark = [pytest.mark.wide, pytest.mark.usefixtures("redis_server", "kept_connection")]


@pytest.fixture
def kept_connection():
    """Keep the test's own connection, which a request's end would close, as Django's test client does."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


def walk(role: str | None, examples: int) -> tuple[int, list[str]]:
    """Call every operation ``examples`` times: how many requests, and what was wrong with answers."""
    # Each of pytest's processes reads this file; the one that runs it needs the library.
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.core.failures import FailureGroup
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
    app = get_wsgi_application()
    schema = schemathesis.openapi.from_dict(SchemaGenerator().get_schema(request=None, public=True))
    schema.app = app
    # The client that calls the application itself does not take compressed answers apart.
    headers = {"Accept-Encoding": "identity"}
    if role is not None:
        headers["Authorization"] = bearer(account(role, role), role)
    count, faults = 0, []
    for found in schema.get_all_operations():

        @seed(7)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=found.ok().as_strategy())
        def call(case) -> None:
            nonlocal count
            count += 1
            # No throttle ends the walk early.
            cache.clear()
            response = case.call(headers=headers)
            case.validate_response(response, checks=checks, headers=headers)

        try:
            call()
        except FailureGroup as group:
            faults += [f"{found.ok().label}: {fault.title}: {fault.message}"[:600] for fault in group.exceptions]
    return count, faults


@pytest.mark.django_db
@pytest.mark.parametrize("role", ROLES)
def test_no_request_that_the_schema_describes_is_a_server_error(role, application, variant, device):
    variant(), device()
    count, faults = walk(role, 2)
    assert faults == [] and count >= 40


@pytest.mark.long
@pytest.mark.django_db
@pytest.mark.parametrize("role", ROLES)
def test_no_request_out_of_many_is_a_server_error(role, application, variant, device):
    variant(), device()
    count, faults = walk(role, 200)
    assert faults == [] and count >= 4000
