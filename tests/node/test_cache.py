"""The model cache against real HTTP."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from workers.node.cache import FetchError, ModelCache

MODEL = os.urandom(700_000)


@pytest.fixture
async def cache(home, control_plane):
    cache = ModelCache(
        home / "cache", control_plane.url, lambda: "secret", limit_bytes=1_000_000, spare_bytes=250, pauses=(0.01, 0.01)
    )
    yield cache
    await cache.close()


def _files(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "cache").iterdir())


async def test_a_file_is_fetched_once_with_the_credential(cache, control_plane, home):
    digest = control_plane.add_blob(MODEL)
    paths = await asyncio.gather(*(cache.fetch(digest) for _ in range(5)))
    assert {path.read_bytes() for path in paths} == {MODEL}
    assert await cache.fetch(digest) == cache.path(digest)
    assert control_plane.blob_requests == [(digest, "Bearer secret")]
    assert _files(home) == [digest]
    assert (home / "cache" / digest).stat().st_mode & 0o077 == 0


async def test_a_corrupted_file_is_refused_and_nothing_of_it_stays(cache, control_plane, home):
    digest = control_plane.add_blob(MODEL)
    control_plane.blobs[digest] = MODEL[:-1] + bytes([MODEL[-1] ^ 1])
    with pytest.raises(FetchError, match="what arrived has the digest"):
        await cache.fetch(digest)
    assert len(control_plane.blob_requests) == 3
    assert _files(home) == []
    control_plane.blobs[digest] = MODEL
    assert (await cache.fetch(digest)).read_bytes() == MODEL


async def test_a_truncated_transfer_is_continued_by_the_next_fetch(cache, control_plane, home):
    digest = control_plane.add_blob(MODEL)
    control_plane.blobs[digest] = (200, MODEL[:1000], len(MODEL))
    with pytest.raises(FetchError, match="RemoteProtocolError"):
        await cache.fetch(digest)
    assert cache.path(digest) is None and _files(home) == [f".partial-{digest}"]
    # This one sends all of it whatever is asked for; a part that does not fit is not kept either.
    control_plane.blobs[digest] = MODEL
    assert (await cache.fetch(digest)).read_bytes() == MODEL
    assert _files(home) == [digest]


async def test_too_large_a_file_names_the_limit_and_is_not_asked_for_again(cache, control_plane, home):
    digest = control_plane.add_blob(os.urandom(1_000_001))
    with pytest.raises(FetchError, match=r"larger than 1000000 bytes \(NEREUS_MAX_UPLOAD_MB\)") as caught:
        await cache.fetch(digest)
    assert caught.value.permanent
    assert len(control_plane.blob_requests) == 1
    assert _files(home) == []


@pytest.mark.parametrize(("status", "tries", "permanent"), [(404, 1, True), (401, 3, False), (503, 3, False)])
async def test_an_error_status_is_reported_and_tried_again_where_that_may_help(
    cache, control_plane, status, tries, permanent
):
    digest = control_plane.add_blob(MODEL)
    control_plane.blobs[digest] = (status, b"no", 2)
    with pytest.raises(FetchError, match=f"HTTP {status}") as caught:
        await cache.fetch(digest)
    assert caught.value.permanent is permanent
    assert len(control_plane.blob_requests) == tries


async def test_a_control_plane_that_is_away_is_reported(cache, control_plane):
    digest = control_plane.add_blob(MODEL)
    await control_plane.stop()
    with pytest.raises(FetchError, match="ConnectError") as caught:
        await cache.fetch(digest)
    assert not caught.value.permanent


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n", "é" * 64])
async def test_what_is_no_digest_touches_neither_disk_nor_network(cache, control_plane, digest):
    with pytest.raises(FetchError, match="must be 64 hexadecimal digits"):
        await cache.fetch(digest)
    assert cache.path(digest) is None
    assert control_plane.blob_requests == []


async def test_a_caller_that_gives_up_takes_nothing_from_the_others(cache, control_plane):
    digest = control_plane.add_blob(MODEL)
    first, second = (asyncio.create_task(cache.fetch(digest)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).read_bytes() == MODEL


async def test_what_nobody_needs_goes_longest_unused_first(cache, control_plane, home):
    digests = [control_plane.add_blob(bytes([i]) * 100) for i in range(5)]
    for age, digest in enumerate(digests):
        path = await cache.fetch(digest)
        os.utime(path, (1000 + age, 1000 + age))
    with cache.borrowed([digests[1]]):
        cache.need([digests[0]])
        # needed, borrowed, and of the other three the two used last (250 spare bytes)
        assert _files(home) == sorted([digests[0], digests[1], digests[3], digests[4]])
    cache.need([])
    assert _files(home) == sorted(digests[3:])
    assert cache.size_bytes() == 200


async def test_parts_are_kept_at_start_and_go_once_nobody_needs_them(home, control_plane):
    (home / "cache").mkdir()
    needed, other = "1" * 64, "2" * 64
    for name in ("abc", needed, other):
        (home / "cache" / f".partial-{name}").write_bytes(b"half")
    cache = ModelCache(home / "cache", control_plane.url, lambda: None, limit_bytes=10)
    assert _files(home) == [f".partial-{needed}", f".partial-{other}"]
    cache.need([needed])
    assert _files(home) == [f".partial-{needed}"]
    await cache.close()


async def test_a_removed_folder_is_made_again(cache, control_plane, home):
    digest = control_plane.add_blob(MODEL)
    await cache.fetch(digest)
    shutil.rmtree(home / "cache")
    cache.need([])
    assert (await cache.fetch(digest)).read_bytes() == MODEL
