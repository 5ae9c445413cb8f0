"""Models that attack by size, time, depth or what they refer to. Mere mistakes are in ``graphs``."""

from __future__ import annotations

import itertools

import numpy as np
from onnx import AttributeProto, ModelProto, StringStringEntryProto, TensorProto, helper

from tests.registry.graphs import FLOAT, constant, model, node, tensor

DOMAIN = "local"


def _external(value: TensorProto, location: str) -> TensorProto:
    value.ClearField("raw_data")
    value.data_location = TensorProto.EXTERNAL
    value.external_data.append(StringStringEntryProto(key="location", value=location))
    return value


def with_functions(*functions, nodes=None) -> ModelProto:
    proto = model(nodes or [node(functions[0].name, ["x"], ["f"], domain=DOMAIN), node("MatMul", ["f", "w"], ["y"])])
    proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    proto.functions.extend(functions)
    return proto


def function(name: str, *nodes, inputs=("a",), outputs=("b",), **more):
    return helper.make_function(
        DOMAIN, name, inputs, outputs, nodes, [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)], **more
    )


def external_in_default(location: str = "upload") -> bytes:
    """An attribute's default value in a function is another file, which an answer would show."""
    default = AttributeProto(
        name="c", type=AttributeProto.TENSOR, t=_external(constant("d", [0.0], np.float32), location)
    )
    value = node("Constant", [], ["k"])
    value.attribute.append(AttributeProto(name="value", type=AttributeProto.TENSOR, ref_attr_name="c"))
    add = node("Add", ["a", "k"], ["b"])
    return with_functions(function("leak", value, add, attribute_protos=[default])).SerializeToString()


def external_in_training() -> bytes:
    proto = model()
    info = proto.training_info.add()
    info.algorithm.name = "a"
    info.algorithm.initializer.append(_external(constant("t", [0.0], np.float32), "/etc/shadow"))
    return proto.SerializeToString()


def external_in_sparse(part: str) -> bytes:
    proto = model()
    sparse = proto.graph.sparse_initializer.add()
    sparse.values.CopyFrom(constant("s", [1.0], np.float32))
    sparse.indices.CopyFrom(constant("i", [0]))
    sparse.dims.append(4)
    _external(getattr(sparse, part), "../../credentials.json")
    return proto.SerializeToString()


def external_in_memory() -> bytes:
    """Points into the address space of the process that loads it."""
    proto = model()
    _external(proto.graph.initializer[0], "*/_ORT_MEM_ADDR_/*")
    return proto.SerializeToString()


def _graph_default(graph) -> bytes:
    default = AttributeProto(name="g", type=AttributeProto.GRAPH, g=graph)
    body = node("Identity", ["a"], ["b"])
    return with_functions(function("hides", body, attribute_protos=[default])).SerializeToString()


def many_nodes_in_default(count: int) -> bytes:
    names = [f"n{i}" for i in range(count + 1)]
    nodes = [node("Identity", [a], [b]) for a, b in itertools.pairwise(names)]
    return _graph_default(helper.make_graph(nodes, "g", [], []))


def forbidden_in_default() -> bytes:
    return _graph_default(helper.make_graph([node("EPContext", [], ["c"], domain="com.microsoft")], "g", [], []))


def deep_in_default(depth: int) -> bytes:
    inner = helper.make_graph([node("Identity", ["a"], ["b"])], "g", [], [])
    for level in range(depth):
        inner = helper.make_graph([node("If", ["c"], [f"o{level}"], then_branch=inner)], f"g{level}", [], [])
    return _graph_default(inner)


