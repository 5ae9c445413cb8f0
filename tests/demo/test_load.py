"""The load as a process: it calibrates over REST, drives the gateway, and stops at once on SIGTERM."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from appliance.demo import load, manifest, register
from appliance.demo.rest import RestError
from tests.demo.serving import V2Server
from tools.waiting import eventually_async

TOKEN = "rest-token"


class Appliance:
    """A real HTTP server with the REST API that the demo uses, which keeps what it was given."""

    def __init__(self):
        self.applications: dict[str, dict] = {}
        self.validation: dict[str, int] = {}
        self.variants: dict[str, dict[str, dict]] = {}
        self.calls: list[tuple[str, str]] = []
        self.state = "ready"
        self.refuse = ""
        self.profiled = True
        appliance = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def _handle(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    status, answer = 401, {"detail": "no such token"}
                else:
                    path = urlsplit(self.path)
                    status, answer = appliance.answer(self.command, path.path, path.query, body)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = _handle

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, method: str, path: str, query: str, body: bytes):
        self.calls.append((method, path))
        if self.refuse and path.endswith(self.refuse) and method != "GET":
            return 400, {"detail": "as told"}
        if path == "/api/v1/devices/":
            up = [{"ref": f"n/cpu{i}", "type": "cpu", "state": "up"} for i in range(2)]
            return 200, {"results": [*up, {"ref": "n/gpu0", "type": "gpu", "state": "down"}]}
        if path == "/api/v1/applications/":
            values = json.loads(body)
            self.applications[values["name"]] = values
            return 201, values
        name, _, rest = path.removeprefix("/api/v1/applications/").partition("/")
        if rest == "":
            return (200, self.applications[name]) if name in self.applications else (404, {})
        if rest == "validation-set/":
            self.validation[name] = len(body)
            return 201, {}
        if rest == "variants/" and method == "POST":
            assert name in self.validation and b'name="accuracy"' not in body
            variant = body.split(b'name="name"\r\n\r\n', 1)[1].split(b"\r\n", 1)[0].decode()
            self.variants.setdefault(name, {})[variant] = {"name": variant, "state": "profiling"}
            return 201, self.variants[name][variant]
        if rest == "variants/":
            found = [{**v, "state": self.state, "detail": "as told"} for v in self.variants.get(name, {}).values()]
            # One to a page, so that a client which forgets the next page is found out.
            place = int(query.removeprefix("page=") or 0) if query else 0
            more = f"{self.url}{path}?page={place + 1}" if place + 1 < len(found) else None
            return 200, {"count": len(found), "results": found[place : place + 1], "next": more}
        assert rest == "frontier/"
        variants = next(a for a in manifest.applications() if a.name == name).variants if self.profiled else ()
        # Not even one row of the most accurate fits the SLO.
        rates = zip(variants, (200.0, 100.0, 50.0, 0.0), strict=bool(variants))
        return 200, {
            "results": [
                {"variant": variant.name, "device_type": "cpu", "rate": rate, "fastest_ms": 50.0}
                for variant, rate in rates
            ]
        }


@pytest.fixture
def appliance():
    with Appliance() as running:
        yield running


def test_everything_is_registered_once_and_measured_not_declared(appliance):
    lines: list[str] = []
    register.register(appliance.url, TOKEN, lines.append)
    demo = manifest.applications()
    assert set(appliance.applications) == {a.name for a in demo} == set(appliance.validation)
    for application in demo:
        assert list(appliance.variants[application.name]) == [v.name for v in application.variants]
        assert appliance.applications[application.name]["signature"] == application.signature
    register.wait_ready(appliance.url, TOKEN, 5)
    before = len([c for c in appliance.calls if c[0] != "GET"])
    events_seen = len(lines)
    register.register(appliance.url, TOKEN, lines.append)
    assert len([c for c in appliance.calls if c[0] != "GET"]) == before
    assert len(lines) == events_seen


def test_an_interrupted_registration_is_completed(appliance):
    register.register(appliance.url, TOKEN, lambda line: None)
    name = manifest.applications()[1].name
    lost = appliance.variants[name].popitem()[0]
    lines: list[str] = []
    register.register(appliance.url, TOKEN, lines.append)
    assert lines == [f"uploaded {name}/{lost}"]


@pytest.mark.parametrize("step", ["applications/", "validation-set/", "variants/"])
def test_a_refusal_is_reported_in_the_appliances_words(appliance, step):
    appliance.refuse = step
    with pytest.raises(RestError, match=r"HTTP 400: .*as told"):
        register.register(appliance.url, TOKEN, lambda line: None)


def test_a_wrong_token_and_an_absent_appliance_are_distinguished(appliance, unused_tcp_port):
    with pytest.raises(RestError, match="HTTP 401"):
        register.register(appliance.url, "other", lambda line: None)
    with pytest.raises(RestError, match="cannot be reached"):
        register.register(f"http://127.0.0.1:{unused_tcp_port}", TOKEN, lambda line: None)


def test_waiting_ends_with_the_failed_or_the_unfinished_variant(appliance):
    register.register(appliance.url, TOKEN, lambda line: None)
    first = manifest.applications()[0]
    appliance.state = "failed"
    with pytest.raises(RestError, match=f"{first.name}/{first.variants[0].name} failed: as told"):
        register.wait_ready(appliance.url, TOKEN, 5)
    appliance.state = "profiling"
    with pytest.raises(RestError, match=rf"not ready after 0.1 s: {first.name}/{first.variants[0].name} \(profiling\)"):
        register.wait_ready(appliance.url, TOKEN, 0.1, poll_s=0.05)


@pytest.mark.parametrize(
    ("text", "why"), [(None, "has no api_token"), ("{", "has no api_token"), ('{"api_key": "k"}', "has no api_token")]
)
def test_unusable_credentials_are_named(tmp_path, text, why):
    path = tmp_path / "credentials.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(load.CredentialsError, match=why):
        load.credential(tmp_path, "api_token")


async def start(tmp_path, gateway: str, control: str) -> asyncio.subprocess.Process:
    credentials = tmp_path / "credentials.json"
    credentials.write_text(json.dumps({"api_key": "secret", "api_token": TOKEN}))
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "appliance.demo.load"),
        stderr=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "NEREUS_HOME": str(tmp_path),
            "NEREUS_HTTP": gateway.removeprefix("http://"),
            "NEREUS_CONSOLE": control.removeprefix("http://"),
        },
    )


async def events(process: asyncio.subprocess.Process) -> list[dict]:
    _, output = await asyncio.wait_for(process.communicate(), 60)
    return [json.loads(line) for line in output.decode().splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_process_sends_until_asked_to_stop_and_sums_up(tmp_path, appliance, number):
    async with V2Server() as gateway:
        process = await start(tmp_path, gateway.url, appliance.url)
        await eventually_async(lambda: gateway.queries >= 10)
        process.send_signal(number)
        events_seen = await events(process)
    assert process.returncode == 0
    planned = {e["application"]: e for e in events_seen if e["event"] == "load planned"}
    ended = {e["application"]: e for e in events_seen if e["event"] == "load ended"}
    assert set(planned) == set(ended) == {a.name for a in manifest.applications()}
    # Two devices of 200 or 20 queries/s, shared by two applications.
    assert all(e["least_accurate_qps"] == 200 and e["most_accurate_qps"] == 20 for e in planned.values())
    total = {key: sum(e[key] for e in ended.values()) for key in ("sent", "in_time", "late", "failed", "abandoned")}
    assert total["sent"] >= gateway.queries >= 10
    assert total["in_time"] + total["late"] + total["failed"] + total["abandoned"] == total["sent"]
    assert gateway.keys == {"Bearer secret"}


async def test_a_rotated_key_is_used_while_the_load_runs(tmp_path, appliance):
    async with V2Server() as gateway:
        process = await start(tmp_path, gateway.url, appliance.url)
        await eventually_async(lambda: gateway.queries >= 10)
        (path,) = tmp_path.glob("*.json")
        path.write_text(json.dumps({**json.loads(path.read_text()), "api_key": "rotated"}))
        await eventually_async(lambda: "Bearer rotated" in gateway.keys)
        process.send_signal(signal.SIGTERM)
        await events(process)
    assert process.returncode == 0 and gateway.keys == {"Bearer secret", "Bearer rotated"}


async def test_stopping_while_it_waits_for_profiles(tmp_path, appliance):
    appliance.profiled = False
    process = await start(tmp_path, "http://127.0.0.1:9", appliance.url)
    await eventually_async(lambda: any(path.endswith("/frontier/") for _, path in appliance.calls))
    await asyncio.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    events_seen = await events(process)
    assert process.returncode == 0
    assert any("has no profile on cpu" in e.get("reason", "") for e in events_seen)
