"""``./nereus`` against a real appliance: each of its commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess

import pytest
from django.core.management import get_commands

from appliance.cli import COMMANDS, OPTIONS
from appliance.cli.main import parser
from tests.forked import of_commands
from tests.running import ROOT, SIGNATURE

pytestmark = pytest.mark.wide


@pytest.fixture
def nereus(appliance):
    def run(*arguments: str, refused: bool = False, **environment: str) -> str:
        done = of_commands().run("nereus", *arguments, env=appliance.environment | environment)
        assert (done.returncode != 0) == refused, done.stdout + done.stderr
        return done.stderr if refused else done.stdout

    return run


def test_status_applications_and_nodes_are_listed(nereus):
    assert nereus("status").startswith("Plan ")
    assert "tiny" in nereus("applications") and "quick (" in nereus("applications")
    (node,) = json.loads(nereus("--json", "nodes"))
    assert node["name"] == "box" and node["release"] and node["devices"]
    assert [one["name"] for one in json.loads(nereus("nodes", "--json"))] == ["box"]
    assert "box" in nereus("nodes")


def test_a_reader_may_go_away_and_a_disk_be_full(appliance):
    """The former as in ``nereus nodes | head``."""
    reading, writing = os.pipe()
    os.close(reading)
    for output, message in (
        (writing, ""),
        (os.open("/dev/full", os.O_WRONLY), "nereus: [Errno 28] No space left on device\n"),
    ):
        with os.fdopen(output, "wb") as stream:
            done = subprocess.run(
                ["./nereus", "--json", "nodes"],
                cwd=ROOT,
                env=appliance.environment,
                stdout=stream,
                stderr=subprocess.PIPE,
                text=True,
                timeout=120,
            )
        assert (done.returncode, done.stderr) == (1, message)


def test_a_plan_says_why_and_can_be_asked_for(nereus):
    text = nereus("plan")
    assert text.startswith("Plan ") and "Limit: " in text and "Limit: [" not in text
    assert "plan" in nereus("plan", "--now")
    assert "stack nereus" in nereus("plan", "--stack", "")


def test_a_query_is_tried(nereus):
    assert "%) on box/" in nereus("try", "tiny", "x=1,2,3,4")
    assert "no such input" in nereus("try", "tiny", "z=1", refused=True)
    assert "404" in nereus("try", "nothing", refused=True)


def test_an_slo_is_looked_at_and_changed(nereus, appliance):
    assert nereus("slo", "tiny", "300", "--look")
    with appliance.rest() as client:
        assert client.get("/applications/tiny/").json()["slo_ms"] == 400
        assert "is 500 ms now" in nereus("slo", "tiny", "500")
        assert client.patch("/applications/tiny/", json={"slo_ms": 400}).status_code == 200


def test_a_key_is_made_and_a_node_is_cordoned_by_force_alone(nereus, appliance):
    key = nereus("key", "line-3", "--applications", "tiny", "--rate", "10").strip()
    with appliance.rest() as client:
        assert client.get("/api-keys/line-3/").json()["prefix"] == key[:8]
        assert client.delete("/api-keys/line-3/").status_code == 204
    assert "force" in nereus("cordon", "box", refused=True)
    assert "use the devices of box again" in nereus("cordon", "box", "--end")


def test_a_body_that_is_no_json_is_refused_with_its_option():
    options = parser().parse_args(["rest", "POST", "plan/", "--data", "{"])
    with pytest.raises(ValueError, match="--data: must be JSON: "):
        options.act(None, options)


def test_an_upload_is_accepted(nereus, appliance, tiny_models):
    with appliance.rest() as client:
        new = {"name": "uploads", "slo_ms": 400, "signature": SIGNATURE}
        client.post("/applications/", json=new).raise_for_status()
        said = nereus("upload", "uploads", str(tiny_models["quick"]), "--name", "mine", "--accuracy", "80")
        assert "uploads/mine was accepted; it is profiling" in said
        assert client.get("/applications/uploads/variants/mine/").json()["accuracy"] == 80
        client.delete("/applications/uploads/?drain=true").raise_for_status()


def test_an_upload_and_a_join_are_refused_with_the_reason(nereus, tmp_path):
    (tmp_path / "junk.onnx").write_bytes(b"no model" * 100)
    assert "HTTP 400" in nereus("upload", "tiny", str(tmp_path / "junk.onnx"), "--accuracy", "50", refused=True)
    # This console listens on loopback alone.
    assert "NEREUS_CONSOLE" in nereus("join", "node", refused=True)


def test_another_console_needs_a_token_of_its_own(nereus, appliance, tmp_path):
    assert "needs --token-file" in nereus("--url", appliance.console, "nodes", refused=True)
    for text in ("", "box:8080"):
        assert "argument --url: must begin with http" in nereus("nodes", "--url", text, refused=True)
    token = tmp_path / "token"
    token.write_text(appliance.credentials["api_token"])
    arguments = ["--url", appliance.console, "--token-file", str(token), "nodes"]
    assert "box" in nereus(*arguments, NEREUS_HOME=str(tmp_path))


def test_the_readme_uses_commands_as_they_are():
    text = (ROOT / "README.md").read_text()
    lines = re.findall(r"^\./nereus ([^#\n]+)", text, re.MULTILINE)
    assert {parser().parse_args(shlex.split(line)).act for line in lines} and len(lines) >= 4
    commands = re.findall(r"^    (\w+) ", parser().format_help(), re.MULTILINE)
    assert tuple(commands) == COMMANDS


def test_manage_py_has_the_commands_too(appliance, tmp_path):
    """On a box, ``nereus`` is manage.py with the box's settings."""
    token = tmp_path / "token"
    token.write_text(appliance.credentials["api_token"])

    def manage(*arguments: str) -> str:
        return of_commands().run("manage.py", *arguments, env=appliance.environment).stdout

    for arguments in (["nodes", "--json"], ["--json", "nodes"], [f"--token-file={token}", "--json", "nodes"]):
        assert [one["name"] for one in json.loads(manage(*arguments))] == ["box"]
    options = re.findall(r"^  (--[\w-]+)", parser().format_help(), re.MULTILINE)
    assert tuple(options) == OPTIONS
    assert get_commands().keys().isdisjoint(COMMANDS)
    assert ", ".join(COMMANDS) in manage("--help")