def forbidden_as_function() -> bytes:
    """A function of the forbidden operator's name, as if that were the model's own."""
    own = helper.make_function(
        "com.microsoft", "EPContext", ["a"], ["b"], [node("Identity", ["a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    proto = model([node("EPContext", ["x"], ["f"], domain="com.microsoft"), node("MatMul", ["f", "w"], ["y"])])
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    proto.functions.append(own)
    return proto.SerializeToString()


def calls_itself() -> bytes:
    a = function("ping", node("pong", ["a"], ["b"], domain=DOMAIN))
    b = function("pong", node("ping", ["a"], ["b"], domain=DOMAIN))
    return with_functions(a, b).SerializeToString()


def doubles(times: int) -> bytes:
    """Functions that each call the next one twice: 2 ** ``times`` operators, in a file of a few KB."""
    functions = [function(f"f{times}", node("Identity", ["a"], ["b"]))]
    for level in range(times - 1, -1, -1):
        calls = [node(f"f{level + 1}", [a], [b], domain=DOMAIN) for a, b in (("a", "m"), ("m", "b"))]
        functions.insert(0, function(f"f{level}", *calls))
    return with_functions(*functions).SerializeToString()


def folds(operator: str) -> bytes:
    """Constant folding when the session is created makes a huge tensor of a few bytes."""
    made = {
        "Expand": [node("Expand", ["one", "large"], ["c"])],
        "Tile": [node("Expand", ["one", "small"], ["e"]), node("Tile", ["e", "large"], ["c"])],
        "Range": [node("Range", ["start", "limit", "delta"], ["c"])],
        "ConstantOfShape": [node("ConstantOfShape", ["large"], ["c"])],
        "EyeLike": [node("ConstantOfShape", ["large"], ["e"]), node("EyeLike", ["e"], ["c"])],
    }[operator]
    constants = [
        constant("one", [[1.0]], np.float32),
        constant("large", [1 << 17, 1 << 17]),
        constant("small", [2, 2]),
        constant("start", 0.0, np.float32),
        constant("limit", 1e12, np.float32),
        constant("delta", 1.0, np.float32),
    ]
    nodes = [*made, node("ReduceMax", ["c"], ["m"], keepdims=0), node("MatMul", ["x", "w"], ["z"])]
    return model([*nodes, node("Add", ["z", "m"], ["y"])], constants=constants).SerializeToString()


def _loop(turns: int, body: list, state: str, kind: int, shape: list, after: list, constants: list, **more) -> bytes:
    graph = helper.make_graph(
        [node("Identity", ["go"], ["on"]), *body],
        "body",
        [tensor("i", [], TensorProto.INT64), tensor("go", [], TensorProto.BOOL), tensor("h", shape, kind)],
        [tensor("on", [], TensorProto.BOOL), tensor("next", shape, kind)],
    )
    nodes = [node("Loop", ["turns", "", state], ["last"], body=graph), *after]
    return model(nodes, constants=[constant("turns", turns), *constants], **more).SerializeToString()


def grows_in_a_loop() -> bytes:
    after = [
        node("ReduceMax", ["last"], ["m"], keepdims=0),
        node("MatMul", ["x", "w"], ["z"]),
        node("Add", ["z", "m"], ["y"]),
    ]
    return _loop(60, [node("Concat", ["h", "h"], ["next"], axis=0)], "x", FLOAT, ["b", 4], after, [])


def grows_a_string(turns: int = 40) -> bytes:
    after = [
        node("Shape", ["last"], ["s"]),
        node("Cast", ["s"], ["f"], to=FLOAT),
        node("MatMul", ["x", "w"], ["z"]),
        node("Add", ["z", "f"], ["y"]),
    ]
    text = helper.make_tensor("text", TensorProto.STRING, [1], [b"a" * 1024])
    body = [node("StringConcat", ["h", "h"], ["next"])]
    return _loop(turns, body, "text", TensorProto.STRING, [1], after, [text], opset=20)


def many_strings(count: int) -> bytes:
    """A constant of empty texts: two bytes each in the file, and many times that in memory."""
    proto = model()
    proto.graph.initializer.append(TensorProto(name="s", dims=[count], data_type=TensorProto.STRING))
    proto.graph.initializer[-1].string_data.extend([b""] * count)
    return proto.SerializeToString()


def huge_output() -> bytes:
    """One row of input gives 64 GiB of output."""
    nodes = [
        node("MatMul", ["x", "w"], ["z"]),
        node("Shape", ["z"], ["s"]),
        node("Mul", ["s", "k"], ["l"]),
        node("Expand", ["z", "l"], ["y"]),
    ]
    outputs = [tensor("y", ["b", "n"])]
    return model(nodes, outputs=outputs, constants=[constant("k", [1, 1 << 33])]).SerializeToString()


def weights_of(value: float) -> bytes:
    return model(weights=constant("w", np.full((4, 3), value), np.float32)).SerializeToString()


def many_outputs(count: int) -> bytes:
    proto = model()
    proto.graph.output.extend(tensor(f"o{i}", ["b", 3]) for i in range(count))
    return proto.SerializeToString()


def name_of_bytes() -> bytes:
    """An operator's name that is not UTF-8."""
    return (
        model([node("Unicode", ["x"], ["y"])]).SerializeToString().replace(b"Unicode", b"\xff\xfe\xfd\xfc\xfb\xfa\xf9")
    )


def dimension_of_bytes() -> bytes:
    """A dimension's name that is not UTF-8."""
    proto = model(inputs=[tensor("x", ["Unicode", 4])])
    return proto.SerializeToString().replace(b"Unicode", b"\xe1\xe1\xe1\xe1\xe1\xe1\xe1")


def folds_often(width: int) -> bytes:
    """Many operators without inputs of the model, each of which is folded and kept."""
    nodes = [node("ConstantOfShape", ["large"], [f"c{i}"]) for i in range(width)]
    nodes += [node("ReduceMax", [f"c{i}"], [f"m{i}"], keepdims=0) for i in range(width)]
    nodes += [node("Sum", [f"m{i}" for i in range(width)], ["m"]), node("MatMul", ["x", "w"], ["z"])]
    nodes.append(node("Add", ["z", "m"], ["y"]))
    return model(nodes, constants=[constant("large", [1 << 13, 1 << 13])]).SerializeToString()
