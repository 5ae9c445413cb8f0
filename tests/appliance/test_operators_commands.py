"""``manage.py probe``, ``rest`` and ``member`` against a running appliance, as the playbooks use them."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.forked import of_commands

pytestmark = pytest.mark.wide


@pytest.fixture
def manage(appliance):
    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
        return of_commands().run("manage.py", *arguments, env=appliance.environment | environment)

    return run


def test_a_query_is_answered_for_each_application(manage):
    done = manage("probe", "--query", "--wait", "60")
    assert done.returncode == 0, done.stderr
    assert "all devices are up" in done.stdout and "answered for: tiny" in done.stdout


def test_a_part_of_the_appliance_is_probed_alone(manage, tmp_path):
    done = manage("probe", "--only", "gateway", NEREUS_CONSOLE="127.0.0.1:1")
    assert done.returncode == 0 and "gateway of this box answer" in done.stdout, done.stderr
    refused = manage("probe", "--only", "node", "--query")
    assert refused.returncode != 0 and "needs a gateway" in refused.stderr
    keyless = manage("probe", "--query", "--only", "gateway", NEREUS_HOME=str(tmp_path))
    assert keyless.returncode != 0 and "an API key is needed" in keyless.stderr


def test_rest_calls_and_their_refusals(manage):
    nodes = json.loads(manage("rest", "GET", "nodes/").stdout)
    assert [node["name"] for node in nodes] == ["box"]
    assert manage("rest", "GET", "nodes/none/", "--missing-ok").stdout == "null\n"
    refused = manage("rest", "POST", "api-keys/", "--data", '{"name": ""}')
    assert refused.returncode != 0 and "HTTP 400" in refused.stderr
    assert "Expecting property name" in manage("rest", "POST", "api-keys/", "--data", "{").stderr


def test_a_member_of_the_appliance_follows_the_plan(manage):
    assert manage("member", "node", "box", "--wait", "60").returncode == 0
    assert manage("member", "gateway", "box-gateway", "--wait", "60").returncode == 0
    absent = manage("member", "node", "other")
    assert absent.returncode != 0 and "node other has not joined" in absent.stderr
