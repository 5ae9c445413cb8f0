"""ONNX's own node tests through inspection, executor and gateway."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import onnxruntime
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http

from tests.executor.harness import Executor, application, resident, variant
from tests.gateway.conftest import AUTH, config, wait_for
from tests.running import ROOT
from workers.protocol.datatypes import NUMPY
from workers.protocol.specs import DevicePlan, PlanSpec, Route, Signature, TensorSpec

from . import node_cases
from .node_cases import NodeCase

#: of the cases that have a signature, one in so many is served
EVERY = 13
#: cases that onnxruntime 1.31 ends with a signal when it runs them with made-up values, as the sandbox reports
CRASHES = {"test_stft": "SIGFPE"}


def inspected(folder: Path, given: str, every: int = 1) -> list[dict]:
    command = [sys.executable, "-m", "tests.wild.node_cases", str(folder), given, str(every)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.long
@pytest.mark.parametrize(("given", "accepted", "crashes"), [("sample", 1950, {}), ("made", 1840, CRASHES)])
def test_every_case_is_accepted_or_refused_with_a_reason(tmp_path, given, accepted, crashes):
    verdicts = inspected(tmp_path, given)
    assert len(verdicts) > 2400
    assert {one["name"]: one["signal"] for one in verdicts if "signal" in one} == crashes
    assert all(len(fault) > 20 for one in verdicts for fault in one.get("faults", ()))
    assert sum("facts" in one for one in verdicts) >= accepted


def _served(folder: Path) -> list[tuple[NodeCase, dict]]:
    """Accepted cases whose outputs are always alike, and what inspection found."""
    facts = {one["name"]: one["facts"] for one in inspected(folder, "sample", EVERY) if "facts" in one}
    known = [case for batch in (True, False) for case in node_cases.cases(batch) if case.name in facts]
    random = ("random", "bernoulli", "multinomial", "dropout")
    return [(case, facts[case.name]) for case in known if not any(word in case.name for word in random)]


def _numpy_alone(case: NodeCase) -> bool:
    """Whether tritonclient has all its arrays in types of numpy."""
    tensors = (*case.signature["inputs"], *case.signature["outputs"])
    return all(tensor["datatype"] in (*NUMPY, "BYTES") for tensor in tensors)


@pytest.mark.wide
async def test_answers_over_both_protocols_are_the_models(gateways, tmp_path):
    served = [(case, facts) for case, facts in _served(tmp_path) if _numpy_alone(case)]
    assert len(served) > 120
    specs, residents, paths = [], [], []
    for number, (case, facts) in enumerate(served, 1):
        paths.append(node_cases.saved(case, tmp_path))
        made = variant(number, paths[-1], application=case.name)
        made = msgspec.structs.replace(
            made,
            alone=bool(facts["alone"]) or not case.batch,
            rungs=facts["rungs"],
            rows=base64.b64decode(facts["rows"]),
        )
        most = 1 if not case.batch or facts["max_batch"] == 1 or facts["alone"] else 16
        residents.append(resident(made, max_batch=most, rate=1.0))
        specs.append(application(case.name, 60.0, _signature(case)))
    async with Executor(tmp_path) as executor:
        state = await executor.in_force(1, residents, specs, paths)
        assert state.errors == {}
        device = DevicePlan(executor.info.id, executor.endpoint, tuple(residents))
        routes = tuple(Route(case.name, executor.info.id, 1.0) for case, _ in served)
        gateway = gateways(config(PlanSpec(1, (device,), routes), specs))
        await asyncio.to_thread(wait_for, gateway.ready, "the gateway is ready")
        wrong = await asyncio.to_thread(_wrong_answers, gateway, dict(zip(paths, served, strict=True)))
    assert wrong == []


def _signature(case: NodeCase) -> Signature:
    inputs, outputs = (
        tuple(
            TensorSpec(t["name"], t["datatype"], tuple(t["shape"] if case.batch else [-1, *t["shape"]])) for t in some
        )
        for some in (case.signature["inputs"], case.signature["outputs"])
    )
    return Signature(inputs, outputs, case.batch)


def _wrong_answers(gateway, served) -> list:
    wrong = []
    headers = {key.lower(): value for key, value in AUTH.items()}
    with (
        http.InferenceServerClient(f"127.0.0.1:{gateway.port}", network_timeout=120) as by_http,
        grpc.InferenceServerClient(gateway.grpc) as by_grpc,
    ):
        for path, (case, _) in served.items():
            names = [tensor["name"] for tensor in case.signature["outputs"]]
            expected = onnxruntime.InferenceSession(path).run(names, case.inputs)
            for module, client in ((http, by_http), (grpc, by_grpc)):
                tensors = []
                for tensor in case.signature["inputs"]:
                    value = case.inputs[tensor["name"]]
                    tensors.append(module.InferInput(tensor["name"], list(value.shape), tensor["datatype"]))
                    tensors[-1].set_data_from_numpy(value)
                answer = client.infer(case.name, tensors, headers=dict(headers))
                for name, want in zip(names, expected, strict=True):
                    if not _same(answer.as_numpy(name), np.asarray(want)):
                        wrong.append((module.__name__, case.name, name, want, answer.as_numpy(name)))
    return wrong


def _same(answer: np.ndarray, want: np.ndarray) -> bool:
    if answer.dtype == object:
        return [text.decode() for text in answer.ravel()] == want.ravel().tolist() and answer.shape == want.shape
    close = np.allclose(answer, want, rtol=1e-5, equal_nan=True) if want.dtype.kind == "f" else (answer == want).all()
    return answer.shape == want.shape and answer.dtype == want.dtype and bool(close)
