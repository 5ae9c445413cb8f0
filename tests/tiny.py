"""Small real ONNX models for tests, made with onnx.helper."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: layers of 256x256 per model: roughly 0.05, 1 and 4 ms a row on one core
WORK = {"quick": 1, "medium": 100, "heavy": 400}


def classifier(path: Path, work: int = 1, features: int = 4, classes: int = 3, seed: int = 0, opset: int = 17) -> Path:
    """``x`` FP32 [batch, features] -> ``y`` FP32 [batch, classes]; ``work`` repeats one shared hidden layer."""
    random = np.random.default_rng(seed)
    weights = {
        "w_in": random.normal(size=(features, 256)).astype(np.float32),
        "w_mid": (random.normal(size=(256, 256)) / 16).astype(np.float32),
        "w_out": random.normal(size=(256, classes)).astype(np.float32),
    }
    nodes = [helper.make_node("MatMul", ["x", "w_in"], ["h0"])]
    for i in range(work):
        nodes.append(helper.make_node("MatMul", [f"h{i}", "w_mid"], [f"m{i}"]))
        nodes.append(helper.make_node("Tanh", [f"m{i}"], [f"h{i + 1}"]))
    nodes.append(helper.make_node("MatMul", [f"h{work}", "w_out"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", features])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", classes])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    onnx.save(model, str(path))
    return path
