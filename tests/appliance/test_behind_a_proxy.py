"""The console behind a proxy that terminates TLS."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator

import httpx2
import pytest

from appliance import secrets
from tests.authority import Authority
from tests.running import ROOT, RunningAppliance, eventually, free_ports

pytestmark = pytest.mark.wide

NGINX = """
daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{
    listen 127.0.0.1:{port} ssl; ssl_certificate {certificate}; ssl_certificate_key {key};
    location / {{
      proxy_pass http://127.0.0.1:{console}; proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For 192.0.2.7; proxy_set_header X-Forwarded-Proto https;
    }}
  }}
}}
"""


@pytest.fixture(scope="module")
def console(tmp_path_factory) -> Iterator[RunningAppliance]:
    """The web process alone, with its database, behind a public URL whose port a proxy will have."""
    (port,) = free_ports(1)
    appliance = RunningAppliance(
        tmp_path_factory.mktemp("proxied") / "home", environment={"NEREUS_PUBLIC_URL": f"https://localhost:{port}"}
    )
    appliance.public_port = port
    appliance.home.mkdir()
    secrets.make_credentials(appliance.home)
    how = {"cwd": ROOT, "env": appliance.environment}
    subprocess.run([sys.executable, "manage.py", "prepare"], check=True, capture_output=True, **how)
    command = [sys.executable, "-m", "gunicorn", "-c", "python:appliance.local.web", "appliance.asgi:application"]
    web = subprocess.Popen(command, **how)
    try:
        eventually(lambda: _answers(appliance), why="the web process answers", of=[web])
        yield appliance
    finally:
        web.terminate()
        web.wait(60)


def _answers(appliance: RunningAppliance) -> bool:
    with contextlib.suppress(httpx2.HTTPError):
        return httpx2.get(f"{appliance.console}/health/live", timeout=60).status_code == 200
    return False


@pytest.fixture
def proxied(console, tmp_path):
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    authority = Authority(tmp_path)
    issued = authority.issue("proxy", "localhost")
    port, behind = console.public_port, int(console.console.rpartition(":")[2])
    text = NGINX.format(folder=tmp_path, port=port, console=behind, certificate=issued.certificate, key=issued.key)
    (tmp_path / "nginx.conf").write_text(text)
    process = subprocess.Popen(["nginx", "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "error.log")])
    trust = ssl.create_default_context(cafile=authority.file)
    with httpx2.Client(base_url=f"https://localhost:{port}", verify=trust, timeout=60) as client:
        eventually(lambda: _serves(port), why="the proxy listens", of=[process])
        yield client
    process.terminate()
    process.wait(60)


def _serves(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def sign_in(client: httpx2.Client, console: RunningAppliance, origin: str) -> httpx2.Response:
    page = client.get("/login/")
    known = secrets.credentials(console.home)
    form = {
        "username": known["console_user"],
        "password": known["console_password"],
        "csrfmiddlewaretoken": page.text.split('csrfmiddlewaretoken" value="')[1].split('"')[0],
    }
    return client.post("/login/", data=form, headers={"Origin": origin, "Referer": f"{origin}/login/"})


def test_sign_in_works_at_the_public_url_with_its_port(proxied, console):
    public = f"https://localhost:{console.public_port}"
    assert sign_in(proxied, console, "https://localhost").status_code == 403, "another port is another site"
    answer = sign_in(proxied, console, public)
    assert answer.status_code == 302
    cookies = {line.partition("=")[0]: line for line in answer.headers.get_list("set-cookie")}
    port = console.console.rpartition(":")[2]
    assert {f"nereus_session_{port}", f"nereus_csrf_{port}"} <= set(cookies)
    assert all("; Secure" in line for line in cookies.values()), cookies
    assert proxied.get("/admin/").headers["strict-transport-security"] == "max-age=31536000"
    # Addresses that the console makes itself are the public ones.
    listed = proxied.get("/api/v1/applications/?limit=1").json()
    assert listed["next"] is None or listed["next"].startswith(public)
    assert "checks" in proxied.get("/health/").json(), "signed in"


def test_callers_behind_the_proxy_are_not_on_this_box(proxied):
    assert proxied.get("/metrics").status_code == 401
    assert "checks" not in proxied.get("/health/").json()


def test_forwarding_headers_of_others_are_not_believed(console):
    """This box is trusted by default; a console that trusts only another proxy ignores its headers."""
    untrusting = {**console.environment, "NEREUS_TRUSTED_PROXIES": "192.0.2.1"}
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "gunicorn", "-c", "python:appliance.local.web", "appliance.asgi:application"]
    environment = untrusting | {"NEREUS_CONSOLE": f"127.0.0.1:{port}"}
    web = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        eventually(lambda: _serves(port), why="the web process listens", of=[web])
        url, forwarded = f"http://127.0.0.1:{port}", {"X-Forwarded-For": "198.51.100.1", "X-Forwarded-Proto": "https"}
        eventually(lambda: httpx2.get(f"{url}/health/live", timeout=60).status_code == 200)
        assert "strict-transport-security" not in httpx2.get(f"{url}/login/", headers=forwarded, timeout=60).headers
        assert httpx2.get(f"{url}/metrics", headers=forwarded, timeout=60).status_code == 200, (
            "from this box, whatever it says"
        )
    finally:
        web.terminate()
        web.wait(60)
    assert httpx2.get(f"{console.console}/metrics", headers=forwarded, timeout=60).status_code == 401, (
        "the trusted proxy says so"
    )
