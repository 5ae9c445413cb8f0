"""Models that need values of their domain are found some, or take a sample."""

from __future__ import annotations

import io
import json
from itertools import islice

import numpy as np
import pytest

from registry import models as registry
from scheduler.control.wire import application_spec, variant_spec
from tests.executor.harness import Executor
from tests.gateway.alone_models import LONG, F, S, model, node
from tests.registry.conftest import named, problem
from workers.executor.runtime import Runtime
from workers.executor.trial_values import combinations
from workers.executor.watchdog import Watchdog
from workers.protocol.shapes import OPEN_SIZES
from workers.protocol.specs import Signature, TensorSpec

pytestmark = pytest.mark.django_db(transaction=True)
Y = [("y", F, ["N", 4])]
NAMES = {F: "FP32", LONG: "INT64", S: "BYTES"}
TABLE = ("table", np.ones((3, 4), np.float32))
FAR = [node("Sub", ["x", "offset"], ["place"]), node("Gather", ["table", "place"], ["y"], axis=0)]
FAR_PLACES = model(FAR, [("x", LONG, ["N"])], Y, [TABLE, ("offset", np.int64(90_000))])
SOUND = [("y", F, ["N", 1, "U"])]

DOMAINS = {
    "Kelvin": (
        [node("Sub", ["x", "zero"], ["c"]), node("Log", ["c"], ["y"])],
        [("x", F, ["N", 4])],
        [("zero", np.float32(273))],
    ),
    "text of numbers": ([node("Cast", ["x"], ["y"], to=F)], [("x", S, ["N", 4])], []),
    "a divisor": (
        [node("Div", ["a", "b"], ["c"]), node("Cast", ["c"], ["y"], to=F)],
        [("a", LONG, ["N", 4]), ("b", LONG, ["N", 4])],
        [],
    ),
    "a mean over a length": (
        [node("ReduceSum", ["x", "one"], ["s"]), node("Cast", ["n"], ["f"], to=F), node("Div", ["s", "f"], ["y"])],
        [("x", F, ["N", 4]), ("n", LONG, ["N", 4])],
        [("one", np.array([1], np.int64))],
    ),
    "an inverse hyperbolic cosine": ([node("Acosh", ["x"], ["y"])], [("x", F, ["N", 4])], []),
    "places of a small table": ([node("Gather", ["table", "x"], ["y"], axis=0)], [("x", LONG, ["N"])], [TABLE]),
    "a logit of fractions": (
        [node("Sub", ["one", "score"], ["r"]), node("Div", ["score", "r"], ["q"]), node("Log", ["q"], ["y"])],
        [("score", F, ["N", 4])],
        [("one", np.float32(1))],
    ),
}


def create(name: str, made) -> registry.Application:
    tensors = {
        kind: [
            {
                "name": tensor.name,
                "datatype": NAMES[tensor.type.tensor_type.elem_type],
                "shape": [-1, *(d.dim_value or -1 for d in tensor.type.tensor_type.shape.dim[1:])],
            }
            for tensor in some
        ]
        for kind, some in (("inputs", made.graph.input), ("outputs", made.graph.output))
    }
    return registry.Application.objects.create(name=name, slo_ms=500, signature=tensors)


def runs_on_a_device(data: bytes, folder) -> None:
    variant = registry.Variant.objects.select_related("application").get()
    (folder / "m.onnx").write_bytes(data)
    runtime = Runtime(Executor(folder).info, Watchdog())
    loaded = runtime.load(str(folder / "m.onnx"), application_spec(variant.application).signature)
    loaded.expect(variant_spec(variant, None))
    for rows in (1, 2, 8):
        outputs, _ = loaded.run(loaded.sample(rows), rows)
        assert all(np.isfinite(array).all() for array in outputs.values())


@pytest.mark.parametrize("domain", DOMAINS)
def test_values_of_its_domain_are_found_for_a_model(domain, upload, tmp_path):
    nodes, inputs, constants = DOMAINS[domain]
    made = model(nodes, inputs, Y, constants)
    create("domain", made)
    response = upload(made.SerializeToString(), application="domain")
    assert response.status_code == 201, response.content
    inspection = response.json()["inspection"]
    assert inspection["values"].startswith("made up: ")
    assert inspection["warnings"] == []
    runs_on_a_device(made.SerializeToString(), tmp_path)


