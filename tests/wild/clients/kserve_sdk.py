"""KServe's Python SDK over REST and gRPC. Arguments: the gateway's HTTP and gRPC address and a key."""

import asyncio
import sys

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

HTTP, GRPC, KEY = sys.argv[1:]
X = np.array([[1, -2, 3]], np.float32)


def request(binary: bool, **more) -> InferRequest:
    given = InferInput("x", list(X.shape), "FP32")
    given.set_data_from_numpy(X, binary_data=binary)
    return InferRequest(model_name="vectors", infer_inputs=[given], **more)


def requests() -> list[InferRequest]:
    return [
        request(True),
        request(False),
        request(True, request_id="q", parameters={"content_type": "np", "tenant": 1}),
        request(True, request_outputs=[RequestedOutput("y", {"binary_data": True})]),
        # As it passes a query on that came by gRPC, and so by an SDK.
        InferRequest.from_grpc(request(True).to_grpc()),
        InferRequest.from_grpc(request(False).to_grpc()),
    ]


async def main() -> None:
    rest = InferenceRESTClient(RESTConfig(protocol="v2"))
    grpc = InferenceGRPCClient(GRPC)
    headers = {"Authorization": f"Bearer {KEY}"}
    metadata = [("authorization", f"Bearer {KEY}")]
    assert await rest.is_server_live(f"http://{HTTP}") and await rest.is_server_ready(f"http://{HTTP}")
    assert await rest.is_model_ready(f"http://{HTTP}", "vectors", headers=dict(headers))
    assert await grpc.is_server_live() and await grpc.is_server_ready()
    assert await grpc.is_model_ready("vectors", headers=metadata)
    for one in requests():
        answer = await rest.infer(f"http://{HTTP}", one, model_name="vectors", headers=dict(headers))
        np.testing.assert_array_equal(answer.outputs[0].as_numpy(), -X)
    for one in requests():
        answer = await grpc.infer(one, headers=metadata)
        np.testing.assert_array_equal(answer.outputs[0].as_numpy(), -X)
    await rest.close()
    await grpc.close()


asyncio.run(main())
