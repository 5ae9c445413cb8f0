"""Models that attack are refused by name, or end at their limits, and the service goes on."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from registry.errors import InvalidInput
from registry.inspection import limits, model, sandbox, validation, walk
from tests.registry import graphs, hostile
from tests.registry.mutations import repeated
from workers.executor import validation as executor_validation
from workers.protocol.specs import Signature, TensorSpec
from workers.settings import Settings

MEMORY = "needs more than 256 MiB of memory beyond its own size"


#: refused without a run
STATIC = {
    "a function's default outside": (hostile.external_in_default, "file.external_data", "'d' outside, in 'upload'"),
    "training data outside": (hostile.external_in_training, "file.external_data", "in '/etc/shadow'"),
    "sparse values outside": (lambda: hostile.external_in_sparse("values"), "file.external_data", "credentials.json"),
    "sparse indices outside": (lambda: hostile.external_in_sparse("indices"), "file.external_data", "credentials.json"),
    "data at an address": (hostile.external_in_memory, "file.external_data", "_ORT_MEM_ADDR_"),
    "operators in a default": (
        lambda: hostile.many_nodes_in_default(limits.MAX_NODES + 1),
        "file",
        f"more than {limits.MAX_NODES} operators",
    ),
    "forbidden in a default": (hostile.forbidden_in_default, "file.operators", "EPContext of com.microsoft reads"),
    "depth in a default": (lambda: hostile.deep_in_default(10), "file", "deeper than 8 levels"),
    "forbidden as a function": (hostile.forbidden_as_function, "file.operators", "EPContext of com.microsoft reads"),
    "functions in a circle": (hostile.calls_itself, "file.functions", "call themselves: 'pong' calls 'ping'"),
    "functions that double": (lambda: hostile.doubles(60), "file.functions", "stands for 65536 operators"),
    "too many outputs": (lambda: hostile.many_outputs(1001), "file", "has 1002 outputs; the limit is 1000"),
    "a name of bytes": (hostile.name_of_bytes, "file", "whose name is not UTF-8"),
    "too many texts": (lambda: hostile.many_strings(limits.MAX_STRINGS + 1), "file", "texts; the limit is 5000000"),
}


@pytest.mark.parametrize("kind", STATIC)
def test_what_a_model_holds_anywhere_is_judged_before_a_run(kind, tmp_path):
    data, field, text = STATIC[kind]
    path = tmp_path / "m.onnx"
    path.write_bytes(data())
    with pytest.raises(InvalidInput) as refused:
        model.read(str(path))
    (fault,) = refused.value.faults
    assert fault.field == field and text in fault.detail


def test_functions_and_attributes_that_harm_nobody_are_accepted(limited, tmp_path):
    twice = hostile.function("twice", graphs.node("Add", ["a", "a"], ["b"]))
    path = tmp_path / "m.onnx"
    path.write_bytes(hostile.with_functions(twice).SerializeToString())
    assert sandbox.inspect_model(path, graphs.SIGNATURE, limited)["nodes"] == 3


def test_everything_of_onnx_that_can_hold_a_tensor_is_walked():
    """In the version of ONNX that is installed: a new place for tensors shows here first."""
    import onnx
    from google.protobuf.message import Message

    def fill(message: Message, depth: int = 0) -> None:
        """One of everything that the format has, to some depth."""
        if depth > 7:
            return
        for field in message.DESCRIPTOR.fields:
            if field.message_type is None:
                continue
            value = getattr(message, field.name)
            if repeated(field):
                value = value.add()
            else:
                value.SetInParent()
            if isinstance(value, onnx.TensorProto):
                value.name = "found"
            fill(value, depth + 1)

    filled = onnx.ModelProto()
    fill(filled)
    serialized = filled.SerializeToString().count(b"found")
    seen = sum(isinstance(found.message, onnx.TensorProto) for found in walk.messages(filled))
    assert seen == serialized > 50


#: ended at a limit while they load or run
BOUNDED = {
    "folds Expand": (lambda: hostile.folds("Expand"), MEMORY),
    "folds Tile": (lambda: hostile.folds("Tile"), "Tile output tensor would require more than 4294967296 bytes"),
    "folds Range": (lambda: hostile.folds("Range"), MEMORY),
    "folds ConstantOfShape": (lambda: hostile.folds("ConstantOfShape"), MEMORY),
    "folds EyeLike": (lambda: hostile.folds("EyeLike"), MEMORY),
    "folds often": (lambda: hostile.folds_often(40), MEMORY),
    "doubles a tensor": (hostile.grows_in_a_loop, MEMORY),
    "doubles a text": (hostile.grows_a_string, MEMORY),
    "a dimension of bytes": (hostile.dimension_of_bytes, "has names that are not UTF-8"),
    "an output of 64 GiB": (hostile.huge_output, "fails a run with 1 row"),
    "an endless loop": (graphs.endless_loop, "NEREUS_INSPECT_SECONDS"),
    "texts without memory": (lambda: hostile.many_strings(20_000_000), "NEREUS_INSPECT_MEMORY_MB"),
}


@pytest.mark.parametrize("kind", BOUNDED)
def test_what_a_run_costs_ends_at_its_limit(kind, limited, tmp_path):
    data, text = BOUNDED[kind]
    if text != "NEREUS_INSPECT_SECONDS":
        # On a busy machine other limits are reached late.
        limited = dataclasses.replace(limited, inspect_seconds=60)
    path = tmp_path / "m.onnx"
    path.write_bytes(data())
    with pytest.raises(InvalidInput) as refused:
        sandbox.inspect_model(path, graphs.SIGNATURE, limited)
    (fault,) = refused.value.faults
    assert fault.field.startswith("file") and text in fault.detail
    assert left_behind(limited) == []


def left_behind(settings: Settings) -> list[str]:
    files = [str(path) for path in (settings.home / "models").rglob("*") if path.is_file() and path.stat().st_size > 20]
    folders = [str(path) for path in (settings.home / "models").glob("*.files")]
    workers = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = process.read_bytes()
        except OSError:
            continue
        if b"registry.inspection.worker" in command and str(os.getpid()).encode() == _parent(process.parent):
            workers.append(process.parent.name)
    return files + folders + workers


def _parent(process: Path) -> bytes:
    try:
        return (process / "stat").read_bytes().rsplit(b")", 1)[1].split()[1]
    except OSError:
        return b""


def test_data_in_its_own_folder_is_not_there(limited, tmp_path):
    """The second line of defence, beside the check of references: the model's file is alone in its folder."""
    (tmp_path / "secret").write_bytes(np.ones(1, np.float32).tobytes())
    path = tmp_path / "m.onnx"
    path.write_bytes(hostile.external_in_default("secret"))
    code = (
        "import registry.inspection.walk as walk; walk.outside = lambda message: None\n"
        "from registry.inspection import worker; worker.main()"
    )
    real = subprocess.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox.subprocess, "run", lambda command, **kwargs: real([sys.executable, "-c", code], **kwargs))
        with pytest.raises(InvalidInput) as refused:
            sandbox.inspect_model(path, graphs.SIGNATURE, limited)
    assert "secret" in str(refused.value), refused.value


