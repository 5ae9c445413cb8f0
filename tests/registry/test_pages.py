"""Pages outside the REST framework, and addresses that nothing serves."""

import pytest
from django.apps import apps
from django.http import Http404
from django.test import Client, RequestFactory

from console.views.access import not_found
from registry import models
from tests.registry.conftest import problem


def test_the_admin_site_has_accounts_alone(db, django_user_model):
    client = Client()
    client.force_login(django_user_model.objects.create_superuser("root"))
    assert client.get("/admin/auth/user/").status_code == 200
    for model in apps.get_app_config("registry").get_models():
        assert client.get(f"/admin/registry/{model._meta.model_name}/").status_code == 404


def test_an_address_that_nothing_serves_is_a_problem_under_the_api_only():
    response = not_found(RequestFactory().get("/api/v1/planets/"), Http404())
    response.json = lambda: __import__("json").loads(response.content)
    problem(response, 404)
    elsewhere = not_found(RequestFactory().get("/planets/"), Http404())
    assert elsewhere.status_code == 404 and elsewhere["Content-Type"].startswith("text/html")


def test_a_page_of_a_list_is_bounded_whatever_is_asked_for(client):
    models.ApiKey.objects.bulk_create(
        models.ApiKey(name=f"key-{number}", prefix="x", key_hash=f"{number}") for number in range(1005)
    )
    for limit in (1001, 10**20):
        page = client.get(f"/api/v1/api-keys/?limit={limit}").json()
        assert (page["count"], len(page["results"])) == (1005, 1000)
    assert client.get(f"/api/v1/plans/?limit={10**20}&offset={10**20}").json()["results"] == []


WORDS = ("x", "", "0", "-5", "1.5", "1_0", "%201", "9" * 301)


@pytest.mark.parametrize("name", ["api-keys", "plans", "tasks", "repairs", "promises"])
def test_a_page_that_cannot_be_is_reported_with_its_field(clean_redis, name, client):
    for field, least, words in (("limit", 1, WORDS), ("offset", 0, ("x", "-1"))):
        for word in words:
            errors = problem(client.get(f"/api/v1/{name}/?offset=1&{field}={word}"), 400)
            assert set(errors) == {field} and f"must be a whole number from {least} on, not" in errors[field]
            assert len(errors[field]) < 120
