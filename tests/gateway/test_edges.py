"""Limits of a gateway's edges: descriptors, deleted keys, open pages, stored configuration."""

from __future__ import annotations

import asyncio
import itertools
import json
import resource

import msgspec
import pytest

from tests.full_disks import full_disk
from tests.net import wire as h2
from tests.net.http2_client import HEAD, Peer, connected, prefixed
from tests.pressure.wire import answer, post
from tools.waiting import eventually_async
from workers.gateway import config_file
from workers.gateway.config_file import ConfigFile
from workers.gateway.gateway import FREE_DESCRIPTORS, Gateway
from workers.net import compression
from workers.protocol.control import GatewayConfig

from .conftest import AUTH, KEY, application, config, fronts, gateway_options, one_device, plan
from .test_failures import BODY, PATH
from .test_grpc_errors import CODE, request


def keyed(path: str, key: str = KEY) -> list[tuple[str, str]]:
    fields = [(name, f"/inference.GRPCInferenceService/{path}" if name == ":path" else value) for name, value in HEAD]
    return [*fields, ("authorization", f"Bearer {key}")]


async def ended(peer: Peer, number: int) -> tuple[CODE, str]:
    _, fields = await peer.response(number)
    return next(code for code in CODE if code.value[0] == int(fields[b"grpc-status"])), fields[b"grpc-message"].decode()


async def test_a_deleted_key_ends_its_streams_and_no_others(tmp_path, devices):
    _, given = one_device(devices)
    async with fronts(tmp_path, given) as (gateway, _, port), connected(port) as peer:
        peer.send(peer.head(1, fields=keyed("ModelStreamInfer")))
        peer.send(h2.frame(h2.DATA, 0, 1, prefixed(request().SerializeToString())))
        await peer.until(h2.DATA)
        # Another plan with the same keys changes nothing for it.
        gateway.configure(msgspec.structs.replace(given, plan=msgspec.structs.replace(given.plan, version=2)))
        peer.send(h2.frame(h2.DATA, 0, 1, prefixed(request().SerializeToString())))
        await peer.until(h2.DATA)
        gateway.configure(msgspec.structs.replace(given, key_hashes=("0" * 64,)))
        assert await ended(peer, 1) == (CODE.UNAUTHENTICATED, "Authorization: this API key is not known")


def few_descriptors(monkeypatch) -> None:
    # Not by setrlimit: the tests before may have left more than these open in this process.
    monkeypatch.setattr(resource, "getrlimit", lambda _: (FREE_DESCRIPTORS + 20,) * 2)


async def test_connections_are_as_many_as_descriptors_are_there_for(tmp_path, monkeypatch):
    few_descriptors(monkeypatch)
    gateway = Gateway(gateway_options(tmp_path))
    assert (gateway._http.limits.connections, gateway._rpc.limits.http2.connections) == (10, 10)


async def test_idle_connections_beyond_the_limit_keep_nobody_out(tmp_path, monkeypatch):
    few_descriptors(monkeypatch)
    async with fronts(tmp_path) as (_, port, _):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(50)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /v2/health/live HTTP/1.1\r\nhost: a\r\n\r\n")
        assert (await answer(reader))[0] == 200
        for _, one in (*idle, (reader, writer)):
            one.close()


