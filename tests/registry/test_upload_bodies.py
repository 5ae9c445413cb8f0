"""Bodies of uploads: how large they may be, who may send them, and how they are shown and cancelled."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest
from channels.db import database_sync_to_async
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.test import Client as Browser
from django.utils import timezone

from registry import models, uploads
from registry.api import body_limit
from registry.api.body_limit import BodyLimit
from registry.errors import Conflict
from scheduler import operations
from scheduler import uploads as shown_uploads
from tests.accounts import account, bearer
from tests.registry import graphs
from tools.waiting import eventually_async

GOOD = graphs.good()


@pytest.mark.django_db(transaction=True)
async def test_a_body_of_unknown_length_is_cut_off_while_it_streams(transactional_db, application, operator, files):
    limit = 2**20
    authorization = await database_sync_to_async(bearer)(operator)
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 2**16
            yield bytes(2**16)

    transport = httpx2.ASGITransport(BodyLimit(get_asgi_application(), limit))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        response = await http.post(
            "/api/v1/applications/tiny/variants/",
            content=endless(),
            headers={"Authorization": authorization, "Content-Type": "multipart/form-data; boundary=x"},
        )
    assert response.status_code == 413
    assert response.headers["content-type"] == "application/problem+json"
    assert "limit of 1048576 bytes" in response.json()["errors"][0]["detail"]
    assert sent <= limit + 2**18
    assert files() == []


async def test_an_announced_length_is_refused_before_the_body():
    transport = httpx2.ASGITransport(BodyLimit(get_asgi_application(), 1000))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        response = await http.post("/api/v1/applications/", content=bytes(200_000))
    assert response.status_code == 413


class Upload:
    def __init__(self, limits: BodyLimit, headers: dict[str, str], announced: int | None = None):
        self.taken = 0
        self.sent: asyncio.Queue = asyncio.Queue()
        self.answer: list[dict] = []
        lines = {"host": "localhost", "content-type": "multipart/form-data; boundary=x", **headers}
        if announced is not None:
            lines["content-length"] = str(announced)
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/api/v1/applications/tiny/variants/",
            "query_string": b"",
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
            "headers": [(name.encode(), value.encode()) for name, value in lines.items()],
        }
        self.task = asyncio.create_task(limits(scope, self._receive, self._send))

    async def _receive(self) -> dict:
        chunk = await self.sent.get()
        self.taken += len(chunk)
        return {"type": "http.request", "body": chunk, "more_body": True}

    async def _send(self, message: dict) -> None:
        self.answer.append(message)

    async def status(self) -> tuple[int, dict]:
        async with asyncio.timeout(60):
            await self.task
        body = b"".join(message.get("body", b"") for message in self.answer[1:])
        return self.answer[0]["status"], json.loads(body)


def limit(bytes: int = 2**26, **more) -> BodyLimit:
    return BodyLimit(get_asgi_application(), bytes, **more)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("announced", [2**25, None])
@pytest.mark.parametrize(
    "caller, status", [(None, 401), ("Bearer x", 401), ("Cookie", 401), ("viewer", 403), ("expired", 401)]
)
async def test_more_than_a_megabyte_is_read_from_callers_alone_who_may_upload(
    transactional_db, application, caller, status, announced
):
    headers = {} if caller is None else {"authorization": caller}
    if caller == "Cookie":
        headers = {"cookie": f"{settings.SESSION_COOKIE_NAME}=nothing"}
    if caller in ("viewer", "expired"):
        user = await database_sync_to_async(account)("someone", "viewer" if caller == "viewer" else "operator")
        headers = {"authorization": await database_sync_to_async(bearer)(user)}
    if caller == "expired":
        await models.ApiToken.objects.aupdate(expires=timezone.now())
    upload = Upload(limit(), headers, announced)
    for _ in range(64):
        upload.sent.put_nowait(bytes(2**19))
    found, problem = await upload.status()
    assert found == status and problem["detail"]
    assert upload.taken <= (0 if announced else 2**21)


@pytest.mark.django_db(transaction=True)
async def test_an_operators_session_uploads_too(transactional_db, application, operator):
    browser = Browser()
    await database_sync_to_async(browser.force_login)(operator)
    name = settings.SESSION_COOKIE_NAME
    upload = Upload(limit(2**21), {"cookie": f"{name}={browser.cookies[name].value}"})
    for _ in range(8):
        upload.sent.put_nowait(bytes(2**19))
    status, problem = await upload.status()
    assert status == 413, problem
    assert upload.taken > 2**21, "read beyond the first megabyte"


@pytest.mark.django_db(transaction=True)
async def test_two_large_uploads_at_once_are_the_most(transactional_db, application, operator):
    headers = {"authorization": await database_sync_to_async(bearer)(operator)}
    limits = limit()
    first, second = Upload(limits, headers, 2**25), Upload(limits, headers, 2**25)
    for upload in (first, second):
        upload.sent.put_nowait(bytes(10))
    await eventually_async(lambda: first.taken and second.taken)
    status, problem = await Upload(limits, headers, 2**25).status()
    assert status == 503 and "2 large uploads are being received" in problem["detail"]
    first.task.cancel()
    await asyncio.gather(first.task, return_exceptions=True)
    third = Upload(limits, headers, 2**25)
    third.sent.put_nowait(bytes(10))
    await eventually_async(lambda: third.taken)
    for upload in (second, third):
        upload.task.cancel()
    await asyncio.gather(second.task, third.task, return_exceptions=True)


@pytest.mark.django_db(transaction=True)
async def test_an_upload_is_a_task_of_its_sender_that_owners_cancel(
    transactional_db, application, operator, clean_redis, monkeypatch
):
    monkeypatch.setattr(body_limit, "REPORT_EVERY_S", 0.0)
    owner = Browser()
    await database_sync_to_async(owner.force_login)(await database_sync_to_async(account)("owner", "model owner"))

    async def tasks() -> list[dict]:
        answer = await database_sync_to_async(owner.get)("/api/v1/tasks/")
        return [one for one in answer.json()["results"] if one["kind"] == "upload"]

    upload = Upload(limit(), {"authorization": await database_sync_to_async(bearer)(operator)}, 2**22)
    upload.sent.put_nowait(bytes(2**20))
    (task,) = await eventually_async(tasks)
    assert (task["by"], task["application"], task["state"]) == ("operator", "tiny", "running")
    assert (task["detail"], task["progress"]) == ("received 1.0 MiB of 4.0", 0.25)
    nothing = await database_sync_to_async(owner.delete)("/api/v1/uploads/another/")
    assert nothing.status_code == 404
    cancelled = await database_sync_to_async(owner.delete)(task["cancel"])
    assert cancelled.status_code == 204
    upload.sent.put_nowait(bytes(2**20))
    status, problem = await upload.status()
    assert (status, problem["detail"]) == (409, "the upload was cancelled by owner")
    assert await tasks() == []


def test_an_inspection_is_reported_with_its_sender_and_cannot_be_cancelled(upload, operator, clean_redis):
    states = []

    def listen(sender, upload, **_):
        (task,) = [one for one in operations.current() if one.kind == "upload"]
        states.append((task.by, task.title, task.detail.split()[0], task.cancel))
        with pytest.raises(Conflict):
            shown_uploads.cancel(upload.key, "owner")

    uploads.upload_moved.connect(listen)
    try:
        assert upload(graphs.good()).status_code == 201
    finally:
        uploads.upload_moved.disconnect(listen)
    assert states == [("operator", "tiny/v", "inspecting", "")]
    assert shown_uploads.current() == []


@pytest.mark.django_db(transaction=True)
async def test_a_sender_that_stays_silent_or_trickles_is_cut_off(transactional_db, application, operator):
    headers = {"authorization": await database_sync_to_async(bearer)(operator)}
    silent = Upload(limit(silence_s=0.2), headers, 2**25)
    status, problem = await silent.status()
    assert status == 408 and "no data for 0.2 s" in problem["detail"]
    slow = Upload(limit(silence_s=0.5), headers, 2**25)

    async def trickle() -> None:
        while not slow.task.done():
            slow.sent.put_nowait(b"x")
            await asyncio.sleep(0.05)

    await trickle()
    status, problem = await slow.status()
    assert status == 408 and "bytes/s" in problem["detail"]
