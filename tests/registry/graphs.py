"""ONNX models that are wrong in one way each; the right one is ``x`` FP32 [-1, 4] -> ``y`` FP32 [-1, 3]."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.running import SIGNATURE as SIGNATURE

FLOAT = TensorProto.FLOAT
node = helper.make_node


def constant(name: str, value, dtype=np.int64):
    return numpy_helper.from_array(np.array(value, dtype), name)


def tensor(name: str, shape, kind: int = FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


WEIGHTS = constant("w", np.ones((4, 3)), np.float32)


def model(nodes=None, inputs=None, outputs=None, constants=(), opset=17, ir_version=9, domains=(), weights=WEIGHTS):
    """A model proto; without arguments, a good one."""
    graph = helper.make_graph(
        nodes or [node("MatMul", ["x", "w"], ["y"])],
        "graph",
        inputs or [tensor("x", ["batch", 4])],
        outputs or [tensor("y", ["batch", 3])],
        [weights, *constants],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def good(seed: int = 0) -> bytes:
    weights = np.random.default_rng(seed).normal(size=(4, 3))
    return model(weights=constant("w", weights, np.float32)).SerializeToString()


def external(location: str) -> bytes:
    proto = model()
    weights = proto.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    entry = weights.external_data.add()
    entry.key, entry.value = "location", location
    return proto.SerializeToString()


def external_in_attribute() -> bytes:
    """The same, hidden in a Constant node."""
    value = constant("c", [0.0, 0.0, 0.0], np.float32)
    value.ClearField("raw_data")
    value.data_location = TensorProto.EXTERNAL
    entry = value.external_data.add()
    entry.key, entry.value = "location", "../../../etc/passwd"
    nodes = [
        node("Constant", [], ["c"], value=value),
        node("MatMul", ["x", "w"], ["z"]),
        node("Add", ["z", "c"], ["y"]),
    ]
    return model(nodes).SerializeToString()


def huge_constant_claim() -> bytes:
    """An initializer whose dimensions promise 4 Ti elements."""
    proto = model()
    proto.graph.initializer[0].dims[:] = [1 << 21, 1 << 21]
    return proto.SerializeToString()


def deep_constant() -> bytes:
    proto = model()
    proto.graph.initializer[0].dims[:] = [4, 3, *[1] * 8]
    return proto.SerializeToString()


def too_many_nodes(count: int) -> bytes:
    names = ["x", *(f"h{i}" for i in range(count - 1))]
    nodes = [node("Identity", [names[i]], [names[i + 1]]) for i in range(count - 1)]
    return model([*nodes, node("MatMul", [names[-1], "w"], ["y"])]).SerializeToString()


def memory_bomb() -> bytes:
    """A run expands one value to tens of GiB."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Mul", ["s", "k"], ["large"]),
        node("ConstantOfShape", ["large"], ["c"]),
        node("ReduceMax", ["c"], ["m"], keepdims=0),
        node("MatMul", ["x", "w"], ["z"]),
        node("Add", ["z", "m"], ["y"]),
    ]
    return model(nodes, constants=[constant("k", [1 << 16, 1 << 16])]).SerializeToString()


def endless_loop() -> bytes:
    body = helper.make_graph(
        [node("Identity", ["c"], ["c_out"]), node("Identity", ["h"], ["h_out"])],
        "body",
        [tensor("i", [], TensorProto.INT64), tensor("c", [], TensorProto.BOOL), tensor("h", ["b", 4])],
        [tensor("c_out", [], TensorProto.BOOL), tensor("h_out", ["b", 4])],
    )
    nodes = [node("Loop", ["n", "on", "x"], ["h3"], body=body), node("MatMul", ["h3", "w"], ["y"])]
    return model(nodes, constants=[constant("n", 2**62), constant("on", True, bool)]).SerializeToString()


def nested(depth: int) -> bytes:
    """If inside If inside If."""
    inner = [node("MatMul", ["x", "w"], [f"y{depth}"])]
    for level in range(depth, 0, -1):
        branch = helper.make_graph(inner, f"b{level}", [], [tensor(f"y{level}", ["b", 3])])
        inner = [node("If", ["on"], [f"y{level - 1}"], then_branch=branch, else_branch=branch)]
    inner[0].output[0] = "y"
    return model(inner, constants=[constant("on", True, bool)]).SerializeToString()


def gives_nan() -> bytes:
    nodes = [node("MatMul", ["x", "w"], ["z"]), node("Neg", ["z"], ["n"]), node("Log", ["n"], ["y"])]
    return model(nodes).SerializeToString()


def joins_rows() -> bytes:
    """One row whatever it takes: how many rows Compress lets through is known only in a run."""
    nodes = [node("MatMul", ["x", "w"], ["z"]), node("Compress", ["z", "first"], ["y"], axis=0)]
    return model(nodes, constants=[constant("first", [True], bool)]).SerializeToString()


def one_row_only() -> bytes:
    """Declares any number of rows and takes one."""
    nodes = [
        node("Reshape", ["x", "row"], ["r"]),
        node("MatMul", ["r", "w"], ["z"]),
        node("Compress", ["z", "first"], ["y"], axis=0),
    ]
    constants = [constant("row", [1, 4]), constant("first", [True], bool)]
    return model(nodes, constants=constants).SerializeToString()


def mixes_rows() -> bytes:
    """Allowed, but remarkable: subtracts the batch's mean."""
    nodes = [
        node("MatMul", ["x", "w"], ["z"]),
        node("ReduceMean", ["z"], ["m"], axes=[0], keepdims=1),
        node("Sub", ["z", "m"], ["y"]),
    ]
    return model(nodes).SerializeToString()
