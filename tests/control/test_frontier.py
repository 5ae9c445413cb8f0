"""The frontier of accuracy and throughput, the present mix, and other SLOs."""

import pytest

from scheduler import frontier
from scheduler.control.planner import make_plan
from tests.accounts import account, bearer
from tests.control.world import KIND, application, arrive, listening, node, variant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture
def digits(clean_redis):
    listening(clean_redis)
    node()
    owner = application(slo_ms=300)
    variant(owner, "quick", 90, 5)
    variant(owner, "good", 99, 40)
    variant(owner, "poor", 85, 50)
    return owner


def test_a_variant_that_is_worse_in_both_is_dominated(digits):
    found = {one.variant: one for one in frontier.frontier(digits)}
    assert {name for name, one in found.items() if one.dominated} == {"poor"}
    assert (found["good"].accuracy, found["good"].device_type) == (pytest.approx(100), KIND)
    assert found["quick"].rate > found["good"].rate > 0


def test_the_present_mix_adds_up(digits):
    arrive("digits", 60)
    make_plan("manual")
    found = frontier.frontier(digits)
    assert sum(one.share for one in found) == pytest.approx(1)
    assert all(one.share == 0 for one in found if one.dominated)


def test_a_shorter_slo_names_variants_that_can_be_used_no_more(digits):
    arrive("digits", 10)
    make_plan("manual")
    said = frontier.consequences(digits, 70)
    assert any(line.startswith(f"good on {KIND} can be used no more: its fastest batch takes 40.0 ms") for line in said)
    assert any("of the planned queries now" in line for line in said)
    assert frontier.consequences(digits, 5)[0].startswith("No variant could be used within 5 ms")


def test_a_longer_slo_brings_variants_back_and_an_equal_one_nothing(digits):
    digits.slo_ms = 70
    assert any(line.startswith(f"good on {KIND} can be used, at up to") for line in frontier.consequences(digits, 300))
    assert frontier.consequences(digits, 70) == ["No variant gains or loses a batch size: plans stay as they are."]


def test_rest_answers_viewers_and_changes_nothing(client, digits):
    headers = {"Authorization": bearer(account("looker", "viewer"), "viewer")}
    points = client.get("/api/v1/applications/digits/frontier/", headers=headers).json()["results"]
    assert {one["variant"] for one in points} == {"quick", "good", "poor"}
    found = client.get("/api/v1/applications/digits/slo/?ms=70", headers=headers).json()
    assert (found["now_ms"], found["slo_ms"]) == (300, 70) and found["consequences"]
    for wrong in ("", "x", "0", "nan", "1e9"):
        assert client.get(f"/api/v1/applications/digits/slo/?ms={wrong}", headers=headers).status_code == 400
    digits.refresh_from_db()
    assert digits.slo_ms == 300
