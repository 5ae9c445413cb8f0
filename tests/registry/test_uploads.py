"""Uploading variants: what is accepted, what is refused and how; nothing half-done stays."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import threading
import zipfile

import onnx
import pytest
from rest_framework.test import APIClient

from registry import models, storage
from registry.inspection import limits
from tests.registry import graphs
from tests.registry.conftest import named, problem
from tests.registry.graphs import node, tensor

GOOD = graphs.good()


def test_a_good_model_is_stored_by_its_digest_and_waits_for_its_profiles(upload, device, files, announced):
    device("box/cpu0", "cpu-a"), device("box/cpu1", "cpu-a"), device("box/gpu0", "gpu-b")
    response = upload(GOOD, accuracy=91.5)
    assert response.status_code == 201
    assert response["Location"].endswith("/api/v1/applications/tiny/variants/v/")
    body = response.json()
    digest = hashlib.sha256(GOOD).hexdigest()
    assert (body["digest"], body["size_bytes"], body["opset"]) == (digest, len(GOOD), 17)
    assert (body["accuracy"], body["accuracy_source"], body["state"]) == (91.5, "declared", "profiling")
    assert body["inspection"]["inputs"] == graphs.SIGNATURE["inputs"]
    assert body["inspection"]["parameters"] == 12
    assert files() == [digest]
    assert storage.path(digest).read_bytes() == GOOD
    jobs = models.ProfileJob.objects.order_by("device_type")
    assert [(job.device_type, job.state, job.reason) for job in jobs] == [
        ("cpu-a", "queued", "registration"),
        ("gpu-b", "queued", "registration"),
    ]
    assert ("variant", "tiny/v") in announced


def test_an_accuracy_of_less_than_one_percent_is_written_with_its_sign(upload, client):
    assert upload(GOOD, accuracy="0.915%").json()["accuracy"] == 0.915
    changed = client.patch("/api/v1/applications/tiny/variants/v/", {"accuracy": "91.5 %"}, format="json")
    assert changed.json()["accuracy"] == 91.5


def test_one_file_under_two_names_is_kept_until_the_last_goes(upload, client, files, swept):
    assert upload(GOOD, name="a").status_code == 201
    assert upload(GOOD, name="b").status_code == 201
    assert len(files()) == 1
    assert client.delete("/api/v1/applications/tiny/variants/a/").status_code == 204
    swept()
    assert len(files()) == 1
    assert client.delete("/api/v1/applications/tiny/variants/b/").status_code == 204
    swept()
    assert files() == []


def test_a_variant_whose_rows_depend_on_each_other_says_so(upload):
    response = upload(graphs.mixes_rows())
    assert response.status_code == 201
    assert "depends on the other rows" in response.json()["alone"]
    assert response.json()["inspection"]["warnings"] == []


def test_a_model_of_open_dimensions_is_tried_with_sizes_that_it_takes(upload, application):
    application.signature = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
    }
    application.save()
    weights = graphs.constant("w", [[1.0] * 3] * 64, "float32")
    # Only 64 columns multiply with these weights: 16 fails, 64 runs.
    data = graphs.model(inputs=[tensor("x", ["b", "n"])], weights=weights).SerializeToString()
    assert upload(data).status_code == 201


def _zipped(name: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, GOOD)
    return packed.getvalue()


def _typeless() -> bytes:
    proto = graphs.model([node("MatMul", ["x", "w"], ["z"]), node("Neg", ["z"], ["y"])])
    proto.graph.output[0].ClearField("type")
    proto.graph.value_info.add().name = "z"
    return proto.SerializeToString()


LOOSE_MODELS = {
    "an output of unknown rank": lambda: _model(outputs=[tensor("y", None)]),
    "an input of unknown rank": lambda: _model(inputs=[tensor("x", None)]),
    "an output and a value without a type": _typeless,
    "a domain of operators that is not imported": lambda: _model(
        [node("MatMul", ["x", "w"], ["z"]), node("Gelu", ["z"], ["y"], domain="com.microsoft")]
    ),
    "an import of an unknown domain": lambda: _model(domains=["acme.ops"]),
}


@pytest.mark.parametrize("make", LOOSE_MODELS.values(), ids=LOOSE_MODELS)
def test_a_model_that_onnxruntime_runs_is_accepted_with(upload, make):
    response = upload(make())
    assert response.status_code == 201, response.json()


def _model(*args, **kwargs) -> bytes:
    return graphs.model(*args, **kwargs).SerializeToString()


NEWEST = onnx.defs.onnx_opset_version()
INT64, FLOAT16 = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT16

MAPS = onnx.helper.make_sequence_type_proto(
    onnx.helper.make_map_type_proto(INT64, onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, []))
)

BAD_MODELS = {
    "empty": (b"", "file", "is empty"),
    "text": (b"not a model " * 99, "file", "is not an ONNX model"),
    "zeros": (bytes(5000), "file", "is not an ONNX model"),
    "other protobuf": (onnx.TensorProto(dims=[1], data_type=1).SerializeToString(), "file", "is not an ONNX model"),
    "truncated in the middle": (GOOD[: len(GOOD) // 2], "file", "is truncated at its "),
    "truncated by a byte": (GOOD[:-1], "file", "is truncated at its "),
    "no operators": (
        onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [])).SerializeToString(),
        "file",
        "graph without operators",
    ),
    "external data": (graphs.external("weights.bin"), "file.external_data", "outside, in 'weights.bin'"),
    "external data elsewhere": (graphs.external("/etc/passwd"), "file.external_data", "outside, in '/etc/passwd'"),
    "external data in a node": (graphs.external_in_attribute(), "file.external_data", "etc/passwd"),
    "opset too new": (_model(opset=NEWEST + 1), "file.opset", f"opset {NEWEST + 1} of ai.onnx is too new"),
    "opset absurd": (_model(opset=10**9), "file.opset", "onnx.version_converter.convert_version(model, "),
    "opset of more than 32 bits": (_model(opset=2**32 + 17), "file.opset", "is no opset"),
    "IR version too new": (_model(ir_version=99), "file.ir_version", "IR version 99 is too new"),
    "newer than the runtime": (_model(ir_version=onnx.IR_VERSION), "file.ir_version", "set model.ir_version = "),
    "IR version and opset too new": (
        _model(ir_version=99, opset=NEWEST + 1),
        "file.opset",
        "onnx.version_converter.convert_version(model, ",
    ),
    "unknown operator": (
        _model([node("Frobnicate", ["x"], ["y"])]),
        "file.operators",
        "Frobnicate is unknown in opset",
    ),
    "custom domain": (
        _model([node("Secret", ["x"], ["y"], domain="acme.ops")], domains=["acme.ops"]),
        "file.operators",
        "custom domain 'acme.ops'",
    ),
    "reads other files": (
        _model([node("EPContext", ["x"], ["y"], domain="com.microsoft")], domains=["com.microsoft"]),
        "file.operators",
        "reads other files",
    ),
    "broken graph": (_model([node("MatMul", ["nowhere", "w"], ["y"])]), "file", "'nowhere'"),
    "a Git LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "file", "git lfs pull"),
    "an HTML page": (b"\n<!DOCTYPE html><html></html>", "file", "but an HTML page: download the file itself"),
    "a gzip archive": (gzip.compress(GOOD), "file", "but a gzip archive: unpack it"),
    "a zip archive": (_zipped("m.onnx"), "file", "but a zip archive: unpack it"),
    "a PyTorch checkpoint": (_zipped("m/data.pkl"), "file", "torch.onnx.export"),
    "a pickle": (pickle.dumps({"a": 1}), "file", "but a Python pickle: export"),
    "TensorFlow Lite": (b"\x1c\0\0\0TFL3" + bytes(99), "file", "--tflite"),
    "a SavedModel": (b"\x08\x01\x12\xba\x02\x0a\x05Const" + bytes(999), "file", "--saved-model"),
    "safetensors": (b'\x0e\0\0\0\0\0\0\0{"a": {}}     ', "file", "weights without a graph"),
    "JSON": (b'{"a": 1}', "file", "but JSON: upload the .onnx file"),
    "huge constant claimed": (graphs.huge_constant_claim(), "file", f"the limit is {limits.MAX_ELEMENTS}"),
    "constant of rank 10": (graphs.deep_constant(), "file", "has 10 dimensions; the limit is 8"),
    "too many operators": (
        lambda: graphs.too_many_nodes(limits.MAX_NODES + 1),
        "file",
        f"more than {limits.MAX_NODES} operators",
    ),
    "graphs too deep": (graphs.nested(9), "file", "nests graphs deeper than 8 levels"),
    "fixed batch": (
        _model(inputs=[tensor("x", [8, 4])], outputs=[tensor("y", [8, 3])]),
        "file.inputs.x.shape",
        'has no batch dimension: the first is fixed at 8; set "batch": false on the application',
    ),
    "wrong rank": (
        _model([node("Flatten", ["x"], ["f"]), node("MatMul", ["f", "w"], ["y"])], [tensor("x", ["b", 2, 2])]),
        "file.inputs.x.shape",
        "has 3 dimensions [-1, 2, 2]; the application's signature has [-1, 4]",
    ),
    "wrong size": (
        _model(inputs=[tensor("x", ["b", 5])], weights=graphs.constant("w", [[1.0] * 3] * 5, "float32")),
        "file.inputs.x.shape",
        "dimension 1 is 5; the application's signature says 4",
    ),
    "wrong output size": (
        _model(outputs=[tensor("y", ["b", 2])], weights=graphs.constant("w", [[1.0] * 2] * 4, "float32")),
        "file.outputs.y.shape",
        "a run gave [1, 2]; the application's signature says [-1, 3]",
    ),
    "wrong datatype": (
        _model([node("Cast", ["x"], ["f"], to=1), node("MatMul", ["f", "w"], ["y"])], [tensor("x", ["b", 4], INT64)]),
        "file.inputs.x.datatype",
        "is INT64; the application's signature says FP32",
    ),
    "wrong output datatype": (
        _model(
            [node("MatMul", ["x", "w"], ["z"]), node("Cast", ["z"], ["y"], to=FLOAT16)],
            outputs=[tensor("y", ["b", 3], FLOAT16)],
        ),
        "file.outputs.y.datatype",
        "is FP16; the application's signature says FP32",
    ),
    "input of another name": (
        _model([node("MatMul", ["image", "w"], ["y"])], [tensor("image", ["b", 4])]),
        "file.inputs.x",
        "is missing: the application's signature has it; the model's inputs are 'image'",
    ),
    "output of another name": (
        _model([node("MatMul", ["x", "w"], ["scores"])], outputs=[tensor("scores", ["b", 3])]),
        "file.outputs.y",
        "the model's outputs are 'scores'",
    ),
    "one input more": (
        _model(
            [node("MatMul", ["x", "w"], ["z"]), node("Add", ["z", "b"], ["y"])],
            [tensor("x", ["b", 4]), tensor("b", ["b", 3])],
        ),
        "file.inputs.b",
        "is not in the application's signature",
    ),
    "output is a sequence": (
        _model(
            [node("MatMul", ["x", "w"], ["z"]), node("SequenceConstruct", ["z"], ["y"])],
            outputs=[onnx.helper.make_tensor_sequence_value_info("y", 1, ["b", 3])],
        ),
        "file.outputs.y.datatype",
        "seq(tensor(float))",
    ),
    "a classifier's output is a sequence of maps": (
        _model(
            [
                node("MatMul", ["x", "w"], ["z"]),
                node("ZipMap", ["z"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2]),
            ],
            outputs=[onnx.helper.make_value_info("y", MAPS)],
            domains=["ai.onnx.ml"],
        ),
        "file.outputs.y.datatype",
        '{"zipmap": False}',
    ),
    "joins its rows": (
        graphs.joins_rows(),
        "file.outputs.y.shape",
        "has no batch dimension: 3 rows in gave shape [1, 3]",
    ),
    "takes one row only": (graphs.one_row_only(), "file", "fails a run with 3 rows"),
    "memory bomb": (graphs.memory_bomb(), "file", "needs more than 256 MiB of memory beyond its own size"),
}


@pytest.mark.parametrize("kind", BAD_MODELS)
def test_a_bad_model_is_refused_by_name_and_leaves_nothing(kind, upload, files, announced):
    data, field, text = BAD_MODELS[kind]
    errors = problem(upload(data() if callable(data) else data), 400)
    assert field in errors, errors
    assert text in errors[field]
    assert "/models/" not in str(errors) and "onnxruntime/core" not in str(errors)
    assert files() == []
    assert not models.Variant.objects.exists() and not models.ProfileJob.objects.exists()
    assert announced == []


def test_a_model_that_never_ends_is_stopped_at_its_cpu_limit(upload, files, nereus):
    nereus(inspect_seconds=1)
    errors = problem(upload(graphs.endless_loop()), 400)
    assert "more than 1 s of CPU time" in errors["file"] and "NEREUS_INSPECT_SECONDS" in errors["file"]
    assert files() == []


BAD_FIELDS = {
    "no file": ({"data": None}, 400, "file", "No file was submitted"),
    "no name": ({"name": None}, 400, "name", "required"),
    "name with a slash": ({"name": "a/b"}, 400, "name", "must be 1 to 63 letters"),
    "name of a parent folder": ({"name": "../x"}, 400, "name", "must be 1 to 63 letters"),
    "name too long": ({"name": "n" * 64}, 400, "name", "63"),
    "accuracy missing": ({"accuracy": None}, 400, "accuracy", "has no validation set to measure it"),
    "accuracy in words": ({"accuracy": "high"}, 400, "accuracy", "valid number"),
    "accuracy above 100": ({"accuracy": 100.5}, 400, "accuracy", "less than or equal to 100"),
    "accuracy as a fraction": ({"accuracy": 0.915}, 400, "accuracy", 'did you mean 91.5? Write "0.915%"'),
    "accuracy as a whole": ({"accuracy": 1}, 400, "accuracy", "did you mean 100?"),
    "accuracy below 0": ({"accuracy": -1}, 400, "accuracy", "greater than or equal to 0"),
    "accuracy not a number": ({"accuracy": "nan"}, 400, "accuracy", "number"),
    "misspelt field": ({"acuracy": 90}, 400, "acuracy", "did you mean accuracy?"),
    "file as text": ({"data": None, "file": "abc"}, 400, "file", "not a file"),
}


@pytest.mark.parametrize("kind", BAD_FIELDS)
def test_bad_fields_are_named(kind, upload, files):
    fields, status, field, text = BAD_FIELDS[kind]
    errors = problem(upload(**{"data": GOOD, **fields}), status)
    assert text in errors[field], errors
    assert files() == []


def test_an_unknown_application_is_not_found(upload, files):
    problem(upload(GOOD, application="nobody"), 404)
    assert files() == []


def test_json_is_no_upload(client, application):
    url = "/api/v1/applications/tiny/variants/"
    assert "file" in problem(client.post(url, {"name": "v", "accuracy": 90}, format="json"), 400)
    problem(client.post(url, b"raw", content_type="application/octet-stream"), 415)
    problem(client.post(url, b"--x\r\nbroken", content_type="multipart/form-data"), 400)


def test_a_taken_name_is_a_conflict_and_the_first_stays(upload, files):
    assert upload(GOOD).status_code == 201
    errors = problem(upload(graphs.good(seed=1)), 409)
    assert "has a variant named 'v' already" in errors["name"]
    assert files() == [hashlib.sha256(GOOD).hexdigest()]


@pytest.mark.parametrize("excess", [10_000, 500_000], ids=["passed in mid-stream", "announced"])
def test_an_upload_past_the_limit_is_refused_with_the_limit(excess, upload, files, nereus):
    nereus(max_upload_bytes=2**20)
    errors = problem(upload(bytes(2**20 + excess)), 413)
    assert "limit of 1048576 bytes" in errors["file"] and "NEREUS_MAX_UPLOAD_MB" in errors["file"]
    assert files() == []


def test_several_files_share_the_limit(client, application, files, nereus):
    nereus(max_upload_bytes=2**20)
    half = bytes(2**19 + 5000)
    fields = {"name": "v", "accuracy": 90, "file": named(half, "a"), "other": named(half, "b")}
    errors = problem(client.post("/api/v1/applications/tiny/variants/", fields, format="multipart"), 413)
    assert "1048576" in errors["file"]
    assert files() == []


@pytest.mark.django_db(transaction=True)
def test_of_two_uploads_of_one_name_one_wins(transactional_db, client, application, files):
    tokens = [client._credentials["HTTP_AUTHORIZATION"]] * 2
    contents = [graphs.good(seed=1), graphs.good(seed=2)]
    codes: dict[int, int] = {}
    start = threading.Barrier(2)

    def post(index: int) -> None:
        from django.db import connection

        own = APIClient()
        own.credentials(HTTP_AUTHORIZATION=tokens[index])
        start.wait()
        fields = {"name": "v", "accuracy": 90, "file": named(contents[index], "m")}
        codes[index] = own.post("/api/v1/applications/tiny/variants/", fields, format="multipart").status_code
        connection.close()

    threads = [threading.Thread(target=post, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes.values()) == [201, 409]
    winner = next(index for index, code in codes.items() if code == 201)
    assert files() == [hashlib.sha256(contents[winner]).hexdigest()]
    assert models.Variant.objects.count() == 1
