"""Accuracies: declared, measured with a validation set, normalised by the best."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from registry import models
from registry.accuracy import normalized_accuracies
from tests.registry import graphs
from tests.registry.conftest import npz, problem

URL = "/api/v1/applications/tiny/"
X = np.zeros((6, 4), np.float32)
LABELS = np.array([0, 1, 2, 0, 1, 2])


def test_a_validation_set_lets_a_variant_come_without_accuracy(upload, upload_validation, device, files, announced):
    device()
    assert "no validation set" in problem(upload(graphs.good(), accuracy=None), 400)["accuracy"]
    response = upload_validation(npz(x=X, labels=LABELS))
    assert response.status_code == 201, response.content
    assert (response.json()["rows"], response.json()["metric"]) == (6, "top1")
    assert ("validation_set", "tiny") in announced
    body = upload(graphs.good(), accuracy=None).json()
    assert (body["accuracy"], body["accuracy_source"]) == (None, "measured")
    assert len(files()) == 2


def test_another_set_replaces_the_file_and_measures_again(upload_validation, client, variant, device, files, swept):
    device(type="cpu-a"), device("box/gpu0", type="gpu-b")
    upload_validation(npz(x=X, labels=LABELS))
    measured = variant("m", accuracy_source="measured")
    variant("d")
    running = models.ProfileJob.objects.create(variant=measured, device_type="gpu-b", state="running")
    assert upload_validation(npz(x=X[:3], labels=LABELS[:3])).status_code == 200
    assert client.get(URL + "validation-set/").json()["rows"] == 3
    swept()
    assert len(files()) == 1
    running.refresh_from_db()
    assert running.state == "cancelled"
    again = models.ProfileJob.objects.get(state="queued")
    assert (again.variant, again.device_type) == (measured, "gpu-b")


def test_a_set_goes_unless_a_variant_waits_for_it(upload_validation, client, variant, files, swept):
    problem(client.delete(URL + "validation-set/"), 404)
    upload_validation(npz(x=X, labels=LABELS))
    waiting = variant("w", accuracy=None, accuracy_source="measured")
    response = client.delete(URL + "validation-set/")
    problem(response, 409)
    assert "w have no accuracy" in response.json()["detail"]
    models.Variant.objects.filter(pk=waiting.pk).update(accuracy=70)
    assert client.delete(URL + "validation-set/").status_code == 204
    swept()
    assert files() == []


def _archive(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return file.getvalue()


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _pickled() -> bytes:
    file = io.BytesIO()
    np.savez(file, x=X, labels=np.array([{"a": 1}] * 6, dtype=object))
    return file.getvalue()


def _claiming(size: int) -> bytes:
    """An archive whose directory says that ``x`` unpacks to ``size`` bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("labels.npy", _npy(LABELS))
        archive.writestr("x.npy", _npy(X))
        archive.getinfo("x.npy").file_size = size
    return file.getvalue()


