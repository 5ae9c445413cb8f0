"""A whole appliance with TLS for pages, REST, websockets, members' links, model fetches and inference."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import time

import httpx2
import pytest
from cryptography import x509

from tests.forked import of_commands
from tests.running import eventually, serving, v2_request

pytestmark = pytest.mark.wide


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory, tiny_models):
    environment = {"NEREUS_TLS": "on", "NEREUS_PUBLIC_URL": "https://localhost:9443", "NEREUS_PLAN_PERIOD_S": "5"}
    home, models = tmp_path_factory.mktemp("encrypted") / "home", {"quick": tiny_models["quick"]}
    with serving(home, models, **environment) as running:
        yield running


def test_members_link_and_fetch_models_and_queries_are_answered(encrypted):
    with encrypted.inference() as client:
        assert client.post("/v2/models/tiny/infer", json=v2_request(rows=1)).status_code == 200
    eventually(lambda: linked(encrypted), why="the node is linked")
    assert any(line["url"].startswith("wss://") for line in encrypted.events("link_up"))
    assert encrypted.events("fetched")
    assert f"{encrypted.home}/tls/authority.pem" in encrypted.output


def test_the_console_sets_cookies_and_headers_for_its_public_url(encrypted):
    with httpx2.Client(base_url=encrypted.console, verify=encrypted.trust(), timeout=60) as client:
        page = client.get("/admin/login/", headers={"Host": "localhost:9443"})
        cookie = page.headers["set-cookie"]
        assert "Secure" in cookie and "SameSite" in cookie
        assert page.headers["strict-transport-security"] == "max-age=31536000"
        assert "server" not in page.headers
        form = {
            "username": encrypted.credentials["console_user"],
            "password": encrypted.credentials["console_password"],
            "csrfmiddlewaretoken": page.text.split('csrfmiddlewaretoken" value="')[1].split('"')[0],
        }
        headers = {"Host": "localhost:9443", "Cookie": cookie.split(";")[0]}
        for origin, status in (("https://localhost:9443", 302), ("https://localhost:1", 403)):
            answer = client.post("/admin/login/", data=form, headers=headers | {"Origin": origin})
            assert answer.status_code == status, answer.text[:500]
        assert client.get("/", headers={"Host": "elsewhere.example"}).status_code == 400


def test_heads_without_end_are_refused_and_half_ones_are_closed(encrypted):
    """Neither costs memory or a connection for good."""
    port = int(encrypted.console.rpartition(":")[2])

    def connected() -> ssl.SSLSocket:
        return encrypted.trust().wrap_socket(
            socket.create_connection(("127.0.0.1", port), 60), server_hostname="127.0.0.1"
        )

    with connected() as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 70_000)
        assert client.recv(1000).startswith(b"HTTP/1.1 400")
    many = b"".join(b"x-%d: y\r\n" % number for number in range(10_000))
    with connected() as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n" + many)
        assert client.recv(1000).startswith(b"HTTP/1.1 400")
    with connected() as half, socket.create_connection(("127.0.0.1", port), 60) as silent:
        half.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n")
        began = time.monotonic()
        assert half.recv(1000) == b"" and silent.recv(1000) == b""
        assert time.monotonic() - began > 1
    assert httpx2.get(f"{encrypted.console}/health/", verify=encrypted.trust(), timeout=60).status_code == 200


def test_one_command_rotates_the_certificate_and_its_authority(encrypted):
    """Web and gateway take it up; members, and clients of the authority before, go on."""
    before = encrypted.trust()
    first = serial(encrypted, before)
    said = manage(encrypted, "rotate", "tls", "tls-authority")
    assert said.returncode == 0 and "give clients the new tls/authority.pem" in said.stdout, said.stderr
    eventually(lambda: serial(encrypted, before) != first, why="the console uses the new certificate")
    assert serial(encrypted, encrypted.trust()) == serial(encrypted, before)
    assert httpx2.get(f"{encrypted.console}/health/", verify=encrypted.trust(), timeout=60).status_code == 200
    eventually(lambda: answers(encrypted), why="the gateway uses the new certificate, too")
    eventually(lambda: linked(encrypted), why="the node is linked, still or again")


def test_django_finds_nothing_to_object_to_in_a_deployment(encrypted):
    done = manage(encrypted, "check", "--deploy", "--fail-level", "INFO")
    assert done.returncode == 0 and "no issues" in done.stdout, done.stdout + done.stderr


def answers(appliance) -> bool:
    try:
        with appliance.inference() as client:
            return client.post("/v2/models/tiny/infer", json=v2_request(rows=1)).status_code == 200
    except httpx2.ConnectError:
        return False


def linked(appliance) -> bool:
    return httpx2.get(f"{appliance.node_http}/health", trust_env=False, timeout=60).json()["link"]["up"]


def manage(appliance, *arguments: str) -> subprocess.CompletedProcess:
    return of_commands().run("manage.py", *arguments, env={**os.environ, **appliance.environment})


def port_of(appliance) -> int:
    return int(appliance.console.rpartition(":")[2])


def serial(appliance, context: ssl.SSLContext) -> int:
    plain = socket.create_connection(("127.0.0.1", port_of(appliance)), 60)
    with context.wrap_socket(plain, server_hostname="127.0.0.1") as client:
        return x509.load_der_x509_certificate(client.getpeercert(True)).serial_number