def test_a_model_that_needs_rows_of_its_owners_says_so_and_takes_a_sample(upload, tmp_path):
    create("far", FAR_PLACES)
    data = FAR_PLACES.SerializeToString()
    assert "send rows of yours as 'sample'" in problem(upload(data, application="far"), 400)["file"]
    npz = io.BytesIO()
    np.savez(npz, x=np.array([90_001, 90_002], np.int64))
    wrong = upload(data, application="far", sample=named(b"no sample", "rows.npz"))
    assert "not a readable .npz" in problem(wrong, 400)["sample"]
    query = {"inputs": [{"name": "x", "datatype": "INT64", "shape": [1], "data": [90_000]}]}
    for name, sample in (("npz", npz.getvalue()), ("json", json.dumps(query).encode())):
        response = upload(data, name=name, application="far", sample=named(sample, f"rows.{name}"))
        assert response.status_code == 201, response.content
        assert response.json()["inspection"]["values"] == "the sample"
    registry.Variant.objects.get(name="json").delete()
    runs_on_a_device(data, tmp_path)


def test_a_model_that_made_up_values_crash_takes_a_sample(upload, tmp_path):
    shapes = {"signal": [1, 128, 1], "step": [], "length": []}
    kinds = {"signal": F, "step": LONG, "length": LONG}
    inputs = [(name, kinds[name], shape) for name, shape in shapes.items()]
    made = model([node("STFT", ["signal", "step", "", "length"], ["y"])], inputs, [("y", F, [1, "T", 9, 2])])
    tensors = [{"name": name, "datatype": NAMES[kind], "shape": shape} for name, kind, shape in inputs]
    outputs = [{"name": "y", "datatype": "FP32", "shape": [1, -1, 9, 2]}]
    registry.Application.objects.create(
        name="sound", slo_ms=500, signature={"inputs": tensors, "outputs": outputs}, batch=False
    )
    data = {"signal": [0.5] * 128, "step": [8], "length": [16]}
    sample = json.dumps({"inputs": [{**tensor, "data": data[tensor["name"]]} for tensor in tensors]}).encode()
    response = upload(made.SerializeToString(), application="sound", sample=named(sample, "rows.json"))
    assert response.status_code == 201, response.content
    assert "crashes onnxruntime with some values" in response.json()["inspection"]["warnings"][0]
    runs_on_a_device(made.SerializeToString(), tmp_path)


def test_made_up_values_that_take_all_memory_do_not_refuse_a_sample(upload, tmp_path):
    """The output's size is a value: made-up ones ask for terabytes."""
    made = model(
        [node("Resize", ["x", "", "scales"], ["y"], mode="nearest")],
        [("x", F, [1, 1, 2, 2]), ("scales", F, [4])],
        [("y", F, [1, 1, 4, 6])],
    )
    inputs = [
        {"name": "x", "datatype": "FP32", "shape": [1, 1, 2, 2]},
        {"name": "scales", "datatype": "FP32", "shape": [4]},
    ]
    outputs = [{"name": "y", "datatype": "FP32", "shape": [1, 1, 4, 6]}]
    registry.Application.objects.create(
        name="enlarged", slo_ms=500, signature={"inputs": inputs, "outputs": outputs}, batch=False
    )
    refused = upload(made.SerializeToString(), application="enlarged")
    assert "or send rows of yours as 'sample' if" in problem(refused, 400)["file.outputs.y.shape"]
    data = {"x": [0.5] * 4, "scales": [1.0, 1.0, 2.0, 3.0]}
    sample = json.dumps({"inputs": [{**tensor, "data": data[tensor["name"]]} for tensor in inputs]}).encode()
    response = upload(made.SerializeToString(), application="enlarged", sample=named(sample, "rows.json"))
    assert response.status_code == 201, response.content
    runs_on_a_device(made.SerializeToString(), tmp_path)