BAD = {
    "not an archive": (b"hello" * 50, "file", "is not a whole .npz archive"),
    "truncated": (npz(x=X, labels=LABELS)[:-40], "file", "is not a whole .npz archive"),
    "empty": (b"", "file", "is not a whole .npz archive"),
    "no labels": (npz(x=X), "file.labels", "is missing"),
    "an input missing": (npz(labels=LABELS), "file.x", "is missing"),
    "an array more": (npz(x=X, labels=LABELS, y=X), "file.y", "neither an input nor labels"),
    "rows that differ": (npz(x=X, labels=LABELS[:4]), "file", "differ in rows: x 6, labels 4"),
    "no rows": (npz(x=X[:0], labels=LABELS[:0]), "file.labels.shape", "has 0 rows; 1 to 1000000"),
    "wrong shape": (npz(x=np.zeros((6, 5), np.float32), labels=LABELS), "file.x.shape", "signature says [-1, 4]"),
    "wrong datatype": (npz(x=X.astype(np.float64), labels=LABELS), "file.x.datatype", "signature says FP32"),
    "pickled objects": (_pickled(), "file.labels", "never unpickled"),
    "labels as one value": (npz(x=X, labels=np.array(1)), "file.labels.shape", "one label a row"),
    "labels beyond the classes": (npz(x=X, labels=LABELS + 1), "file.labels", "must be from 0 to 2"),
    "labels as fractions": (npz(x=X, labels=LABELS + 0.5), "file.labels", "must be whole numbers"),
    "labels not finite": (npz(x=X, labels=np.full(6, np.nan)), "file.labels", "not finite"),
    "labels as dates": (npz(x=X, labels=np.zeros(6, "M8[s]")), "file.labels.datatype", "numbers or strings"),
    "shorter than its header": (
        _archive(x=_npy(X)[:-8], labels=_npy(LABELS)),
        "file.x",
        "holds 88 bytes; its header promises 96",
    ),
    "not arrays": (_archive(x=b"text", labels=_npy(LABELS)), "file.x", "is not a .npy array"),
    "unpacks to too much": (_claiming(2**31), "file", "the limit is 1073741824 bytes"),
    "unpacks to more than it says": (_claiming(100), "file", "is not a whole .npz archive"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_validation_set_is_refused_by_name_and_leaves_nothing(kind, upload_validation, files):
    data, field, text = BAD[kind]
    errors = problem(upload_validation(data), 400)
    assert field in errors, errors
    assert text in errors[field]
    assert files() == [] and not models.ValidationSet.objects.exists()


def test_a_metric_must_exist_and_fit(upload_validation, files):
    assert "is not one of top1" in problem(upload_validation(npz(x=X, labels=LABELS), metric="f1"), 400)["metric"]
    assert "required" in problem(upload_validation(npz(x=X, labels=LABELS), metric=None), 400)["metric"]
    assert "at least 5 classes" in problem(upload_validation(npz(x=X, labels=LABELS), metric="top5"), 400)["metric"]
    assert files() == []


def test_a_set_of_two_million_rows_is_too_much(upload_validation, application):
    rows = 1_000_001
    signature = {**graphs.SIGNATURE, "inputs": [{"name": "x", "datatype": "UINT8", "shape": [-1]}]}
    models.Application.objects.update(signature=signature)
    errors = problem(upload_validation(npz(x=np.zeros(rows, np.uint8), labels=np.zeros(rows, np.uint8))), 400)
    assert "1 to 1000000" in errors["file.labels.shape"]


def test_an_accuracy_is_declared_or_measured_again(client, variant, upload_validation, device):
    device()
    variant("v")
    body = client.patch(URL + "variants/v/", {"accuracy": 77.5}).json()
    assert (body["accuracy"], body["accuracy_source"]) == (77.5, "declared")
    assert "has no validation set" in problem(client.patch(URL + "variants/v/", {"accuracy": None}), 400)["accuracy"]
    upload_validation(npz(x=X, labels=LABELS))
    body = client.patch(URL + "variants/v/", {"accuracy": None}).json()
    assert (body["accuracy"], body["accuracy_source"]) == (77.5, "measured"), "the old one counts until then"
    assert models.ProfileJob.objects.get().state == "queued"


def test_accuracies_are_normalised_by_the_best_ready_variant(application, variant):
    best, half = variant("best", accuracy=80), variant("half", accuracy=40)
    waiting, unknown = variant("waiting", "profiling", 95), variant("unknown", "profiling", None)
    assert normalized_accuracies([application]) == {best.pk: 100, half.pk: 50, waiting.pk: 100}
    assert unknown.pk not in normalized_accuracies([application])


def test_a_best_accuracy_of_zero_divides_nothing(application, variant):
    zero = variant("zero", accuracy=0)
    assert normalized_accuracies([application]) == {zero.pk: 100}
