"""Unusual and wrong requests are done, or refused with a problem that helps."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
import threading
from http.client import HTTPResponse

import pytest
import uvicorn
from django.conf import settings

from appliance.asgi import application as web
from appliance.local import asgi_server
from registry import models
from tests.accounts import bearer
from tests.full_disks import full_disk
from tests.registry import graphs

APPLICATIONS = "/api/v1/applications/"
TINY = f"{APPLICATIONS}tiny/"
JSON = "Content-Type: application/json"
HALF = 2**18


@pytest.fixture
def port(transactional_db):
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(web, http=asgi_server.LimitedProtocol, lifespan="off", log_level="critical")
    server = asgi_server.Server(config, None)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join()


@pytest.fixture
def ask(port, operator):
    """A function that sends a request as an operator: (status, headers, content)."""

    def ask(
        line: str, *headers: str, body: bytes = b"", chunked: bool = False, host: str = "localhost", token: str = ""
    ):
        if chunked:
            parts = [body[at : at + HALF] for at in range(0, len(body), HALF)] + [b""]
            body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
        size = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
        account = f"Authorization: {token or bearer(operator)}"
        head = "\r\n".join([f"{line} HTTP/1.1", f"Host: {host}", account, size, *headers, "Connection: close"])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(f"{head}\r\n\r\n".encode() + body)
            response = HTTPResponse(client)
            response.begin()
            return response.status, response.headers, response.read()

    return ask


def form(**fields: str | bytes) -> bytes:
    parts = []
    for name, value in fields.items():
        kind = f'; filename="{name}"' if isinstance(value, bytes) else ""
        content = value if isinstance(value, bytes) else value.encode()
        parts.append(f'--x\r\nContent-Disposition: form-data; name="{name}"{kind}\r\n\r\n'.encode() + content)
    return b"\r\n".join([*parts, b"--x--\r\n"])


#: what is wrong: a request, its other arguments, the status, and a part of the detail
WRONG = {
    "a host that is not allowed": ("GET /api/v1/nodes/", {"host": "evil.example"}, 400, "NEREUS_ALLOWED_HOSTS"),
    "a head that is no HTTP": ("GET /api/v1/a b/", {}, 400, "HTTP"),
    "the root of REST": ("GET /api", {}, 404, "nothing at this address"),
    "an unknown address": ("POST /api/v1/klingon", {}, 404, "nothing at this address"),
    "an address in no encoding": ("GET /api/v1/applications/%ff/", {}, 404, ""),
    "a method": ("PUT /api/v1/applications/", {}, 405, '"PUT" not allowed'),
    "a token at the schema": ("GET /api/v1/schema/", {"token": "Bearer no"}, 401, "token is not known"),
    "an API key": ("GET /api/v1/nodes/", {"token": "Bearer nk_x"}, 401, "an API key, which is for queries"),
    "an earlier API key": ("GET /api/v1/nodes/", {"token": "Bearer old"}, 401, "an API key, which is for queries"),
    "a join token": ("GET /api/v1/nodes/", {"token": "Bearer nj_x"}, 401, "a join token"),
    "a type of answers": ("GET /api/v1/nodes/", {"header": "Accept: image/png"}, 406, "Accept header"),
    "a type of bodies": (f"POST {APPLICATIONS}", {"header": "Content-Type: text/csv", "body": b"a"}, 415, "text/csv"),
    "a compressed body": (f"POST {APPLICATIONS}", {"header": "Content-Encoding: gzip", "body": b"a"}, 415, "gzip"),
    "JSON": (f"POST {APPLICATIONS}", {"header": JSON, "body": b"{"}, 400, "JSON parse error"),
    "a large body": (f"POST {APPLICATIONS}", {"header": JSON, "body": bytes(2**21), "chunked": True}, 413, "limit"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_request_is_refused_with_a_problem_that_names_what_is_wrong(what, ask):
    line, more, status, text = WRONG[what]
    models.ApiKey.objects.create(name="old", key_hash=models.hash_secret("old"))
    more = dict(more)
    found, headers, content = ask(line, more.pop("header", "Accept: */*"), **more)
    assert (found, headers["content-type"]) == (status, "application/problem+json"), content
    problem = json.loads(content)
    assert problem["status"] == status and len(problem["detail"]) > 10 and text in problem["detail"]


@pytest.mark.parametrize("slash", ["/", ""])
@pytest.mark.parametrize("chunked", [True, False])
def test_bodies_are_taken_in_chunks_and_without_the_last_slash(ask, chunked, slash, application):
    status, _, content = ask(f"PATCH {TINY[:-1]}{slash}", JSON, body=b'{"slo_ms": 77}', chunked=chunked)
    assert (status, json.loads(content)["slo_ms"]) == (200, 77), content
    upload = form(name="v", accuracy="90", file=graphs.good())
    multipart = "Content-Type: multipart/form-data; boundary=x"
    status, _, content = ask(f"POST {TINY}variants{slash}", multipart, body=upload, chunked=chunked)
    assert status == 201, content
    assert ask(f"DELETE {TINY}variants/v{slash}")[0] == 204
    assert not models.Variant.objects.exists()


def test_pages_without_the_last_slash_are_redirected_with_their_method(ask):
    status, headers, _ = ask("POST /login")
    assert (status, headers["location"]) == (308, "/login/")


def test_a_disk_that_fills_while_a_body_is_spooled_is_named(ask, application, operator, monkeypatch, tmp_path):
    body = form(name="v", accuracy="90", file=bytes(4 * settings.FILE_UPLOAD_MAX_MEMORY_SIZE))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    multipart = "Content-Type: multipart/form-data; boundary=x"
    token = bearer(operator)
    # More than the database has.
    with full_disk(2**23):
        status, headers, content = ask(f"POST {TINY}variants/", multipart, body=body, chunked=True, token=token)
    assert (status, headers["content-type"]) == (507, "application/problem+json"), content
    assert "Free space" in json.loads(content)["detail"]
    assert ask(f"GET {TINY}")[0] == 200
