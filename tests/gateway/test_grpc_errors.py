"""Each fault of a gRPC call has its status and says why."""

from __future__ import annotations

import json
import socket
import zlib

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from .conftest import KEY, wait_for
from .test_failures import start

CODE = grpc.StatusCode
KEYED = (("authorization", f"Bearer {KEY}"),)
SERVICE = "/inference.GRPCInferenceService/"


def request(x=((1, 2, 3, 4),), model="numbers", version="", **parameters) -> pb.ModelInferRequest:
    x = np.array(x, np.float32)
    message = pb.ModelInferRequest(
        model_name=model,
        model_version=version,
        inputs=[{"name": "x", "datatype": "FP32", "shape": list(x.shape)}],
        raw_input_contents=[x.tobytes()],
    )
    for name, value in parameters.items():
        setattr(message.parameters[name], "double_param" if isinstance(value, float) else "int64_param", value)
    return message


def call(channel: grpc.Channel, message, method="ModelInfer", metadata=KEYED, timeout=120, **given) -> bytes:
    data = message if isinstance(message, bytes) else message.SerializeToString()
    return channel.unary_unary(SERVICE + method)(data, metadata=metadata, timeout=timeout, **given)


def refused(channel: grpc.Channel, message, method="ModelInfer", **given) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, message, method, **given)
    return caught.value


def pushback(error: grpc.RpcError) -> int | None:
    found = dict(error.trailing_metadata()).get("grpc-retry-pushback-ms")
    return None if found is None else int(found)


@pytest.fixture(scope="module")
def channel(served):
    with grpc.insecure_channel(served.grpc, options=[("grpc.max_send_message_length", -1)]) as channel:
        yield channel


def still_serves(channel) -> None:
    answer = pb.ModelInferResponse.FromString(call(channel, request()))
    assert np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == [2, 4, 6, 8]


@pytest.mark.parametrize(
    ("message", "code", "words"),
    [
        (request(model="nothing"), CODE.NOT_FOUND, "model 'nothing': no such application"),
        (request(model=""), CODE.NOT_FOUND, "model '': no such application"),
        (request(version="huge"), CODE.NOT_FOUND, "version 'huge': the plan has no such variant of numbers; it has"),
        (request([[1, 2]]), CODE.INVALID_ARGUMENT, "inputs.x.shape[1]: is 2, must be 4"),
        (request(np.zeros((65, 4))), CODE.INVALID_ARGUMENT, "inputs: 65 rows (first dimension); must be 1 to 64"),
        (request(latency_ms=0), CODE.INVALID_ARGUMENT, "parameters.latency_ms: must be a finite number above 0"),
        (request(latency_ms=float("nan")), CODE.INVALID_ARGUMENT, "parameters.latency_ms: must be a finite number"),
        (request(min_accuracy=101), CODE.INVALID_ARGUMENT, "parameters.min_accuracy: must be from 0 to 100"),
        (b"\xff\xff\xff", CODE.INVALID_ARGUMENT, "message: is not a valid inference.ModelInferRequest"),
        (b"", CODE.NOT_FOUND, "model '': no such application"),
        (request(min_accuracy=99.0), CODE.UNAVAILABLE, "min_accuracy: 99 cannot be met; the best available now is 95"),
    ],
)
def test_each_refusal_has_its_status_and_names_the_field(channel, message, code, words):
    error = refused(channel, message)
    assert (error.code(), words in error.details()) == (code, True), error.details()
    assert (pushback(error) is not None) == (code is CODE.UNAVAILABLE)


KEYED_METHODS = "ModelInfer ModelStreamInfer ServerMetadata ModelReady ModelMetadata ModelConfig ModelStatistics"


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ((), "Authorization: missing; send 'Authorization: Bearer KEY'"),
        ((("authorization", KEY),), "Authorization: must be 'Bearer KEY'"),
        ((("authorization", "Bearer wrong"),), "Authorization: this API key is not known"),
    ],
)
@pytest.mark.parametrize("method", [*KEYED_METHODS.split(), "RepositoryIndex"])
def test_everything_but_health_needs_a_key(channel, metadata, words, method):
    error = refused(channel, b"", method, metadata=metadata)
    assert error.code() is CODE.UNAUTHENTICATED
    assert words in error.details()


def test_health_needs_no_key(channel):
    assert pb.ServerLiveResponse.FromString(call(channel, b"", "ServerLive", metadata=())).live
    assert pb.ServerReadyResponse.FromString(call(channel, b"", "ServerReady", metadata=())).ready


@pytest.mark.parametrize(
    ("message", "method", "code", "words"),
    [
        (pb.ModelMetadataRequest(name="nothing"), "ModelMetadata", CODE.NOT_FOUND, "model 'nothing'"),
        (pb.ModelConfigRequest(name="numbers", version="x"), "ModelConfig", CODE.NOT_FOUND, "version 'x'"),
        (pb.ModelStatisticsRequest(name="nothing"), "ModelStatistics", CODE.NOT_FOUND, "model 'nothing'"),
        (b"\xff", "ModelMetadata", CODE.INVALID_ARGUMENT, "message: is not a valid inference.ModelMetadataRequest"),
    ],
)
def test_metadata_has_the_same_errors(channel, message, method, code, words):
    error = refused(channel, message, method)
    assert error.code() is code
    assert words in error.details()


