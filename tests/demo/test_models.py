"""The committed models are what the manifest says: accuracies, a free batch dimension, cost for accuracy."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnxruntime
import pytest

from appliance.demo import manifest

pytestmark = pytest.mark.wide

APPLICATIONS = manifest.applications()
VARIANTS = [(application, variant) for application in APPLICATIONS for variant in application.variants]
by_variant = pytest.mark.parametrize(
    ("application", "variant"),
    VARIANTS,
    ids=[f"{application.name}-{variant.name}" for application, variant in VARIANTS],
)


def session(path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def multiplications(path) -> int:
    """Multiplications a row in convolutions and dense layers, nearly all of a run: a cost without a clock."""
    model = onnx.load(str(path))
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[0].dim_value = 1
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.value_info, *graph.output)
    } | {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    total = 0
    for node in graph.node:
        if node.op_type in ("Conv", "Gemm"):
            weights, out = shapes[node.input[1]], shapes[node.output[0]]
            # Each place of a convolution's output takes a kernel, each of a dense layer's a row of weights.
            each = math.prod(weights[1:]) if node.op_type == "Conv" else math.prod(weights) // out[1]
            total += math.prod(out) * each
    return total


@by_variant
def test_the_committed_file_is_right_and_wrong_where_the_manifest_says(application, variant):
    """Every row that the labels call wrong and every tenth of all; all would take minutes."""
    samples, labels = application.samples(), application.labels()
    assert variant.accuracy == pytest.approx(100 * (1 - len(variant.wrong) / len(labels)))
    rows = sorted({*variant.wrong, *range(0, len(labels), 10)})
    model = session(variant.path)
    scores = np.concatenate([model.run(None, {name: v[[row]] for name, v in samples.items()})[0] for row in rows])
    wrong = {row for row, score in zip(rows, scores, strict=True) if score.argmax() != labels[row]}
    # One row may stand so close between two classes that another CPU's rounding decides it.
    assert len(wrong ^ set(variant.wrong)) <= 1


@by_variant
def test_graph_fits_its_signature_with_a_free_batch_dimension(application, variant):
    model = onnx.load(str(variant.path))
    assert model.ir_version <= 10
    assert all(opset.version <= 21 for opset in model.opset_import)
    for key, values in (("inputs", model.graph.input), ("outputs", model.graph.output)):
        assert [value.name for value in values] == [spec["name"] for spec in application.signature[key]]
        for value, spec in zip(values, application.signature[key], strict=True):
            dims = value.type.tensor_type.shape.dim
            assert dims[0].dim_param
            assert [dim.dim_value for dim in dims][1:] == spec["shape"][1:]


@pytest.mark.parametrize("application", APPLICATIONS, ids=lambda application: application.name)
def test_costlier_variants_are_more_accurate_over_a_wide_span(application):
    assert len(application.variants) >= 4
    costs = [multiplications(variant.path) for variant in application.variants]
    accuracies = [variant.accuracy for variant in application.variants]
    assert costs == sorted(costs)
    assert accuracies == sorted(accuracies) and len(set(accuracies)) == len(accuracies)
    assert costs[-1] / costs[0] >= 6
    assert accuracies[-1] - accuracies[0] >= 3


def test_all_models_together_stay_small():
    assert sum(variant.path.stat().st_size for _, variant in VARIANTS) < 2_100_000


@pytest.mark.parametrize("application", APPLICATIONS, ids=lambda application: application.name)
def test_validation_rows_fit_the_signature(application):
    samples, labels = application.samples(), application.labels()
    for spec in application.signature["inputs"]:
        assert samples[spec["name"]].dtype == np.float32
        assert list(samples[spec["name"]].shape) == [len(labels), *spec["shape"][1:]]
    assert set(labels) <= set(range(application.signature["outputs"][0]["shape"][1]))
    assert len(set(labels)) > 5


def test_held_out_rows_are_not_among_the_training_rows():
    from sklearn.datasets import load_digits

    images, _ = load_digits(return_X_y=True)
    training = {image.astype(np.float32).tobytes() for image in images[:898]}
    for application in APPLICATIONS:
        for row in application.samples()["image"]:
            for digit in np.split(row, row.shape[2] // 8, axis=2):
                assert (digit * 16).astype(np.float32).tobytes() not in training


def test_a_missing_file_is_named(tmp_path):
    (tmp_path / "manifest.json").write_text((manifest.FOLDER / "manifest.json").read_text())
    with pytest.raises(FileNotFoundError, match=r"digits/validation\.npz, which does not exist"):
        manifest.applications(tmp_path)
