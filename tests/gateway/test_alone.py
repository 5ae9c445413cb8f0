"""No answer of a real gateway and executor holds anything of another client's."""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor

import httpx2
import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http

from tests.executor.harness import Executor, application, resident, variant
from workers.protocol.specs import DevicePlan, PlanSpec, Route, Signature, TensorSpec

from .alone_models import Example, dependent, model, unbatched
from .conftest import AUTH, config, wait_for

CLIENTS, QUERIES = 24, 8


@pytest.mark.parametrize("stack", ["nereus", "infaas-accuracy"])
@pytest.mark.parametrize("examples", [unbatched, dependent])
async def test_no_answer_depends_on_other_clients(gateways, tmp_path, examples, stack):
    known = examples()
    specs, residents, paths = [], [], []
    for number, (name, example) in enumerate(known.items(), 1):
        paths.append(tmp_path / f"{name}.onnx")
        onnx.save(example.proto, paths[-1])
        made = msgspec.structs.replace(variant(number, paths[-1], application=name), alone=True)
        residents.append(resident(made, max_batch=1, rate=1.0))
        specs.append(application(name, 60.0, example.signature))
    async with Executor(tmp_path) as executor:
        await executor.in_force(1, residents, specs, paths)
        device = DevicePlan(executor.info.id, executor.endpoint, tuple(residents))
        routes = tuple(Route(name, executor.info.id, 1.0) for name in known)
        gateway = gateways(config(PlanSpec(1, (device,), routes, stack=stack), specs))
        await asyncio.to_thread(wait_for, gateway.ready, "the gateway is ready")
        sessions = {name: onnxruntime.InferenceSession(path) for name, path in zip(known, paths, strict=True)}
        ask = functools.partial(_client, gateway, list(known.items()), sessions)
        with ThreadPoolExecutor(CLIENTS) as threads:
            loop = asyncio.get_running_loop()
            answers = await asyncio.gather(*[loop.run_in_executor(threads, ask, n) for n in range(CLIENTS)])
        wrong = [one for some in answers for one in some]
        assert not wrong, (len(wrong), wrong[:3])
        if examples is unbatched:
            async with gateway.client() as client:
                shown = (await client.get("/v2/models/pitch/config")).json()
                assert shown["max_batch_size"] == 0
                assert [one["dims"] for one in shown["input"]] == [[1, -1], []]
                assert (await client.get("/v2/models/pitch")).json()["inputs"][1]["shape"] == []


def _client(gateway, examples: list[tuple[str, Example]], sessions, number: int) -> list:
    wrong, ask = [], [_json, _binary, _grpc][number % 3]
    for turn in range(QUERIES):
        name, example = examples[(number + turn) % len(examples)]
        inputs = example.query(number * QUERIES + turn)
        expected = sessions[name].run(None, inputs)
        answer = ask(gateway, name, inputs, [one.name for one in example.signature.outputs])
        for want, have in zip(map(np.asarray, expected), answer, strict=True):
            have = np.asarray(have)
            same = have.shape == want.shape and (
                np.allclose(have, want, rtol=1e-5) if want.dtype.kind == "f" else have.tolist() == want.tolist()
            )
            if not same:
                wrong.append((ask.__name__, name, want, have))
    return wrong


def _datatype(array: np.ndarray) -> str:
    return {"f": "FP32", "i": "INT64", "b": "BOOL", "O": "BYTES"}[array.dtype.kind]


def _json(gateway, name, inputs, outputs) -> list[np.ndarray]:
    given = [
        {"name": key, "datatype": _datatype(array), "shape": list(array.shape), "data": array.tolist()}
        for key, array in inputs.items()
    ]
    url = f"{gateway.url}/v2/models/{name}/infer"
    reply = httpx2.post(url, json={"inputs": given}, headers=AUTH, timeout=120, verify=False)
    assert reply.status_code == 200, (name, reply.text)
    kinds = {"FP32": np.float32, "INT64": np.int64, "BOOL": bool, "BYTES": object}
    found = {
        one["name"]: np.array(one["data"], kinds[one["datatype"]]).reshape(one["shape"])
        for one in reply.json()["outputs"]
    }
    return [found[output] for output in outputs]


def _triton(module, client, name, inputs, outputs) -> list[np.ndarray]:
    tensors = [
        module.InferInput(key, list(array.shape), _datatype(array)).set_data_from_numpy(array)
        for key, array in inputs.items()
    ]
    answer = client.infer(name, tensors, headers={key.lower(): value for key, value in AUTH.items()})
    found = [answer.as_numpy(output) for output in outputs]
    return [
        np.vectorize(bytes.decode, otypes=[object])(one) if one.dtype == object and one.size else one for one in found
    ]


def _binary(gateway, name, inputs, outputs) -> list[np.ndarray]:
    with http.InferenceServerClient(f"127.0.0.1:{gateway.port}", network_timeout=120) as client:
        return _triton(http, client, name, inputs, outputs)


def _grpc(gateway, name, inputs, outputs) -> list[np.ndarray]:
    with grpc.InferenceServerClient(gateway.grpc) as client:
        return _triton(grpc, client, name, inputs, outputs)


async def test_a_table_of_1000_columns_is_an_input_each(gateways, tmp_path):
    names, path = [f"column_{n}" for n in range(1000)], tmp_path / "table.onnx"
    nodes = [onnx.helper.make_node("Concat", names, ["all"], axis=1)]
    columns = [(name, onnx.TensorProto.FLOAT, ["N", 1]) for name in names]
    proto = model(nodes, columns, [("all", onnx.TensorProto.FLOAT, ["N", 1000])])
    onnx.save(proto, path)
    inputs = tuple(TensorSpec(name, "FP32", (-1, 1)) for name in names)
    spec = application("table", 60.0, Signature(inputs, (TensorSpec("all", "FP32", (-1, 1000)),)))
    residents = [resident(variant(1, path, application="table"))]
    async with Executor(tmp_path) as executor:
        await executor.in_force(1, residents, [spec], [path])
        device = DevicePlan(executor.info.id, executor.endpoint, tuple(residents))
        gateway = gateways(config(PlanSpec(1, (device,), (Route("table", executor.info.id, 1.0),)), [spec]))
        await asyncio.to_thread(wait_for, gateway.ready, "the gateway is ready")
        rows = np.random.default_rng(1).standard_normal((2, 1000)).astype(np.float32)
        feeds = {name: np.ascontiguousarray(rows[:, n : n + 1]) for n, name in enumerate(names)}
        for ask in (_json, _binary, _grpc):
            (found,) = await asyncio.to_thread(ask, gateway, "table", feeds, ["all"])
            np.testing.assert_array_equal(found, rows, ask.__name__)
