"""``grpc.health.v1``: probes and balancers get the readiness that V2 reports."""

from __future__ import annotations

import asyncio
import time

import grpc
import msgspec
import pytest
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from tests.net.http2_client import eventually

from .conftest import KEY, application, fronts, one_device
from .test_grpc_errors import CODE

#: ServingStatus of the protocol
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3
META = (("authorization", f"Bearer {KEY}"),)
#: as a HealthCheckRequest and a HealthCheckResponse, whose only field is a string and an enum
AS = StringValue.SerializeToString, Int32Value.FromString


def check(channel: grpc.Channel, service: str, metadata=()) -> int:
    call = channel.unary_unary("/grpc.health.v1.Health/Check", *AS)
    return call(StringValue(value=service), metadata=metadata, timeout=60).value


#: nobody knows it
WRONG = (("authorization", "Bearer wrong"),)
SERVICE = "inference.GRPCInferenceService"


@pytest.mark.parametrize(
    ("service", "metadata"), [("", ()), ("", WRONG), (SERVICE, ()), (SERVICE, WRONG), ("numbers", META)]
)
def test_the_gateway_serves_without_a_key_and_an_application_for_keys_that_reach_it(served, service, metadata):
    with grpc.insecure_channel(served.grpc) as channel:
        assert check(channel, service, metadata) == SERVING


@pytest.mark.parametrize(
    ("service", "metadata", "code", "words"),
    [
        ("numbers", (), CODE.UNAUTHENTICATED, "Authorization: missing"),
        ("nothing", (), CODE.UNAUTHENTICATED, "Authorization: missing"),
        ("numbers", WRONG, CODE.UNAUTHENTICATED, "this API key is not known"),
        ("nothing", META, CODE.NOT_FOUND, "service 'nothing': no such application"),
    ],
)
def test_others_are_refused(served, service, metadata, code, words):
    with grpc.insecure_channel(served.grpc) as channel, pytest.raises(grpc.RpcError) as caught:
        check(channel, service, metadata)
    assert (caught.value.code(), words in caught.value.details()) == (code, True), caught.value.details()


@pytest.mark.parametrize("data", [b"\x0a\x05abc", b"\xff"])
def test_what_is_no_request_is_refused(served, data):
    with grpc.insecure_channel(served.grpc) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/grpc.health.v1.Health/Check")(data, timeout=60)
    assert caught.value.code() is CODE.INVALID_ARGUMENT


async def test_who_watches_is_told_what_changes(tmp_path, devices):
    device, given = one_device(devices)
    async with fronts(tmp_path) as (gateway, _, port), grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch", *AS)
        overall = watch(StringValue())
        # Nothing is configured yet, and so no key is known.
        assert (await overall.read()).value == NOT_SERVING
        (call,) = gateway._calls._health._watching
        # It outlasts the time that other calls without a key have.
        call.sweep(time.monotonic() + 60.0)
        gateway.configure(given)
        assert (await overall.read()).value == SERVING
        one, none = (watch(StringValue(value=name), metadata=META) for name in ("numbers", "nothing"))
        assert [(await call.read()).value for call in (one, none)] == [SERVING, SERVICE_UNKNOWN]
        device.tell(warm=[])
        assert [(await call.read()).value for call in (one, overall)] == [NOT_SERVING, NOT_SERVING]
        renamed = msgspec.structs.replace(given, applications=(*given.applications, application("words")))
        words = watch(StringValue(value="words"), metadata=META)
        assert (await words.read()).value == SERVICE_UNKNOWN
        gateway.configure(renamed)
        assert (await words.read()).value == NOT_SERVING
        gateway.configure(msgspec.structs.replace(renamed, key_hashes=("0" * 64,)))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await words.read()
        assert caught.value.code() is CODE.UNAUTHENTICATED
        none.cancel()
        await eventually(lambda: len(gateway._calls._health._watching) == 1, "the others are forgotten")
        stopping = asyncio.create_task(gateway.stop(5.0))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await overall.read()
        assert caught.value.code() is CODE.UNAVAILABLE
        await stopping
