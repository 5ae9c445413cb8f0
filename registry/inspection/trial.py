"""Trial of a model: load it as an executor does, and run it.

Its tensors are compared with the signature. It runs with 1 and 3 rows; with 1 alone where its batch size is fixed at
that.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from registry.errors import InputFault, InvalidInput
from registry.inspection import independence
from registry.signatures import MAX_NAME, from_onnxruntime, with_rows
from workers.executor import bfloat16
from workers.executor.codec import BF16, as_array
from workers.executor.independence import Arrays, Run
from workers.protocol.shapes import OPEN_SIZES
from workers.protocol.specs import Signature, TensorSpec

ROWS = (1, 3)
#: what helps where tensors do not begin with the rows
_CURE = 'set "batch": false on the application, give the models\' own shapes, and have queries run one by one'
#: operators whose outputs are as long as they find something
_COUNTING = {"NonMaxSuppression", "NonZero", "Unique", "Compress"}

_NUMPY = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BF16": BF16,
    "BYTES": np.object_,
}


def run(
    path: str, signature: dict[str, Any], sizes: Sequence[int] = (), padding: Sequence[str] = (), batch: bool = True
) -> dict[str, Any]:
    """Load, compare and run a model, and return facts about it.

    They are the model's own tensors, ``max_batch`` (1: it takes one row at a time; None: any number), ``alone`` (why
    its queries must run alone; empty: they may share runs) and warnings.

    Args:
        sizes: of dimensions that the application leaves open, all of which the model must take; none: one of
            ``OPEN_SIZES``.
        padding: the inputs that will be padded.
        batch: False: no dimension is one of rows.

    Raises:
        InvalidInput: it fails the trial.
        MemoryError: it needs more than the process' limit.
    """
    session = _load(path)
    _compare(session, signature, batch)
    fixed = not batch or any(tensor.shape[0] == 1 for tensor in session.get_inputs())
    signature = with_rows(signature, batch)
    try:
        feeds = _try(session, signature, sizes, (1,) if fixed else ROWS, batch)
    except InvalidInput as error:
        firsts = {tensor.shape[0] for tensor in session.get_inputs()} if batch else ()
        if len(firsts) < 2:
            raise
        # Likely the reason, where one is a batch and another is time or a state.
        shown = ", ".join(sorted(map(str, firsts)))
        detail = f"have unlike first dimensions ({shown}), which may be no batch: then {_CURE}"
        raise InvalidInput([*error.faults, InputFault("file.inputs", detail)]) from None
    return {
        "max_batch": 1 if fixed else None,
        "alone": _alone(path, session, signature, feeds, fixed) if batch else "",
        "inputs": [_description(tensor) for tensor in session.get_inputs()],
        "outputs": [_description(tensor) for tensor in session.get_outputs()],
        "warnings": _uncut(session, signature, padding),
    }


def _load(path: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # an arena grows in powers of two and would reach the limit early
    options.log_severity_level = 4
    try:
        return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except MemoryError:
        raise
    except Exception as error:  # onnxruntime has a class of its own for every code; each is a refusal here
        raise _failed("onnxruntime cannot load it", error) from None


def _failed(what: str, error: Exception) -> Exception:
    text = str(error)
    if re.search(r"bad_alloc|[Ff]ailed to allocate|[Aa]llocation failed|out of memory", text):
        return MemoryError()
    too_new = re.search(r"IR version: (\d+), max supported IR version: (\d+)", text)
    if too_new:
        cure = f"set model.ir_version = {too_new[2]} with the onnx package and save it again"
        detail = f"IR version {too_new[1]} is too new; onnxruntime supports up to {too_new[2]}: {cure}"
        return _invalid("file.ir_version", detail)
    too_new = re.search(r"Opset (\d+) is under development.*?domain (\S+) is till opset (\d+)", text, re.DOTALL)
    if too_new:
        opset, domain, newest = too_new.groups()
        cure = (
            f"onnx.version_converter.convert_version(model, {newest}) or torch.onnx.export(..., opset_version={newest})"
        )
        if domain != "ai.onnx":
            cure = f"export it with target_opset={{'{domain}': {newest}}} (skl2onnx)"
        detail = f"opset {opset} of {domain} is too new; onnxruntime supports up to {newest}: {cure}"
        return _invalid("file.opset", detail)
    # Paths on this box, native source locations and signatures do not help a client.
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    text = re.sub(r"Load model from \S+ failed:", "", text)
    text = re.sub(r"\S+\.(cc|h|cpp):\d+ .*?\) ", "", text)
    return _invalid("file", f"{what}: {' '.join(text.split())[:300] or type(error).__name__}")


def _invalid(field: str, detail: str) -> InvalidInput:
    return InvalidInput([InputFault(field, detail)])


def _description(tensor: Any) -> dict[str, Any]:
    shape = [size if isinstance(size, int) else -1 for size in tensor.shape or []]
    return {"name": tensor.name[:MAX_NAME], "datatype": from_onnxruntime(tensor.type) or tensor.type, "shape": shape}


def _compare(session: ort.InferenceSession, signature: dict[str, Any], batch: bool) -> None:
    faults = []
    for kind, tensors in (("inputs", session.get_inputs()), ("outputs", session.get_outputs())):
        own = {tensor.name: tensor for tensor in tensors}
        for wanted in signature[kind]:
            where = f"file.{kind}.{wanted['name']}"
            tensor = own.get(wanted["name"])
            if tensor is None:
                names = ", ".join(repr(name[:60]) for name in list(own)[:10]) or "none"
                faults.append(
                    InputFault(where, f"is missing: the application's signature has it; the model's {kind} are {names}")
                )
                continue
            faults += _compare_tensor(tensor, wanted, where, kind == "inputs", batch)
        if kind == "inputs":
            known = {wanted["name"] for wanted in signature[kind]}
            faults += [
                InputFault(
                    f"file.inputs.{name[:60]}", "is not in the application's signature, so nothing would ever fill it"
                )
                for name in own
                if name not in known
            ]
    tensors = [TensorSpec(t["name"], t["datatype"], ()) for t in signature["inputs"]]
    given = [TensorSpec(t["name"], t["datatype"], ()) for t in signature["outputs"]]
    if not bfloat16.possible(Signature(tuple(tensors), tuple(given))):
        faults.append(InputFault("file.outputs", "are of BF16 beside inputs of BYTES, which onnxruntime cannot run"))
    if faults:
        raise InvalidInput(faults)


def _compare_tensor(tensor: Any, wanted: dict[str, Any], where: str, is_input: bool, batch: bool) -> list[InputFault]:
    datatype = from_onnxruntime(tensor.type)
    if datatype != wanted["datatype"]:
        detail = f"is {datatype or tensor.type}; the application's signature says {wanted['datatype']}"
        if "map(" in tensor.type:
            detail += '; of a classifier, convert it with options={id(model): {"zipmap": False}} in skl2onnx'
        return [InputFault(f"{where}.datatype", detail)]
    shape, expected = list(tensor.shape or []), wanted["shape"]
    if not shape and not is_input:
        return []  # an output of unknown shape: the trial run determines it
    field = f"{where}.shape"
    if len(shape) != len(expected):
        cure = f"; {_CURE}" if batch and not shape else ""
        return [
            InputFault(
                field, f"has {len(shape)} dimensions {_shown(shape)}; the application's signature has {expected}{cure}"
            )
        ]
    if batch and isinstance(shape[0], int) and shape[0] != 1:
        return [
            InputFault(
                field,
                f"has no batch dimension: the first is fixed at {shape[0]}; {_CURE} (or, if it is meant to be the "
                "batch, export the model with a dynamic first one, or one of 1, to be served row by row)",
            )
        ]
    faults = []
    for index in range(1 if batch else 0, len(shape)):
        size, want = shape[index], expected[index]
        if not isinstance(size, int):
            continue
        if want == -1 and is_input:
            faults.append(
                InputFault(field, f"dimension {index} is fixed at {size}; the application's signature leaves it open")
            )
        elif want not in (-1, size):
            faults.append(InputFault(field, f"dimension {index} is {size}; the application's signature says {want}"))
    return faults


def _shown(shape: list[Any]) -> str:
    return "[" + ", ".join(str(size) if isinstance(size, int) else "-1" for size in shape) + "]"


def _row(tensor: dict[str, Any], rows: int, open_size: int, seed: int) -> np.ndarray:
    """Return rows of plain values for a tensor.

    They are floats from 0 to 1; whole numbers 0 and 1, which index any table; or the text ``a``.
    """
    shape = [rows] + [open_size if size == -1 else size for size in tensor["shape"][1:]]
    kind = _NUMPY[tensor["datatype"]]
    if tensor["datatype"] == "BYTES":
        return np.full(shape, "a", dtype=np.object_)
    random = np.random.default_rng(seed)
    if tensor["datatype"].startswith("FP") or tensor["datatype"] == "BF16":
        return random.random(shape, dtype=np.float32).astype(kind)
    return random.integers(0, 2, size=shape, dtype=np.uint8).astype(kind)


def _uncut(session: ort.InferenceSession, signature: dict[str, Any], padding: Sequence[str]) -> list[str]:
    """Return warnings on open dimensions of outputs that nothing cuts back.

    That happens where inputs are padded and the dimension is not named like one of theirs.
    """
    if not padding:
        return []
    names = {name for tensor in session.get_inputs() if tensor.name in padding for name in tensor.shape[1:]}
    own = {tensor.name: list(tensor.shape or []) for tensor in session.get_outputs()}
    return [
        f"{tensor['name']}: dimension {place} is named like no padded input's, so it may be as long as the batch's"
        for tensor in signature["outputs"]
        for place, size in enumerate(own[tensor["name"]][1:], 1)
        if not isinstance(size, int) and size not in names
    ]


def _run(
    session: ort.InferenceSession, signature: dict[str, Any], names: list[str], feeds: dict[str, Any]
) -> list[Any]:
    if any(tensor["datatype"] == "BF16" for kind in ("inputs", "outputs") for tensor in signature[kind]):
        return bfloat16.run(session, names, feeds, None)
    return session.run(names, feeds)


def _without_rows(run: Run) -> Run:
    """Return runs of one row that the model, without a batch dimension, does not see."""

    def once(feeds: Arrays) -> list[np.ndarray]:
        values = run({name: array.reshape(array.shape[1:]) for name, array in feeds.items()})
        return [np.expand_dims(as_array(value), 0) if _is_tensor(value) else value for value in values]

    return once


def _is_tensor(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic | bool | int | float | str)


def _alone(
    path: str, session: ort.InferenceSession, signature: dict[str, Any], feeds: dict[str, Any], fixed: bool
) -> str:
    """Return why queries must run alone; empty: rows do not influence each other."""
    names = [tensor["name"] for tensor in signature["outputs"]]
    run = functools.partial(_run, session, signature, names)
    model = onnx.load_model(path, load_external_data=False)
    hints = independence.Hints(model)
    try:
        if not fixed:
            return independence.reason(run, feeds, names, hints)
        independence.keeps_rows(run, feeds, names, hints)
    except independence.NotRows as found:
        detail = f"has no batch dimension: {_rows(found.rows)} in gave shape {found.shape}; {_CURE}"
        raise _invalid(f"file.outputs.{found.name}.shape", detail) from None
    own = {tensor.name: tensor.shape for tensor in session.get_outputs()}
    objects = {name for name in names if own[name] and not isinstance(own[name][0], int)}
    if objects and (kinds := sorted({node.op_type for node in model.graph.node} & _COUNTING)):
        name = sorted(objects)[0]
        detail = (
            f"may have any number of rows for one row in (its first dimension is {own[name][0]!r}, and the model has "
            f"{', '.join(kinds)}); {_CURE}"
        )
        raise _invalid(f"file.outputs.{name}.shape", detail)
    return ""


def _rows(count: int) -> str:
    return f"{count} row{'s' if count > 1 else ''}"


def _try(
    session: ort.InferenceSession,
    signature: dict[str, Any],
    sizes: Sequence[int],
    counts: Sequence[int],
    batch: bool,
) -> dict[str, Any]:
    """Run at each size, and return rows that ran at the first of them."""
    names = [tensor["name"] for tensor in signature["outputs"]]
    has_open = any(size == -1 for tensor in signature["inputs"] for size in tensor["shape"][1:])
    run = functools.partial(_run, session, signature, names)
    if not batch:
        run = _without_rows(run)
    failure: Exception | None = None
    ran: dict[str, Any] | None = None
    for open_size in (sizes or OPEN_SIZES) if has_open else (1,):
        feeds = {
            tensor["name"]: _row(tensor, max(counts), open_size, i) for i, tensor in enumerate(signature["inputs"])
        }
        results = {}
        try:
            for rows in counts:
                some = {name: value[:rows] for name, value in feeds.items()}
                results[rows] = run(some)
        except MemoryError:
            raise
        except Exception as error:
            at = f" at size {open_size}" if has_open and sizes else ""
            failure = _failed(f"fails a run with {_rows(rows)}{at}" if batch else f"fails a run{at}", error)
            if sizes or isinstance(failure, MemoryError):
                raise failure from None
            continue
        faults = [
            fault
            for rows in counts
            for tensor, value in zip(signature["outputs"], results[rows], strict=True)
            for fault in _check_output(tensor, value, rows, batch)
        ]
        if faults:
            raise InvalidInput(dict.fromkeys(faults))
        ran = ran or feeds
        if not sizes:
            break
    if ran is None:
        raise failure
    return ran


def _check_output(tensor: dict[str, Any], value: Any, rows: int, batch: bool) -> list[InputFault]:
    where = f"file.outputs.{tensor['name']}"
    if not isinstance(value, np.ndarray):
        return [InputFault(f"{where}.datatype", f"is a {type(value).__name__}, not a tensor")]
    shape, expected = list(value.shape), tensor["shape"]
    if not shape or shape[0] != rows:
        detail = f"has no batch dimension: {_rows(rows)} in gave shape {shape}; {_CURE}"
        return [InputFault(f"{where}.shape", detail)]
    if len(shape) != len(expected) or any(w not in (-1, s) for s, w in zip(shape[1:], expected[1:], strict=False)):
        if not batch:
            shape, expected = shape[1:], expected[1:]
        return [InputFault(f"{where}.shape", f"a run gave {shape}; the application's signature says {expected}")]
    if (value.dtype.kind == "f" or value.dtype == BF16) and np.isnan(value.astype(np.float64)).any():
        return [InputFault(where, "a run with values from 0 to 1 gave NaN")]
    return []
