"""Rows that influence each other are found, and no others are accused."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays

from appliance.demo import manifest
from registry.errors import InvalidInput
from registry.inspection import independence
from registry.inspection.independence import Hints, reason
from registry.inspection.model import inspect
from tests.executor.harness import endless
from tests.gateway.alone_models import LONG, B, F, S, dependent, model, node, unbatched
from workers.executor import independence as rows
from workers.protocol.specs import Signature

X, Y = [("x", F, ["N", 4])], [("y", F, ["N", 4])]
WORDS = [("x", S, ["N", 2])], [("y", S, ["N", 2])]
RANDOM = np.random.default_rng(0)
WEIGHTS = ("w", RANDOM.standard_normal((4, 4)).astype(np.float32))
ONES, AXIS = ("ones", np.ones(4, np.float32)), ("axis", np.array([0], np.int64))
RNN = [
    ("W", RANDOM.standard_normal((1, 3, 2)).astype(np.float32)),
    ("R", RANDOM.standard_normal((1, 3, 3)).astype(np.float32)),
    AXIS,
]
BACKWARDS = [("first", [-1]), ("last", [-(2**62)]), ("axis", [0]), ("step", [-1])]
BACKWARDS = [(name, np.array(value, np.int64)) for name, value in BACKWARDS]
KERNEL = ("k", RANDOM.standard_normal((3, 2, 3, 3)).astype(np.float32))
SIZE = node("Shape", ["x"], ["n"], start=0, end=1)


def doubled_where(condition: list, constants: list) -> onnx.ModelProto:
    """Twice the rows where ``condition`` makes ``c`` true."""
    graphs = [
        onnx.helper.make_graph([made], made.op_type, [], [onnx.helper.make_tensor_value_info(made.output[0], F, None)])
        for made in (node("Add", ["x", "x"], ["twice"]), node("Identity", ["x"], ["once"]))
    ]
    nodes = [*condition, node("If", ["c"], ["y"], then_branch=graphs[0], else_branch=graphs[1])]
    return model(nodes, X, Y, constants)


def sum_above(limit: float) -> onnx.ModelProto:
    nodes = [node("ReduceSum", ["x"], ["s"], keepdims=0), node("Greater", ["s", "limit"], ["c"])]
    return doubled_where(nodes, [("limit", np.float32(limit))])


def flagged(limits: tuple | None) -> onnx.ModelProto:
    """All rows with the number of values above ``limits``, or above a large constant."""
    nodes = [
        node("Greater", ["x", "limits"], ["g"]),
        node("Cast", ["g"], ["f"], to=F),
        node("ReduceMax", ["f"], ["m"], keepdims=0),
        node("Add", ["x", "m"], ["y"]),
    ]
    return model(
        nodes if limits else [node("Constant", [], ["limits"], value_float=3e9), *nodes],
        X,
        Y,
        [limits] if limits else [],
    )


INDEPENDENT = {
    "perceptron": model([node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["y"])], X, Y, [WEIGHTS]),
    "softmax over the last axis": model([node("Softmax", ["x"], ["y"], axis=-1)], X, Y),
    "labels": model(
        [node("MatMul", ["x", "w"], ["h"]), node("ArgMax", ["h"], ["y"], axis=1, keepdims=0)],
        X,
        [("y", LONG, ["N"])],
        [WEIGHTS],
    ),
    "batch normalisation": model([node("BatchNormalization", ["x", *["ones"] * 4], ["y"])], X, Y, [ONES]),
    "recurrence over each row's own time": model(
        [
            node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
            node("RNN", ["t", "W", "R"], ["Y", "last"], hidden_size=3),
            node("Squeeze", ["last", "axis"], ["y"]),
        ],
        [("x", F, ["N", 5, 2])],
        [("y", F, ["N", 3])],
        RNN,
    ),
    "convolution": model(
        [node("Conv", ["x", "k"], ["y"], pads=[1, 1, 1, 1])],
        [("x", F, ["N", 2, 6, 6])],
        [("y", F, ["N", 3, 6, 6])],
        [KERNEL],
    ),
    "text": model([node("Identity", ["x"], ["y"])], *WORDS),
}
DEPENDENT = {
    **{name: example.proto for name, example in dependent().items()},
    "softmax over rows": model([node("Softmax", ["x"], ["y"], axis=0)], X, Y),
    "less the mean": model([node("ReduceMean", ["x", "axis"], ["m"]), node("Sub", ["x", "m"], ["y"])], X, Y, [AXIS]),
    "attention": model(
        [
            node("Transpose", ["x"], ["t"]),
            node("MatMul", ["x", "t"], ["s"]),
            node("Softmax", ["s"], ["p"]),
            node("MatMul", ["p", "x"], ["y"]),
        ],
        X,
        Y,
    ),
    "sorted rows": model([SIZE, node("TopK", ["x", "n"], ["y", "places"], axis=0)], X, Y),
    "the largest of all": model(
        [node("ReduceMax", ["x", "axis"], ["m"]), node("Equal", ["x", "m"], ["y"])], X, [("y", B, ["N", 4])], [AXIS]
    ),
    "text backwards": model([node("Slice", ["x", "first", "last", "axis", "step"], ["y"])], *WORDS, BACKWARDS),
    "scaled by all rows": model(
        [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), node("DequantizeLinear", ["q", "s", "z"], ["y"])], X, Y
    ),
    "the number of rows": model([SIZE, node("Cast", ["n"], ["f"], to=F), node("Mul", ["x", "f"], ["y"])], X, Y),
    "from a sum of 7 on": sum_above(7),
    "from a sum of 1000 on": sum_above(1000),
    "from a sum of three millions on": sum_above(3e6),
    "from a million in a list on": flagged(("limits", np.array([1e6, 2e6, 3e6, 4e6], np.float32))),
    "from a number of an operator's own on": flagged(None),
    "from the largest of a long list on": model(
        [
            node("ReduceMax", ["limits"], ["most"], keepdims=0),
            node("Greater", ["x", "most"], ["g"]),
            node("Cast", ["g"], ["f"], to=F),
            node("ReduceMax", ["f"], ["m"], keepdims=0),
            node("Add", ["x", "m"], ["y"]),
        ],
        X,
        Y,
        [("limits", np.arange(1, 21, dtype=np.float32) * np.float32(1e7))],
    ),
    "between two large numbers": model(
        [
            node("Greater", ["x", "low"], ["above"]),
            node("Less", ["x", "high"], ["below"]),
            node("And", ["above", "below"], ["g"]),
            node("Cast", ["g"], ["f"], to=F),
            node("ReduceMax", ["f"], ["m"], keepdims=0),
            node("Add", ["x", "m"], ["y"]),
        ],
        X,
        Y,
        [("low", np.full(4, 2e8, np.float32)), ("high", np.full(4, 2.1e8, np.float32))],
    ),
    "beside a text that the model knows": model(
        [
            node("LabelEncoder", ["x"], ["k"], domain="ai.onnx.ml", keys_strings=["vip"], values_int64s=[1]),
            node("ReduceMax", ["k"], ["m"], keepdims=0),
            node("Add", ["k", "m"], ["y"]),
        ],
        WORDS[0],
        [("y", LONG, ["N", 2])],
    ),
    **{
        f"from {rows + 1} rows on": doubled_where(
            [SIZE, node("Greater", ["n", "many"], ["g"]), node("Squeeze", ["g"], ["c"])],
            [("many", np.array([rows], np.int64))],
        )
        for rows in (40, 200)
    },
    "by a millionth of the mean": model(
        [node("ReduceMean", ["x", "axis"], ["m"]), node("Mul", ["m", "part"], ["p"]), node("Add", ["x", "p"], ["y"])],
        X,
        Y,
        [AXIS, ("part", np.float32(1e-6))],
    ),
}


def found(proto: onnx.ModelProto) -> str:
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    base = {}
    for tensor in session.get_inputs():
        shape = (3, *[size if isinstance(size, int) else 4 for size in tensor.shape[1:]])
        base[tensor.name] = {
            "tensor(float)": RANDOM.random(shape, dtype=np.float32),
            "tensor(int64)": RANDOM.integers(0, 2, shape),
            "tensor(string)": np.full(shape, "a", object),
        }[tensor.type]
    names = [output.name for output in session.get_outputs()]

    def run(inputs):
        return session.run(names, inputs)

    first = run({name: array[:1] for name, array in base.items()})
    return reason(run, base, first, names, Hints(proto))


@pytest.mark.parametrize("name", INDEPENDENT)
def test_independent_rows_are_not_accused(name):
    assert not found(INDEPENDENT[name])


@pytest.mark.parametrize("path", sorted(manifest.FOLDER.rglob("*.onnx")), ids=lambda path: path.stem)
def test_the_demo_may_batch(path):
    assert not found(onnx.load(path))


@pytest.mark.parametrize("name", DEPENDENT)
def test_dependent_rows_are_found(name):
    assert "a row's answer depends on" in found(DEPENDENT[name])


@settings(max_examples=40, deadline=None)
@given(
    some.integers(1, 6),
    some.integers(1, 6),
    arrays(np.float32, (6, 6), elements=some.floats(-3, 3, width=32)),
    some.sampled_from(["Relu", "Tanh", "Sigmoid", "Softmax", "Abs", "Elu"]),
    some.sampled_from([None, "CumSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceSum"]),
)
def test_any_layer_is_accused_exactly_if_rows_meet_in_it(width, hidden, weights, kind, over_rows):
    # A weight of zero would hide the rows from each other.
    weights = np.where(np.abs(weights) < 0.1, 0.1, weights).astype(np.float32)[:width, :hidden]
    nodes = [node("MatMul", ["x", "w"], ["h"]), node(kind, ["h"], ["k"])]
    if over_rows is None:
        nodes.append(node("Identity", ["k"], ["y"]))
    elif over_rows == "CumSum":
        nodes += [node("CumSum", ["x", "zero"], ["c"]), node("MatMul", ["c", "w"], ["y"])]
    else:
        nodes += [
            node(over_rows, ["x", "axis"], ["m"]),
            node("Sub", ["x", "m"], ["d"]),
            node("MatMul", ["d", "w"], ["y"]),
        ]
    constants = [("w", weights), AXIS, ("zero", np.array(0, np.int64))]
    proto = model(nodes, [("x", F, ["N", width])], [("y", F, ["N", hidden])], constants)
    assert bool(found(proto)) == (over_rows is not None)


def test_sizes_beyond_the_inspections_memory_are_left_out():
    def run(inputs):
        if len(inputs["x"]) > 3:
            raise MemoryError
        return [inputs["x"]]

    base = {"x": np.ones((3, 1), np.float32)}
    assert reason(run, base, [base["x"][:1]], ["y"], Hints()) == ""


def test_a_slow_model_that_adds_up_the_rows_before_is_found(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(independence.time, "process_time", lambda: now[0])

    def run(inputs):
        now[0] += 0.4 * len(inputs["x"])
        return [np.cumsum(inputs["x"], axis=0)]

    base = {"x": RANDOM.random((3, 2), dtype=np.float32)}
    assert "depends on the other rows" in reason(run, base, [base["x"][:1]], ["y"], Hints())


async def test_queries_of_several_rows_are_compared_as_they_came():
    async def doubled(given):
        return [given["x"] * 2]

    async def summed(given):
        return [np.cumsum(given["x"], 0)]

    inputs = {"x": np.arange(10, dtype=np.int64).reshape(5, 2)}
    assert await rows.influence(doubled, inputs, (2, 3), ["y"]) == ""
    found = await rows.influence(summed, inputs, (2, 3), ["y"])
    assert found == "y: beside other queries 6 of 6 values differ"


async def test_a_label_that_rounding_decides_is_no_influence():
    async def label(given):
        # Which of two is larger depends on the size of the run alone.
        return [np.full(len(given["x"]), len(given["x"]) % 2)]

    assert await rows.influence(label, {"x": np.zeros((4, 1), np.float32)}, (1, 1, 1, 1), ["y"]) == ""


# --- the inspection -------------------------------------------------------------------------------------------------


def signature(spec: Signature, batch: bool) -> dict:
    return {
        kind: [
            {"name": t.name, "datatype": t.datatype, "shape": list(t.shape if batch else t.shape[1:])}
            for t in getattr(spec, kind)
        ]
        for kind in ("inputs", "outputs")
    }


@pytest.mark.parametrize("name", unbatched())
def test_models_without_a_batch_dimension_are_inspected_with_their_own_shapes(tmp_path, name):
    example = unbatched()[name]
    path = str(tmp_path / "m.onnx")
    onnx.save(example.proto, path)
    own = signature(example.signature, False)
    facts = inspect(path, own, batch=False)
    assert (facts["max_batch"], facts["alone"]) == (1, "")
    # As strangers write it: the first dimension is the batch.
    for tensor in (*own["inputs"], *own["outputs"]):
        tensor["shape"][:1] = [-1]
    with pytest.raises(InvalidInput) as refused:
        inspect(path, own)
    assert '"batch": false' in str(refused.value.faults)


def test_first_dimensions_of_unlike_names_are_named_where_no_run_works(tmp_path):
    nodes = [node("Reshape", ["state", "shape"], ["one"]), node("Add", ["x", "one"], ["y"])]
    inputs = [("x", F, ["N", 4]), ("state", F, ["layers", 2])]
    path = str(tmp_path / "m.onnx")
    # It takes two layers only.
    onnx.save(model(nodes, inputs, [("y", F, ["N", 4])], [("shape", np.array([1, 4], np.int64))]), path)
    tensors = [{"name": name, "datatype": "FP32", "shape": [-1, size]} for name, size in (("x", 4), ("state", 2))]
    given = {"inputs": tensors, "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}]}
    with pytest.raises(InvalidInput) as refused:
        inspect(path, given)
    assert "unlike first dimensions (N, layers)" in str(refused.value.faults)
    assert '"batch": false' in str(refused.value.faults)


@pytest.mark.parametrize("op", ["Identity", "CumSum"])
def test_what_is_drawn_at_random_runs_alone(op):
    drawn = [node("RandomNormalLike", ["x"], ["r"]), node(op, ["x", "zero"][: 1 + (op == "CumSum")], ["k"])]
    proto = model([*drawn, node("Add", ["r", "k"], ["y"])], X, Y, [("zero", np.array(0, np.int64))])
    assert "drawn at random" in found(proto)


@pytest.mark.parametrize("batch", [True, False])
def test_a_model_that_earlier_queries_influence_is_refused(batch, tmp_path):
    trained = node("BatchNormalization", ["x", *"abcd"], ["y", "mean", "variance"], training_mode=1)
    path = str(tmp_path / "m.onnx")
    onnx.save(model([trained], X, Y, [(name, np.ones(4, np.float32)) for name in "abcd"]), path)
    tensors = [{"name": name, "datatype": "FP32", "shape": [-1, 4]} for name in "xy"]
    with pytest.raises(InvalidInput, match="earlier queries influence it"):
        inspect(path, {"inputs": tensors[:1], "outputs": tensors[1:]}, batch=batch)


def test_a_loop_that_made_up_rows_have_run_for_years_refuses_no_model(tmp_path):
    path = str(endless(tmp_path / "m.onnx"))
    tensors = [{"name": name, "datatype": "FP32", "shape": [-1, 4]} for name in "xy"]
    facts = inspect(path, {"inputs": tensors[:1], "outputs": tensors[1:]})
    assert facts["max_batch"] is None


def test_rows_as_many_as_objects_are_found_by_a_single_row():
    proto = unbatched()["detector"].proto
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    base = {"boxes": np.ones((1, 1, 4), np.float32), "scores": np.ones((1, 1, 1), np.float32)}
    with pytest.raises(independence.NotRows):
        independence.keeps_rows(lambda inputs: session.run(["found"], inputs), base, ["found"], Hints(proto))
