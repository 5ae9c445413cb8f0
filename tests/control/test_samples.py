"""The slowest queries of each minute and the latest refused: kept in Redis for an hour, a bounded number."""

from __future__ import annotations

import pytest

from scheduler import live, samples
from tests.accounts import account, bearer
from tests.control.world import application
from workers.protocol.control import GatewayStats
from workers.protocol.specs import ApplicationStats, QuerySample

NOW = 1_800_000_030

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture(autouse=True)
def now(monkeypatch):
    monkeypatch.setattr("registry.clock.wall", lambda: float(NOW))


def answered(latency_ms: float, **more) -> QuerySample:
    times = {"queue_ms": latency_ms - 30, "network_ms": 1.0, "batch_ms": 2.0, "model_ms": 27.0, **more}
    outcome = "in_time" if latency_ms <= 100 else "late"
    return QuerySample(outcome, latency_ms, 100.0, 1, "best", "box/cpu0", 4, **times)


def keep(t: int, name: str = "digits", **fields) -> None:
    stats = GatewayStats(applications={name: ApplicationStats(**fields)}, ready=True)
    samples.record(t, stats, {"digits"})


def test_the_slowest_come_first_with_the_reason_in_words():
    keep(NOW - 3000, slowest=answered(145))
    keep(NOW - 5, slowest=answered(60, tries=2))
    found = samples.last_hour("digits")
    assert [one["latency_ms"] for one in found["slowest"]] == [145, 60]
    assert found["slowest"][0]["why"] == "45 ms late: 115 of 145 ms were spent waiting for a device."
    assert (
        found["slowest"][1]["why"].startswith("In time: 30 of 60 ms") and "sent 2 times" in found["slowest"][1]["why"]
    )


def test_refused_queries_keep_their_reason_the_latest_first():
    for ago in (50, 3, 20):
        keep(NOW - ago, refused=QuerySample("dropped", 1.0, 100.0, reason=f"refused {ago} s ago"))
    assert [one["why"] for one in samples.last_hour("digits")["refused"]] == [
        f"refused {ago} s ago" for ago in (3, 20, 50)
    ]


def test_what_is_kept_is_bounded_and_forgotten_after_an_hour():
    for second in range(200):
        keep(NOW - second, slowest=answered(50 + second), refused=QuerySample("failed", 1.0, 100.0, reason="x"))
    keep(NOW - 3700, slowest=answered(5000))
    client = live.client()
    keys = list(client.scan_iter(live.key("query_*")))
    assert all(0 < client.ttl(key) <= samples.KEEP_S + 60 for key in keys)
    assert all((client.zcard(key) if "slow" in key else client.llen(key)) <= 5 for key in keys)
    found = samples.last_hour("digits")
    assert found["slowest"][0]["latency_ms"] == 249 and len(found["slowest"]) <= samples.SHOWN


def test_samples_of_applications_that_do_not_exist_are_left_out():
    keep(NOW, name="other", slowest=answered(50))
    assert samples.last_hour("other") == {"slowest": [], "refused": []}


def test_rest_shows_them_to_viewers(client):
    application()
    keep(NOW - 5, slowest=answered(145))
    headers = {"Authorization": bearer(account("looker", "viewer"), "viewer")}
    found = client.get("/api/v1/applications/digits/queries/", headers=headers).json()
    (one,) = found["slowest"]
    assert (one["variant"], one["model_ms"], one["outcome"]) == ("best", 27.0, "late") and one["at"].endswith("Z")
    assert client.get("/api/v1/applications/none/queries/", headers=headers).status_code == 404
