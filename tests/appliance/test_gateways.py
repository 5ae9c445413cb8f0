"""``NEREUS_GATEWAYS=2``: two processes take in queries, the first decides, and there is one set of figures."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from collections import Counter

import httpx2
import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families

from scheduler.telemetry import GATEWAY_STREAM
from tests.running import eventually, serving, v2_request

pytestmark = pytest.mark.wide

NAMES = {"box-gateway", "box-gateway-2"}


@pytest.fixture(scope="module")
def appliance(tmp_path_factory, tiny_models):
    """An appliance with two gateways that serves ``tiny`` and plans only when something happens."""
    # A stack without a batching delay: a client that asks one by one is answered at once.
    environment = {"NEREUS_GATEWAYS": "2", "NEREUS_PLAN_PERIOD_S": "600", "NEREUS_STACK": "infaas-accuracy"}
    models = {"quick": tiny_models["quick"]}
    with serving(tmp_path_factory.mktemp("two") / "home", models, **environment) as running:
        eventually(lambda: ready_everywhere(running), why="both gateways serve tiny", of=[running])
        yield running


def page(appliance) -> dict[tuple[str, str], float]:
    found: Counter = Counter()
    for family in text_string_to_metric_families(httpx2.get(appliance.node_http + "/metrics", timeout=60).text):
        for sample in family.samples:
            if "gateway" in sample.labels:
                found[sample.name, sample.labels["gateway"]] += sample.value
    return found


def ready_everywhere(appliance) -> bool:
    found = page(appliance)
    return all(found["nereus_gateway_ready", n] == 1 and found["nereus_gateway_plan_version", n] > 0 for n in NAMES)


class Queries:
    """Queries of ``rows`` each on new connections, about ``rate`` a second, within the block."""

    def __init__(self, appliance, rate: float, rows: int = 1):
        self._rows = rows
        self._port = int(appliance.http.rpartition(":")[2])
        self._headers = {"Authorization": f"Bearer {appliance.credentials['api_key']}"}
        self._pause_s = 1 / rate
        self._stop = threading.Event()
        self.answers: Counter = Counter()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Queries:
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def stop(self) -> Counter:
        self._stop.set()
        self._thread.join(120)
        return self.answers

    def _run(self) -> None:
        while not self._stop.wait(self._pause_s):
            self.answers[self.one()] += 1

    def one(self) -> int | str:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request("POST", "/v2/models/tiny/infer", json.dumps(v2_request(self._rows)), self._headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return "cut"
        finally:
            connection.close()


def arrived(appliance) -> Counter:
    """Queries that the control plane was told of, by gateway; the rows of all under ``rows``."""
    client = redis.Redis(unix_socket_path=str(appliance.home / "run" / "redis.sock"), decode_responses=True)
    found: Counter = Counter()
    for _, fields in client.xrange(GATEWAY_STREAM):
        second = json.loads(fields["d"])
        for counts in second["applications"].values():
            found[second["gateway"]] += counts["arrived"]
            found["rows"] += counts["arrived_rows"]
    return found


def statistics(appliance) -> set[int]:
    with appliance.inference() as client:
        headers = dict(client.headers)
    found = set()
    for _ in range(12):
        connection = http.client.HTTPConnection("127.0.0.1", int(appliance.http.rpartition(":")[2]), timeout=60)
        connection.request("GET", "/v2/models/tiny/stats", headers=headers)
        found.add(json.loads(connection.getresponse().read())["model_stats"][0]["inference_count"])
        connection.close()
    return found


def agreed(appliance) -> int:
    """The count of answered queries, reported a moment later, on which processes at rest agree."""

    def still() -> int | None:
        first = statistics(appliance)
        time.sleep(0.5)
        return first.pop() if len(first) == 1 and first == statistics(appliance) else None

    return eventually(still, why="they agree")


def test_both_serve_and_what_they_count_adds_up_to_what_was_sent(appliance):
    with appliance.rest() as client:
        gateways = client.get("/gateways/").json()["results"]
    assert {gateway["name"] for gateway in gateways if gateway["connected"]} == {"box-gateway"}
    queries = Queries(appliance, 1, rows=3)
    assert [queries.one() for _ in range(40)] == [200] * 40
    eventually(lambda: statistics(appliance) == {120}, why="every process reports all 120 rows")
    counted = eventually(lambda: (c := arrived(appliance))["rows"] == 120 and c, why="all rows are reported")
    assert counted["box-gateway"] == 40
    found = page(appliance)
    assert sum(found["nereus_gateway_queries_total", name] for name in NAMES) == 40
    assert all(found["nereus_gateway_queries_total", name] for name in NAMES)
    assert all(found["nereus_node_gateway_up", name] == 1 for name in NAMES)
    assert found["nereus_gateway_grant_rows_sum", "box-gateway"] == 120


def test_a_burst_over_both_is_one_burst_and_makes_a_plan(appliance):
    with appliance.rest() as client:
        plan = client.get("/plan/").json()
    high, before_version = plan["wire"]["bands"]["tiny"]["high"], plan["version"]
    before = appliance.events("burst")
    # On a busy machine far fewer than 40 a second are answered, and few are to be enough.
    with Queries(appliance, 40, rows=round(high)):
        bursts = eventually(lambda: appliance.events("burst")[len(before) :], why="the burst is noticed")
        with appliance.rest() as client:
            plans = eventually(
                lambda: [
                    p
                    for p in client.get("/plans/").json()["results"]
                    if "tiny at" in p["trigger_detail"] and p["version"] > before_version
                ],
                why="a plan for it",
            )
    # The first gateway judges for both; the control plane notes what it is told.
    assert {burst["process"] for burst in bursts} - {"control"} == {"gateway"}
    assert {burst["application"] for burst in bursts} == {"tiny"}
    # Another change at the same moment may name the plan.
    assert plans[-1]["trigger"] in ("burst", "change")


def loss_is_reported(appliance, victim: int) -> bool:
    """Whether metrics say that the second gateway alone is gone; true where it is back before they were read."""
    found = page(appliance)
    if found["nereus_node_gateway_up", "box-gateway-2"] == 0:
        assert found["nereus_node_gateway_up", "box-gateway"] == 1
        return True
    return appliance.pid("gateway-2") != victim


def test_one_killed_comes_back_while_the_other_serves(appliance):
    agreed_rows = agreed(appliance)
    victim = appliance.pid("gateway-2")
    with Queries(appliance, 50) as queries:
        time.sleep(0.5)
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: loss_is_reported(appliance, victim), why="it is gone")
        eventually(lambda: appliance.pid("gateway-2") != victim, why="it is started again")
        eventually(lambda: page(appliance)["nereus_node_gateway_up", "box-gateway-2"] == 1, why="it is back")
        eventually(lambda: ready_everywhere(appliance), why="it serves again")
        answers = queries.stop()
    assert appliance.pid("gateway-2") != victim
    # Only what it had in hand is lost: with one query at a time, one at the most.
    assert answers["cut"] <= 1 and set(answers) <= {200, "cut"}
    # Its counts of the last second may be lost, and nothing is counted twice.
    assert agreed_rows < agreed(appliance) <= agreed_rows + answers[200]


def test_the_one_with_the_core_that_is_killed_is_back_before_most_queries_are_over(appliance):
    victim = appliance.pid("gateway")
    with Queries(appliance, 20) as queries:
        time.sleep(0.5)
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: appliance.pid("gateway") not in (victim, None), why="it is started again")
        eventually(lambda: ready_everywhere(appliance), why="it serves again")
        before = queries.answers[200]
        eventually(lambda: queries.answers[200] > before + 5, why="answers")
        answers = queries.stop()
    # Those that could not wait are refused, and what it had in hand is lost.
    assert answers["cut"] <= 1 and set(answers) <= {200, 503, 504, "cut"}


def test_gateways_that_hang_are_replaced(appliance):
    for service in ("gateway", "gateway-2"):
        victim = appliance.pid(service)
        os.kill(victim, signal.SIGSTOP)
        eventually(lambda service=service, victim=victim: appliance.pid(service) != victim, why=f"{service} replaced")
        eventually(lambda: ready_everywhere(appliance), why="it serves again")
    with Queries(appliance, 20) as queries:
        eventually(lambda: queries.answers.total() >= 5, why="answers")
        assert set(queries.stop()) == {200}


def test_it_stops_in_order_and_leaves_nothing(appliance):
    appliance.stop()
    assert appliance.group_members() == [] and appliance.ports_open() == []
    stopped = {line["service"]: line["status"] for line in appliance.events("service_stopped")}
    assert stopped["gateway"] == stopped["gateway-2"] == 0
    assert list((appliance.home / "run").glob("*.sock")) == []
