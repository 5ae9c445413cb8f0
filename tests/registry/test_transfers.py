"""Models on their way to nodes: resumed after lost links, a few at a time, sharing a rate."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import os
from contextlib import asynccontextmanager

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings

from registry import storage, transfers
from registry.api.views import blobs
from registry.models import Node, hash_secret
from tests.control.linked import served
from tests.control.world import application, variant
from workers.node.cache import FetchError, ModelCache

CONTENT = os.urandom(3_000_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()


# --- places and pace --------------------------------------------------------------------------------------------------


def test_places_go_one_to_each_receiver_and_are_free_again_once_it_went_away():
    places = transfers.Places(2)
    first, second = places.take("a", 0.0), places.take("b", 0.0)
    assert first and second
    assert places.take("a", 1.0) is None and places.take("c", 1.0) is None
    places.free(first)
    assert places.take("b", 2.0) is None and places.take("c", 2.0) is not None
    # b never takes another chunk.
    assert places.take("d", transfers.STALLED_S - 1.0) is None
    assert places.take("d", transfers.STALLED_S) is not None
    places.free(second)
    assert len(places) == 2


def test_all_transfers_share_one_rate():
    pace = transfers.Pace(1000.0)
    assert [pace.wait(500, 10.0) for _ in range(4)] == [0.0, 0.5, 1.0, 1.5]
    # Unused time is not made up for.
    assert pace.wait(500, 60.0) == 0.0
    assert transfers.Pace(0).wait(10**9, 1.0) == 0.0


# --- over HTTP --------------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(transactional_db, clean_redis, monkeypatch):
    few = dataclasses.replace(settings.NEREUS, blob_bytes_per_s=0.0)
    monkeypatch.setattr(transfers, "MOST", 2)
    monkeypatch.setattr(settings, "NEREUS", few)
    for cached in (blobs.places, blobs.pace):
        cached.cache_clear()
    incoming = storage.Incoming(10**7)
    incoming.write(CONTENT)
    incoming.finish()
    with storage.lock():
        incoming.place()
    made = variant(application(), "quick", 90, 5)
    type(made).objects.filter(pk=made.pk).update(digest=DIGEST)
    yield made
    storage.path(DIGEST).unlink(missing_ok=True)
    for cached in (blobs.places, blobs.pace):
        cached.cache_clear()


def node(name: str) -> str:
    Node.objects.create(name=name, state=Node.State.APPROVED, credential_hash=hash_secret(f"secret of {name}"))
    return f"secret of {name}"


class Cutter:
    """A TCP proxy that cuts each connection after ``most`` bytes of answers; ``passed``: of all."""

    def __init__(self, port: int, most: int) -> None:
        self._port, self._most = port, most
        self.passed = self.connections = 0

    @asynccontextmanager
    async def listening(self):
        server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()

    async def _client(self, reader, writer) -> None:
        self.connections += 1
        upstream, sink = await asyncio.open_connection("127.0.0.1", self._port)

        async def forward() -> None:
            while data := await reader.read(65536):
                sink.write(data)

        task, left = asyncio.create_task(forward()), self._most
        try:
            while left > 0 and (data := await upstream.read(min(65536, left))):
                left -= len(data)
                self.passed += len(data)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            task.cancel()
            writer.close()
            sink.close()


def cache(folder, url: str, secret: str, **more) -> ModelCache:
    return ModelCache(folder, url, lambda: secret, limit_bytes=10**7, pauses=(0.01, 0.01), **more)


async def test_a_fetch_whose_link_is_cut_again_and_again_goes_on_where_it_was(stored, tmp_path):
    secret = await sync_to_async(node)("box")
    async with served() as port:
        cutter = Cutter(port, 700_000)
        async with cutter.listening() as url:
            fetching = cache(tmp_path / "cache", url, secret)
            assert (await fetching.fetch(DIGEST)).read_bytes() == CONTENT
            await fetching.close()
    assert cutter.connections >= 5
    # Bodies were sent once; heads may come again.
    assert cutter.passed < len(CONTENT) + 10_000


async def test_a_part_that_was_damaged_is_dropped_and_the_file_fetched_anew(stored, tmp_path):
    secret = await sync_to_async(node)("box")
    folder = tmp_path / "cache"
    folder.mkdir()
    async with served() as port:
        for damaged in (b"x" * 1000, CONTENT + b"too much"):
            (folder / f".partial-{DIGEST}").write_bytes(damaged)
            fetching = cache(folder, f"http://127.0.0.1:{port}", secret)
            assert (await fetching.fetch(DIGEST)).read_bytes() == CONTENT
            await fetching.close()
            (folder / DIGEST).unlink()


async def test_more_nodes_than_places_all_get_the_file(stored, tmp_path, monkeypatch):
    monkeypatch.setattr(transfers, "AGAIN_S", 1)
    secrets = [await sync_to_async(node)(f"box-{number}") for number in range(6)]
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(blobs.places()))
            await asyncio.sleep(0.001)

    async with served() as port:
        watching = asyncio.create_task(watch())
        caches = [cache(tmp_path / secret.replace(" ", "-"), f"http://127.0.0.1:{port}", secret) for secret in secrets]
        paths = await asyncio.gather(*(each.fetch(DIGEST) for each in caches))
        watching.cancel()
        for each in caches:
            await each.close()
    assert all(path.read_bytes() == CONTENT for path in paths)
    assert 1 <= most <= 2


async def test_a_receiver_that_goes_away_in_the_middle_frees_its_place(stored, tmp_path):
    secrets = [await sync_to_async(node)(name) for name in ("slow", "other")]
    async with served() as port:
        for _ in range(3):
            cutter = Cutter(port, 300_000)
            async with cutter.listening() as url:
                fetching = cache(tmp_path / "slow", url, secrets[0])
                fetching._pauses = ()
                with pytest.raises(FetchError):
                    await fetching.fetch(DIGEST)
                await fetching.close()
        fetching = cache(tmp_path / "other", f"http://127.0.0.1:{port}", secrets[1])
        assert (await fetching.fetch(DIGEST)).read_bytes() == CONTENT
        await fetching.close()


def test_ranges_of_a_file(stored, client):
    secret = node("box")

    async def whole(answer) -> bytes:
        return b"".join([chunk async for chunk in answer.streaming_content])

    def get(**headers):
        headers = {f"HTTP_{name}": value for name, value in headers.items()}
        answer = client.get(f"/api/v1/blobs/{DIGEST}/", HTTP_AUTHORIZATION=f"Bearer {secret}", **headers)
        body = async_to_sync(whole)(answer) if answer.streaming else answer.content
        answer.close()
        return answer, body

    answer, body = get()
    assert (answer.status_code, body, answer["ETag"]) == (200, CONTENT, f'"{DIGEST}"')
    for header, part in (
        ("bytes=2999990-", CONTENT[-10:]),
        ("bytes=-7", CONTENT[-7:]),
        ("bytes=5-9", CONTENT[5:10]),
        ("bytes=5-99999999", CONTENT[5:]),
    ):
        answer, body = get(RANGE=header, IF_RANGE=f'"{DIGEST}"')
        assert (answer.status_code, body) == (206, part)
        assert answer["Content-Range"].startswith("bytes ") and answer["Content-Range"].endswith("/3000000")
    # Another file than the part is of, several ranges, and no range at all: the whole file.
    for headers in ({"RANGE": "bytes=5-", "IF_RANGE": '"other"'}, {"RANGE": "bytes=1-2,4-5"}, {"RANGE": "lines=1-2"}):
        answer, body = get(**headers)
        assert (answer.status_code, body) == (200, CONTENT)
    answer, _ = get(RANGE="bytes=3000000-")
    assert (answer.status_code, answer["Content-Range"]) == (416, "bytes */3000000")