async def test_metrics_that_need_no_key_are_not_rendered_each_time(tmp_path):
    async with fronts(tmp_path) as (gateway, port, _):
        rendered = []
        text = gateway._metrics.text
        gateway._metrics.text = lambda *given: rendered.append(1) or text(*given)
        count = 50
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n" * count)
        pages = [await answer(reader) for _ in range(count)]
        assert {status for status, _, _ in pages} == {200}
        assert all(b"nereus_gateway" in body for _, _, body in pages)
        assert 0 < len(rendered) < count
        before = len(rendered)
        async with asyncio.timeout(60):
            while len(rendered) == before:
                await asyncio.sleep(0.05)
                writer.write(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert (await answer(reader))[0] == 200
        writer.close()


@pytest.mark.parametrize("count", [1, 2, 30])
async def test_the_latest_configuration_is_the_one_that_is_stored(tmp_path, count):
    file = ConfigFile(tmp_path / "members" / "config.json")
    for version in range(1, count + 1):
        file.store(config(plan(version, {}, {}), []))
        if version % 7 == 0:
            await asyncio.sleep(0.01)
    await file.close()
    found: GatewayConfig = file.load()
    assert found.plan.version == count


async def test_a_configuration_is_stored_once_the_disk_has_room(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(config_file, "RETRY_S", 0.05)
    file = ConfigFile(tmp_path / "config.json")
    file.store(config(plan(1, {}, {}), []))
    await eventually_async(lambda: file._writer is None)
    with full_disk(10):
        file.store(config(plan(2, {}, {}), []))
        await eventually_async(lambda: "config_not_stored" in caplog.text)
        assert file.load().plan.version == 1
    await eventually_async(lambda: file._writer is None)
    assert file.load().plan.version == 2
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    await file.close()


async def test_a_configuration_that_cannot_be_stored_is_no_fault(tmp_path, caplog):
    (tmp_path / "file").write_text("no folder")
    file = ConfigFile(tmp_path / "file" / "config.json")
    file.store(config(plan(1, {}, {}), []))
    await file.close()
    assert "config_not_stored" in caplog.text
    assert file.load() is None


async def test_keys_and_applications_that_are_gone_are_so_on_open_connections(tmp_path):
    """Nothing is warm, so what is admitted gets a 503, and what is not says why."""
    known = config(plan(1, {}, {}), [application("numbers"), application("words")])
    words, numbers = (config(plan(2, {}, {}), [application(name)]) for name in ("words", "numbers"))
    revoked = msgspec.structs.replace(known, key_hashes=("0" * 64,))
    # A key that is refused ends its connection over HTTP.
    asked = ((known, 2), (words, 2), (numbers, 2), (revoked, 1))
    async with fronts(tmp_path) as (gateway, port, grpc_port), connected(grpc_port) as peer:
        gateway.configure(known)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        statuses, codes, numbers_of_calls = [], [], itertools.count(1, 2)
        for given, times in asked:
            gateway.configure(given)
            for _ in range(times):
                writer.write(post(PATH, BODY, **AUTH))
                statuses.append((await answer(reader))[0])
                number = next(numbers_of_calls)
                peer.ask(number, request().SerializeToString(), keyed("ModelInfer"))
                codes.append((await ended(peer, number))[0])
        assert statuses == [503, 503, 404, 404, 503, 503, 401]
        unavailable, missing = [CODE.UNAVAILABLE] * 2, [CODE.NOT_FOUND] * 2
        assert codes == [*unavailable, *missing, *unavailable, CODE.UNAUTHENTICATED]
        writer.close()


async def test_requests_that_are_no_queries_yet_are_counted_by_status_and_queries_are_not(tmp_path):
    async with fronts(tmp_path) as (gateway, port, grpc_port), connected(grpc_port) as peer:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        # First there is no configuration, then nothing is warm.
        for given, number in ((None, 1), (config(plan(1, {}, {}), [application("numbers")]), 3)):
            if given is not None:
                gateway.configure(given)
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(post(PATH, BODY, **AUTH))
            assert (await answer(reader))[0] == 503
            peer.ask(number, request().SerializeToString(), keyed("ModelInfer"))
            assert (await ended(peer, number))[0] is CODE.UNAVAILABLE
            text = gateway._page().decode()
            for status in ("503", "UNAVAILABLE"):
                assert f'nereus_gateway_invalid_requests_total{{status="{status}"}} 1.0' in text
            writer.close()
        assert gateway._front.accounts.totals["numbers"].failed == 2


@pytest.mark.parametrize("binary", [True, False])
async def test_an_answer_that_cannot_be_compressed_is_an_error(tmp_path, devices, monkeypatch, binary):
    def fails(*_) -> None:
        raise MemoryError

    monkeypatch.setattr(compression, "compress", fails)
    _, given = one_device(devices)
    tensor = {"name": "x", "shape": [64, 4], "datatype": "FP32", "data": [1.5] * 256}
    wanted = {"name": "y", "parameters": {"binary_data": binary}}
    body = json.dumps({"inputs": [tensor], "outputs": [wanted]}).encode()
    async with fronts(tmp_path, given) as (gateway, port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post(PATH, body, **AUTH, **{"Accept-Encoding": "gzip"}))
        assert (await answer(reader))[0] == 500
        total = gateway._front.accounts.totals["numbers"]
        assert (total.failed, total.in_time + total.late) == (1, 0)
        writer.close()