def test_an_upload_on_another_file_system_is_inspected_all_the_same(limited):
    if os.stat("/dev/shm").st_dev == os.stat(limited.home.parent).st_dev:
        pytest.skip("no second file system here")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(graphs.good())
        assert sandbox.inspect_model(path, graphs.SIGNATURE, limited)["opset"] == 17
        assert path.read_bytes() == graphs.good()


def test_texts_of_a_validation_set_are_bounded_by_what_they_become(tmp_path):
    """20 MB of one-letter texts, far less packed, are over 1 GiB of objects in an executor."""
    path = tmp_path / "set.npz"
    rows = 20_000_000
    np.savez_compressed(path, x=np.full((rows // 20, 20), b"a"), labels=np.zeros(rows // 20, np.int64))
    assert path.stat().st_size < 2**20
    text = {"name": "x", "datatype": "BYTES", "shape": [-1, 20]}
    signature = {"inputs": [text], "outputs": graphs.SIGNATURE["outputs"]}
    with pytest.raises(InvalidInput) as refused:
        validation.inspect(str(path), signature, "top1")
    (fault,) = refused.value.faults
    assert fault.field == "file.x"
    assert "1440000000 bytes as 20000000 texts in an executor; the limit is 1073741824" in fault.detail
    spec = TensorSpec("x", "BYTES", (-1, 20))
    with pytest.raises(executor_validation.ValidationError, match="x: its texts take 1440000000 bytes of memory"):
        executor_validation.read(str(path), Signature((spec,), ()))