UNSUPPORTED = "RepositoryModelLoad RepositoryModelUnload SystemSharedMemoryStatus CudaSharedMemoryRegister TraceSetting"


@pytest.mark.parametrize("method", [*UNSUPPORTED.split(), "LogSettings", "Nothing"])
def test_what_is_not_supported_says_so(channel, method):
    error = refused(channel, b"", method)
    assert error.code() is CODE.UNIMPLEMENTED
    assert f"method {method}: not supported; supported are ServerLive" in error.details()


def test_another_service_is_not_known(channel):
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/inference.Other/ModelInfer")(b"", metadata=KEYED)
    assert caught.value.code() is CODE.UNIMPLEMENTED


def test_messages_beyond_the_limit_are_refused_however_they_come(channel):
    # The limit is 1 MB here; the second is small on its way and large once decompressed.
    big = b"\x3a\x80\x80\x80\x02" + bytes(4 * 1024 * 1024)
    for given in ({}, {"compression": grpc.Compression.Gzip}):
        error = refused(channel, big, **given)
        assert error.code() is CODE.RESOURCE_EXHAUSTED
        assert "larger than max" in error.details()
    still_serves(channel)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 200,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0" + zlib.compress(b"x" * 10_000),
    ],
)
def test_what_is_not_grpc_is_hung_up_on(served, channel, data):
    host, port = served.grpc.split(":")
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(data)
        connection.settimeout(60)
        try:
            while connection.recv(65536):
                pass
        except ConnectionResetError:
            pass
    still_serves(channel)


def test_its_log_stays_structured_after_all_that(served, channel):
    still_serves(channel)
    assert served.log
    for line in served.log:
        # There is no control plane here, and the gateway says so.
        assert json.loads(line)["event"] == "link_refused" or json.loads(line)["level"] != "error", line


def test_refused_calls_are_counted_by_status(served, channel):
    def counted(status: str) -> float:
        name = f'nereus_gateway_invalid_requests_total{{status="{status}"}} '
        lines = served.http.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    before = [counted(code.name) for code in (CODE.NOT_FOUND, CODE.INVALID_ARGUMENT, CODE.UNAUTHENTICATED)]
    refused(channel, request(model="nothing"))
    refused(channel, request([[1]]))
    refused(channel, request(), metadata=())

    def difference() -> list[float]:
        after = [counted(code.name) for code in (CODE.NOT_FOUND, CODE.INVALID_ARGUMENT, CODE.UNAUTHENTICATED)]
        return np.subtract(after, before).tolist()

    # A page of metrics may be a moment old.
    wait_for(lambda: difference() == [1, 1, 1], "each is counted once")


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ({"refuse": ["late", False]}, CODE.RESOURCE_EXHAUSTED, "device d0: told to say late"),
        ({"refuse": ["overloaded", False]}, CODE.RESOURCE_EXHAUSTED, "device d0: told to say overloaded"),
        ({"refuse": ["failed", False]}, CODE.INTERNAL, "device d0: told to say failed"),
        ({"refuse": ["draining", False]}, CODE.UNAVAILABLE, "device d0: told to say draining"),
        ({"mute": True, "refuse": None}, CODE.DEADLINE_EXCEEDED, "device d0: no answer within"),
    ],
)
def test_what_devices_say_has_its_status(gateways, devices, command, code, words):
    gateway, only = start(gateways, devices, ["d0"], slo_s=2.0 if "mute" in command else 60.0)
    only.tell(**command)
    with grpc.insecure_channel(gateway.grpc) as channel:
        error = refused(channel, request())
        assert (error.code(), words in error.details()) == (code, True), error.details()
        only.tell(mute=False, refuse=None)

        def served() -> bool:
            # One that was silent may have to come back first.
            try:
                return bool(call(channel, request(latency_ms=1990)))
            except grpc.RpcError:
                return False

        wait_for(served, "the next one is served")


@pytest.mark.parametrize("latency_ms", [0.3, 0.45, 1.6])
def test_a_budget_that_is_too_short_is_reported_as_it_was_given(gateways, devices, latency_ms):
    gateway, only = start(gateways, devices, ["d0"], slo_s=60.0, row_s=1e-6)
    only.tell(mute=True)
    with grpc.insecure_channel(gateway.grpc) as channel:
        # An idle device would be probed.
        busy = channel.unary_unary(SERVICE + "ModelInfer").future(request().SerializeToString(), 60, KEYED)
        wait_for(lambda: only.reported("query"), "the device is busy")
        error = refused(channel, request(latency_ms=latency_ms))
        assert error.details() == f"model 'numbers': cannot be answered within {latency_ms} ms; try again"
        busy.cancel()


def test_overload_is_refused_while_others_are_served(gateways, devices):
    gateway, only = start(gateways, devices, ["d0"], slo_s=30.0, row_s=25.0)
    only.tell(delay_s=2.0)
    with grpc.insecure_channel(gateway.grpc) as channel:
        infer = channel.unary_unary(SERVICE + "ModelInfer")
        calls = [infer.future(request().SerializeToString(), 60, KEYED) for _ in range(20)]
        assert {one.code() for one in calls} == {CODE.OK, CODE.RESOURCE_EXHAUSTED}
        late = next(one for one in calls if one.code() is CODE.RESOURCE_EXHAUSTED)
        assert "model 'numbers': cannot be answered within 30000 ms; try again" in late.details()
        assert dict(late.trailing_metadata())["grpc-retry-pushback-ms"] == "1000"
