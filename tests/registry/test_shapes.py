"""Applications with open dimensions, sizes and padding, and models with a fixed batch size of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry import models as registry
from scheduler.control.wire import application_spec
from tests.registry import graphs
from tests.registry.conftest import problem
from tests.registry.graphs import node
from tests.wild import models

URL = "/api/v1/applications/"


def signature(spec) -> dict:
    return {
        kind: [{"name": t.name, "datatype": t.datatype, "shape": list(t.shape)} for t in getattr(spec, kind)]
        for kind in ("inputs", "outputs")
    }


def body(spec=models.TOKENS, **changes) -> dict:
    return {"name": "texts", "slo_ms": 500, "signature": signature(spec), **changes}


def model(tmp_path: Path, make, *args) -> bytes:
    return make(tmp_path / "m.onnx", *args).read_bytes()


def test_padding_and_sizes_reach_the_data_plane(client):
    response = client.post(URL, body(padding={"ids": 3, "mask": 0}, sizes=[16, 128]))
    assert response.status_code == 201, response.content
    assert response.json()["padding"] == {"ids": 3, "mask": 0}
    spec = application_spec(registry.Application.objects.get(name="texts"))
    assert spec.padding == {"ids": 3.0, "mask": 0.0}
    assert [tensor.most for tensor in spec.signature.inputs] == [128, 128]
    assert [tensor.most for tensor in spec.signature.outputs] == [0, 0, 0]


def test_without_them_any_size_is_taken_and_nothing_padded(client):
    assert client.post(URL, body()).json()["sizes"] == []
    spec = application_spec(registry.Application.objects.get(name="texts"))
    assert spec.padding == {}
    assert [tensor.most for tensor in spec.signature.inputs] == [0, 0]


BAD = {
    "padding of a list": ({"padding": [1]}, "padding", "must be an object of numbers by input"),
    "padding of an output": ({"padding": {"masked": 0}}, "padding.masked", "ids, mask are"),
    "padding of text": ({"padding": {"ids": "0"}}, "padding.ids", "must be a number"),
    "padding that is no number": ({"padding": {"ids": True}}, "padding.ids", "must be a number"),
    "padding with a fraction": ({"padding": {"ids": 0.5}}, "padding.ids", "a INT64 is a whole number"),
    "padding out of bounds": ({"padding": {"ids": 1e300}}, "padding.ids", "must be a number from"),
    "sizes in words": ({"sizes": "large"}, "sizes", "must be a list of at most 16 whole numbers"),
    "sizes of zero": ({"sizes": [0]}, "sizes", "must be from 1 to"),
    "sizes that fall": ({"sizes": [128, 64]}, "sizes", "must ascend"),
    "too many sizes": ({"sizes": list(range(1, 18))}, "sizes", "at most 16"),
    "sizes beyond a row": ({"sizes": [2**24]}, "sizes", "a row of ids would take"),
    "sizes of what is fixed": ({"signature": signature(models.SINGLE), "sizes": [4]}, "sizes", "no input has an open"),
    "padding of what is fixed": ({"signature": signature(models.SINGLE), "padding": {"x": 0}}, "padding.x", "none are"),
    "padding of strings": (
        {
            "signature": {
                "inputs": [{"name": "t", "datatype": "BYTES", "shape": [-1, -1]}],
                "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
            },
            "padding": {"t": 0},
        },
        "padding.t",
        "cannot be padded with a number",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_padding_and_sizes_are_named(kind, client):
    changes, field, text = BAD[kind]
    errors = problem(client.post(URL, body(**changes)), 400)
    assert text in errors[field], errors


def test_a_signature_may_not_leave_its_padding_behind(client):
    assert client.post(URL, body(padding={"ids": 0})).status_code == 201
    errors = problem(client.patch(URL + "texts/", {"signature": signature(models.SINGLE)}), 400)
    assert "is no input with open dimensions" in errors["padding.ids"]


@pytest.fixture
def texts(db):
    return registry.Application.objects.create(name="texts", slo_ms=500, signature=signature(models.TOKENS))


def test_an_upload_is_tried_at_every_declared_size(upload, texts, tmp_path):
    registry.Application.objects.filter(pk=texts.pk).update(sizes=[8, 2**12])
    response = upload(model(tmp_path, models.tokens), application="texts")
    assert response.status_code == 201, response.content
    # A model of fixed inner sizes takes one of them only.
    registry.Application.objects.filter(pk=texts.pk).update(sizes=[8, 9])
    fixed = model(tmp_path, models.tokens_of, 8)
    errors = problem(upload(fixed, name="w", application="texts"), 400)
    assert "fails a run with 1 row at size 9" in errors["file"]


MASKED = [node("Mul", ["ids", "mask"], ["y"])]
MEAN = [
    node("Mul", ["ids", "hundred"], ["h"]),
    node("Cast", ["h"], ["f"], to=1),
    node("ReduceMean", ["f", "one"], ["m"]),
    node("Add", ["f", "m"], ["c"]),
    node("Cast", ["c"], ["y"], to=7),
]
#: operators, the name of the output's second dimension, and a part of why queries run alone
PADDED = {
    "masked": (MASKED, "S", ""),
    "a mask of unknown rank": (MASKED, "S", ""),
    "an output whose dimension has another name": (MASKED, "T", "its shape is [1, 32] instead of [1, 16]"),
    "a mean over the length": (MEAN, "S", "values differ"),
}


@pytest.mark.parametrize("kind", PADDED)
def test_queries_of_a_model_that_padding_changes_run_alone(kind, upload, tmp_path, db):
    nodes, out, why = PADDED[kind]
    made = graphs.helper.make_graph(
        nodes,
        "g",
        [
            graphs.tensor("ids", ["N", "S"], 7),
            graphs.tensor("mask", None if kind == "a mask of unknown rank" else ["N", "S"], 7),
        ],
        [graphs.tensor("y", ["N", out], 7)],
        [graphs.constant("one", [1]), graphs.constant("hundred", 100)],
    )
    tensors = [{"name": name, "datatype": "INT64", "shape": [-1, -1]} for name in ("ids", "mask", "y")]
    registry.Application.objects.create(
        name="texts",
        slo_ms=500,
        signature={"inputs": tensors[:2], "outputs": tensors[2:]},
        padding={"ids": 1, "mask": 0},
    )
    opsets = [graphs.helper.make_opsetid("", 18)]
    data = graphs.helper.make_model(made, opset_imports=opsets, ir_version=8).SerializeToString()
    response = upload(data, application="texts")
    assert response.status_code == 201, response.content
    alone = response.json()["alone"]
    assert (why in alone and "depends on its padding" in alone) if why else not alone


def test_a_fixed_batch_size_of_one_is_taken_and_reported(upload, client, tmp_path, db):
    registry.Application.objects.create(name="one", slo_ms=500, signature=signature(models.SINGLE))
    response = upload(model(tmp_path, models.single), application="one")
    assert response.status_code == 201, response.content
    assert response.json()["inspection"]["max_batch"] == 1
    variant = registry.Variant.objects.get(application__name="one")
    registry.Profile.objects.create(variant=variant, device_type="cpu", load_s=0.1, memory_bytes=1)
    (profile,) = client.get("/api/v1/profiles/?application=one").json()["results"]
    assert profile["max_batch"] == 1


def test_every_datatype_can_be_uploaded_and_two_not_together(upload, tmp_path, db):
    registry.Application.objects.create(name="every", slo_ms=500, signature=signature(models.EVERY))
    response = upload(model(tmp_path, models.every), application="every")
    assert response.status_code == 201, response.content
    registry.Application.objects.create(name="text", slo_ms=500, signature=signature(models.TEXT))
    assert upload(model(tmp_path, models.text), application="text").status_code == 201
    both = {kind: signature(models.EVERY)[kind][-1:] + signature(models.TEXT)[kind] for kind in ("inputs", "outputs")}
    registry.Application.objects.create(name="both", slo_ms=500, signature=both)
    errors = problem(upload(model(tmp_path, models.text_beside_bf16), application="both"), 400)
    assert "are of BF16 beside inputs of BYTES, which onnxruntime cannot run" in errors["file.outputs"]


def test_an_output_that_has_no_rows_is_refused(upload, tmp_path, db):
    of_rows = signature(models.SINGLE)
    registry.Application.objects.create(name="sum", slo_ms=500, signature=of_rows)
    errors = problem(upload(model(tmp_path, models.scalar), application="sum"), 400)
    assert "file.outputs.y.shape" in errors
