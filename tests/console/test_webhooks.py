"""Webhooks on the page *Access*."""

import pytest

from registry.webhooks.rows import Webhook

pytestmark = pytest.mark.django_db


def test_a_webhook_is_shown_with_its_latest_delivery_and_without_its_secret(staff):
    one = Webhook.objects.create(name="pager", url="https://example.com/hook", events=["plan"])
    html = staff.get("/access/").content.decode()
    assert 'data-testid="webhook-test-pager"' in html and "none yet" in html and one.secret not in html
    Webhook.objects.update(tried=one.created, error="answered 500", failures=3, enabled=False)
    html = staff.get("/access/").content.decode()
    assert "3 in a row" in html and "answered 500" in html and "Switch on" in html
