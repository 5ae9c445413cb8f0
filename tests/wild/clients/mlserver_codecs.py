"""MLServer's codecs and types over HTTP. Arguments: the gateway's HTTP and gRPC address and a key."""

import sys
import urllib.request

import numpy as np
import pandas as pd
from mlserver.codecs import NumpyCodec, NumpyRequestCodec, PandasCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse, Parameters, RequestOutput

HTTP, _, KEY = sys.argv[1:]
X = np.array([[1, -2, 3]], np.float32)
TEXT = ["grün", "", "日本"]


def ask(model: str, request: InferenceRequest, **dumped) -> InferenceResponse:
    body = request.model_dump_json(**dumped).encode()
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    asked = urllib.request.Request(f"http://{HTTP}/v2/models/{model}/infer", body, headers)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return InferenceResponse.model_validate_json(answer.read())


def inputs(request: InferenceRequest, *names: str) -> InferenceRequest:
    for given, name in zip(request.inputs, names, strict=True):
        given.name = name
    return request


# With nulls for all that is left out, as a generated client dumps them, and without.
for dumped in ({}, {"exclude_none": True}):
    query = inputs(NumpyRequestCodec.encode_request(X), "x")
    assert query.parameters.content_type == "np"
    np.testing.assert_array_equal(NumpyRequestCodec.decode_response(ask("vectors", query, **dumped)), -X)
    query.outputs = [RequestOutput(name="y", parameters=Parameters(content_type="np"))]
    query.inputs[0].parameters = Parameters(content_type="np", headers={"a": "b"})
    np.testing.assert_array_equal(NumpyCodec.decode_output(ask("vectors", query, **dumped).outputs[0]), -X)
    text = InferenceRequest(inputs=[StringCodec.encode_input("text", TEXT)])
    assert StringCodec.decode_output(ask("text", text, **dumped).outputs[0]) == TEXT
    # A column is an input, and a row a row.
    frame = PandasCodec.encode_request(pd.DataFrame({"x": X.ravel()}))
    answer = PandasCodec.decode_response(ask("vectors", frame, **dumped))
    assert answer["y"].tolist() == (-X.ravel()).tolist()