def test_not_a_number_is_a_warning(upload):
    made = model(
        [node("Sqrt", ["x"], ["r"]), node("Add", ["r", "nan"], ["y"])],
        [("x", F, ["N", 4])],
        Y,
        [("nan", np.float32("nan"))],
    )
    create("nan", made)
    response = upload(made.SerializeToString(), application="nan")
    assert response.status_code == 201, response.content
    assert "gave NaN or infinity" in response.json()["inspection"]["warnings"][0]


def test_each_size_that_was_tried_has_its_error_and_the_cure_is_named(upload):
    kernel = ("k", np.ones((1, 1, 20_000), np.float32))
    made = model([node("Conv", ["x", "k"], ["y"])], [("x", F, ["N", 1, "T"])], SOUND, [kernel])
    create("sound", made)
    text = problem(upload(made.SerializeToString(), application="sound"), 400)["file"]
    for size in OPEN_SIZES:
        assert f"with 1 row at size {size}: " in text
    assert "declare the application's 'sizes'" in text
    registry.Application.objects.filter(name="sound").update(sizes=[30_000])
    assert upload(made.SerializeToString(), application="sound").status_code == 201


@pytest.mark.parametrize("length", [300, 5000])
def test_sound_is_tried_at_lengths_of_its_own(length, upload, tmp_path):
    made = model(
        [node("Conv", ["x", "k"], ["y"])],
        [("x", F, ["N", 1, "T"])],
        SOUND,
        [("k", np.ones((1, 1, length), np.float32))],
    )
    create("sound", made)
    assert upload(made.SerializeToString(), application="sound").status_code == 201
    runs_on_a_device(made.SerializeToString(), tmp_path)


def own_shapes(name: str, made, **outputs) -> registry.Application:
    """An application without a batch dimension."""
    tensors = {
        kind: [
            {
                "name": tensor.name,
                "datatype": "FP32",
                "shape": outputs.get(tensor.name) or [d.dim_value or -1 for d in tensor.type.tensor_type.shape.dim],
            }
            for tensor in some
        ]
        for kind, some in (("inputs", made.graph.input), ("outputs", made.graph.output))
    }
    return registry.Application.objects.create(name=name, slo_ms=500, signature=tensors, batch=False)


def test_a_batch_of_the_models_own_is_one(upload, tmp_path):
    """Open dimensions that are all of one size give another rank."""
    made = model(
        [
            node("ReduceMean", ["sound", "axes"], ["m"], keepdims=0),
            node("Add", ["m", "state"], ["s"]),
            node("Squeeze", ["s"], ["y"]),
        ],
        [("sound", F, ["batch", "T", 8]), ("state", F, ["batch"])],
        [("y", F, [])],
        [("axes", np.array([1, 2], np.int64))],
    )
    own_shapes("score", made)
    response = upload(made.SerializeToString(), application="score")
    assert response.status_code == 201, response.content
    runs_on_a_device(made.SerializeToString(), tmp_path)


def test_outputs_have_the_shape_that_runs_give_whatever_the_file_says(upload, tmp_path):
    made = model([node("Transpose", ["x"], ["y"], perm=[2, 0, 1])], [("x", F, [1, 1, "W"])], [("y", F, [1, "L"])])
    own_shapes("read", made)
    told = problem(upload(made.SerializeToString(), application="read"), 400)["file.outputs.y.shape"]
    assert told.startswith("a run gave [16, 1, 1]; the application's signature says [1, -1]; give the signature what")
    registry.Application.objects.all().delete()
    own_shapes("read", made, y=[-1, 1, 1])
    assert upload(made.SerializeToString(), application="read").status_code == 201
    runs_on_a_device(made.SerializeToString(), tmp_path)


def test_combinations_are_lazy_and_plausible_ones_come_first():
    many = Signature(tuple(TensorSpec(f"x{i}", "FP32", (-1, 1)) for i in range(1000)), ())
    first = list(islice(combinations(many), 80))
    assert set(first[0].values()) == {"normal"}
    assert all(len(rungs) == 1000 for rungs in first)
    hinted = Signature((TensorSpec("boxes", "FP32", (-1, 4)), TensorSpec("iou_threshold", "FP32", (-1, 1))), ())
    assert next(combinations(hinted)) == {"boxes": "normal", "iou_threshold": "fractions"}
