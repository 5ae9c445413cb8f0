"""Trial of a model: load it as an executor does, run it, compare its tensors."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from registry.errors import InputFault, InvalidInput, invalid
from registry.inspection import independence, runs
from registry.inspection.runs import CURE, LARGE_S, Ran, Trial, failed, find_rows, shown_rows, without_rows
from registry.signatures import MAX_NAME, spec, with_rows
from workers.executor import bfloat16
from workers.executor.independence import Arrays, Run, around
from workers.executor.padding import cut, lengths, symbols
from workers.protocol.datatypes import ONNXRUNTIME_TYPES

ROWS = (1, 3)
#: an IR version that every onnxruntime takes
OLD_IR = 8
#: operators whose outputs are as long as they find something
_COUNTING = {"NonMaxSuppression", "NonZero", "Unique", "Compress"}

#: seconds after which a run with other made-up rows is stopped, beside 64 times those of the first
STOP_S = 1.0


def run(
    path: str,
    signature: dict[str, Any],
    sizes: Sequence[int] = (),
    padding: Mapping[str, float] = MappingProxyType({}),
    batch: bool = True,
    rows: Arrays | None = None,
    source: str = "",
    begin: int | None = 0,
) -> dict[str, Any]:
    """Load, compare and run a model, and return facts about it.

    They are the model's own tensors, ``max_batch`` (1: it takes one row at a time; None: any number), ``alone`` (why
    its queries must run alone; empty: they may share runs) and warnings.

    Args:
        sizes: of dimensions that the application leaves open, all of which the model must take; none: one that
            it takes.
        padding: the value by input that will be padded.
        batch: False: no dimension is one of rows.
        rows: to run it with; None: made-up values are tried.
        source: where they are from, in words.
        begin: the combination of made-up values that is tried first; None: none is. Others than 0 come after a crash,
            and only rows that were given, or found now, are run.

    Raises:
        InvalidInput: it fails the trial.
        MemoryError: it needs more than the process' limit.
    """
    session = _load(path)
    model = onnx.load_model(path, load_external_data=False)
    # onnxruntime shows an input of unknown rank like a scalar.
    ranked = {value.name for value in model.graph.input if value.type.tensor_type.HasField("shape")}
    _compare(session, signature, batch, ranked)
    fixed = not batch or any(tensor.shape[:1] == [1] for tensor in session.get_inputs())
    signature = with_rows(signature, batch)
    names = [tensor["name"] for tensor in signature["outputs"]]
    run = functools.partial(runs.run, session, signature, names)
    if not batch:
        run = without_rows(run)
    axes = {tensor.name: symbols(tensor.shape) for tensor in session.get_inputs()}
    trial = Trial(run, signature, (1,) if fixed else ROWS, batch, axes)
    try:
        ran, values = find_rows(trial, sizes, rows, source, begin)
    except InvalidInput as error:
        firsts = {tensor.shape[0] for tensor in session.get_inputs() if tensor.shape} if batch else ()
        if len(firsts) < 2:
            raise
        # Likely the reason, where one is a batch and another is time or a state.
        shown = ", ".join(sorted(map(str, firsts)))
        detail = f"have unlike first dimensions ({shown}), which may be no batch: then {CURE}"
        raise InvalidInput([*error.faults, InputFault("file.inputs", detail)]) from None
    warnings = []
    if begin == 0:
        why_alone = _alone(model, session.get_outputs(), run, names, ran, int(batch) if fixed else None)
        if padding and not fixed:
            why_alone = why_alone or _padded(session, run, ran.feeds, padding, names)
    else:
        warnings.append("the model crashes onnxruntime with some values: a query that has them ends its executor")
        why_alone = "" if fixed else "it crashes with some values: an influence of other rows was not looked for"
    if ran.size and not sizes:
        warnings.append(
            f"open dimensions were tried at {ran.size}, and are profiled at that; the application's 'sizes' sets others"
        )
    if not ran.finite:
        warnings.append("a trial run gave NaN or infinity; send rows of yours as 'sample' if it should not")
    return {
        "max_batch": 1 if fixed else None,
        "alone": why_alone,
        "inputs": [_description(tensor) for tensor in session.get_inputs()],
        "outputs": [_description(tensor) for tensor in session.get_outputs()],
        "warnings": warnings,
        **values,
    }


def _load(path: str) -> ort.InferenceSession:
    try:
        return _session(path)
    except MemoryError:
        raise
    except Exception as error:  # onnxruntime has a class of its own for every code; each is a refusal here
        failure = failed("onnxruntime cannot load it", error)
    if isinstance(failure, InvalidInput) and failure.faults[0].field == "file.ir_version":
        # It judges the opset afterwards: both are told at once.
        model = onnx.load_model(path, load_external_data=False)
        model.ir_version = OLD_IR
        try:
            _session(model.SerializeToString())
        except Exception as error:  # other faults may be those of the changed file
            faults = getattr(failed("onnxruntime cannot load it", error), "faults", ())
            failure.faults += [fault for fault in faults if fault.field == "file.opset"]
    raise failure


def _session(model: str | bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # an arena grows in powers of two and would reach the limit early
    options.log_severity_level = 4
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _description(tensor: Any) -> dict[str, Any]:
    shape = [size if isinstance(size, int) else -1 for size in tensor.shape or []]
    return {"name": tensor.name[:MAX_NAME], "datatype": ONNXRUNTIME_TYPES.get(tensor.type, tensor.type), "shape": shape}


def _compare(session: ort.InferenceSession, signature: dict[str, Any], batch: bool, ranked: set[str]) -> None:
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
            # Files may say any shape of an output: a run tells.
            faults += _compare_tensor(tensor, wanted, where, kind == "inputs" and tensor.name in ranked, batch)
        if kind == "inputs":
            known = {wanted["name"] for wanted in signature[kind]}
            faults += [
                InputFault(
                    f"file.inputs.{name[:60]}", "is not in the application's signature, so nothing would ever fill it"
                )
                for name in own
                if name not in known
            ]
    if not bfloat16.possible(spec(signature, batch)):
        faults.append(InputFault("file.outputs", "are of BF16 beside inputs of BYTES, which onnxruntime cannot run"))
    if faults:
        raise InvalidInput(faults)


def _compare_tensor(tensor: Any, wanted: dict[str, Any], where: str, ranked: bool, batch: bool) -> list[InputFault]:
    datatype = ONNXRUNTIME_TYPES.get(tensor.type)
    if datatype != wanted["datatype"]:
        detail = f"is {datatype or tensor.type}; the application's signature says {wanted['datatype']}"
        if "map(" in tensor.type:
            detail += '; of a classifier, convert it with options={id(model): {"zipmap": False}} in skl2onnx'
        return [InputFault(f"{where}.datatype", detail)]
    if not ranked:
        return []
    shape, expected = list(tensor.shape or []), wanted["shape"]
    field = f"{where}.shape"
    if len(shape) != len(expected):
        cure = f"; {CURE}" if batch and not shape else ""
        return [
            InputFault(
                field, f"has {len(shape)} dimensions {_shown(shape)}; the application's signature has {expected}{cure}"
            )
        ]
    if batch and isinstance(shape[0], int) and shape[0] != 1:
        return [
            InputFault(
                field,
                f"has no batch dimension: the first is fixed at {shape[0]}; {CURE} (or, if it is meant to be the "
                "batch, export the model with a dynamic first one, or one of 1, to be served row by row)",
            )
        ]
    faults = []
    for index in range(1 if batch else 0, len(shape)):
        size, want = shape[index], expected[index]
        if not isinstance(size, int):
            continue
        if want == -1:
            faults.append(
                InputFault(field, f"dimension {index} is fixed at {size}; the application's signature leaves it open")
            )
        elif want != size:
            faults.append(InputFault(field, f"dimension {index} is {size}; the application's signature says {want}"))
    return faults


def _shown(shape: list[Any]) -> str:
    return "[" + ", ".join(str(size) if isinstance(size, int) else "-1" for size in shape) + "]"


def _padded(
    session: ort.InferenceSession, run: Run, feeds: Arrays, padding: Mapping[str, float], names: list[str]
) -> str:
    """Describe how an answer depends on padding to twice the size; empty: not at all."""
    inputs, outputs = (
        {tensor.name: symbols(tensor.shape) for tensor in tensors}
        for tensors in (session.get_inputs(), session.get_outputs())
    )
    row = {name: array[:1] for name, array in feeds.items()}
    # What the signature leaves open has a name in the model, or none, but no size.
    shapes = {tensor.name: tensor.shape for tensor in session.get_inputs()}
    longer = {**row}
    try:
        for name, value in padding.items():
            # The shape of an input of unknown rank is empty.
            sizes = dict(enumerate(shapes[name]))
            widths = [
                (0, 0 if axis == 0 or isinstance(sizes.get(axis), int) else size)
                for axis, size in enumerate(row[name].shape)
            ]
            longer[name] = np.pad(row[name], widths, constant_values=value)
        own, whole = lengths(inputs, row, padding), lengths(inputs, longer, padding)
        answers = [run(arrays, limit_s=STOP_S + LARGE_S) for arrays in (row, longer)]
    except Exception:  # a model may take some sizes alone
        return ""
    for name, one, other in zip(names, *answers, strict=True):
        found = around(one, cut(other, outputs[name], own or {}, whole or {}))
        if found:
            return (
                f"{name}: a row's answer depends on its padding ({found}); give the model a mask, and its outputs' "
                "open dimensions the names of the inputs'"
            )
    return ""


def _alone(
    model: onnx.ModelProto, outputs: Sequence[Any], run: Run, names: list[str], ran: Ran, rows: int | None
) -> str:
    """Why queries must run alone; empty: rows do not influence each other.

    ``rows``: that a run may have; 0: no batch dimension; None: any number.
    """
    hints, feeds = independence.Hints(model), ran.feeds
    # Made-up rows may have a loop run for years.
    run = functools.partial(run, limit_s=STOP_S + 64 * ran.seconds)
    try:
        if rows is None:
            return independence.reason(run, feeds, ran.first, names, hints)
        independence.unsteady(run, feeds, ran.first, names, hints)
        if not rows:
            return ""
        independence.keeps_rows(run, feeds, names, hints)
    except independence.NotRows as found:
        detail = f"has no batch dimension: {shown_rows(found.rows)} in gave shape {found.shape}; {CURE}"
        raise invalid(f"file.outputs.{found.name}.shape", detail) from None
    except independence.Unsteady as found:
        detail = (
            "differs from run to run though nothing in the model draws at random: earlier queries influence it, as in "
            "BatchNormalization's training mode; export the model for inference"
        )
        raise invalid(f"file.outputs.{found.name}", detail) from None
    own = {tensor.name: tensor.shape for tensor in outputs}
    objects = {name for name in names if own[name] and not isinstance(own[name][0], int)}
    if objects and (kinds := sorted({node.op_type for node in model.graph.node} & _COUNTING)):
        name = sorted(objects)[0]
        detail = (
            f"may have any number of rows for one row in (its first dimension is {own[name][0]!r}, and the model has "
            f"{', '.join(kinds)}); {CURE}"
        )
        raise invalid(f"file.outputs.{name}.shape", detail)
    return ""
