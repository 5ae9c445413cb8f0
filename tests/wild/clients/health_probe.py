"""The official client of grpc.health.v1. Arguments: the gateway's HTTP and gRPC address and a key."""

import sys

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

_, GRPC, KEY = sys.argv[1:]
META = (("authorization", f"Bearer {KEY}"),)
SERVING, UNKNOWN = HealthCheckResponse.SERVING, HealthCheckResponse.SERVICE_UNKNOWN


def code(service: str, metadata=()) -> grpc.StatusCode:
    try:
        stub.Check(HealthCheckRequest(service=service), metadata=metadata, timeout=60)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


with grpc.insecure_channel(GRPC) as channel:
    stub = HealthStub(channel)
    for service in ("", "inference.GRPCInferenceService"):
        assert stub.Check(HealthCheckRequest(service=service), timeout=60).status == SERVING
        assert next(iter(stub.Watch(HealthCheckRequest(service=service), timeout=60))).status == SERVING
    assert stub.Check(HealthCheckRequest(service="vectors"), metadata=META, timeout=60).status == SERVING
    assert code("vectors") is grpc.StatusCode.UNAUTHENTICATED
    assert code("nothing", META) is grpc.StatusCode.NOT_FOUND
    watch = stub.Watch(HealthCheckRequest(service="nothing"), metadata=META, timeout=60)
    assert next(iter(watch)).status == UNKNOWN
