"""Trial of a model: load it as an executor does, and run it.

Its tensors are compared with the signature. It runs with 1 and 3 rows; with 1 alone where its batch size is fixed at
that.
"""

from __future__ import annotations

import base64
import functools
import re
import threading
import time
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort

from registry.errors import InputFault, InvalidInput
from registry.inspection import independence
from registry.signatures import MAX_NAME, from_onnxruntime, with_rows
from workers.executor import bfloat16
from workers.executor.codec import BF16, as_array
from workers.executor.independence import Arrays, Run
from workers.executor.trial_values import Rungs, TrialValues, combinations, pack
from workers.protocol.shapes import OPEN_SIZES
from workers.protocol.specs import Signature, TensorSpec

ROWS = (1, 3)
#: what helps where tensors do not begin with the rows
_CURE = 'set "batch": false on the application, give the models\' own shapes, and have queries run one by one'
#: operators whose outputs are as long as they find something
_COUNTING = {"NonMaxSuppression", "NonZero", "Unique", "Compress"}

#: combinations of made-up values that are tried at one size, and CPU seconds for them after the first
CLIMBS, CLIMB_S = 80, 3.0
#: seconds after which a run with other made-up rows is stopped, beside 64 times those of the first
STOP_S = 1.0
#: bytes of packed rows that go along with a variant
ROW_BYTES = 64 * 1024


def run(
    path: str,
    signature: dict[str, Any],
    sizes: Sequence[int] = (),
    padding: Sequence[str] = (),
    batch: bool = True,
    rows: Arrays | None = None,
    source: str = "",
) -> dict[str, Any]:
    """Load, compare and run a model, and return facts about it.

    They are the model's own tensors, ``max_batch`` (1: it takes one row at a time; None: any number), ``alone`` (why
    its queries must run alone; empty: they may share runs) and warnings.

    Args:
        sizes: of dimensions that the application leaves open, all of which the model must take; none: one of
            ``OPEN_SIZES``.
        padding: the inputs that will be padded.
        batch: False: no dimension is one of rows.
        rows: to run it with; None: made-up values are tried.
        source: where they are from, in words.

    Raises:
        InvalidInput: it fails the trial.
        MemoryError: it needs more than the process' limit.
    """
    session = _load(path)
    _compare(session, signature, batch)
    fixed = not batch or any(tensor.shape[0] == 1 for tensor in session.get_inputs())
    signature = with_rows(signature, batch)
    names = [tensor["name"] for tensor in signature["outputs"]]
    run = functools.partial(_run, session, signature, names)
    if not batch:
        run = _without_rows(run)
    trial = _Trial(run, signature, (1,) if fixed else ROWS, batch)
    try:
        ran, values = _try(trial, sizes, rows, source)
    except InvalidInput as error:
        firsts = {tensor.shape[0] for tensor in session.get_inputs()} if batch else ()
        if len(firsts) < 2:
            raise
        # Likely the reason, where one is a batch and another is time or a state.
        shown = ", ".join(sorted(map(str, firsts)))
        detail = f"have unlike first dimensions ({shown}), which may be no batch: then {_CURE}"
        raise InvalidInput([*error.faults, InputFault("file.inputs", detail)]) from None
    warnings = _uncut(session, signature, padding)
    if ran.size and not sizes:
        warnings.append(
            f"open dimensions were tried at {ran.size}, and are profiled at that; the application's 'sizes' sets others"
        )
    if not ran.finite:
        warnings.append("a trial run gave NaN or infinity; send rows of yours as 'sample' if it should not")
    return {
        "max_batch": 1 if fixed else None,
        "alone": _alone(path, session.get_outputs(), run, names, ran.feeds, int(batch) if fixed else None),
        "inputs": [_description(tensor) for tensor in session.get_inputs()],
        "outputs": [_description(tensor) for tensor in session.get_outputs()],
        "warnings": warnings,
        **values,
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
    session: ort.InferenceSession,
    signature: dict[str, Any],
    names: list[str],
    feeds: dict[str, Any],
    limit_s: float | None = None,
) -> list[Any]:
    """Run a model, and stop it after ``limit_s``, upon which it raises."""
    options = ort.RunOptions()
    stop = threading.Timer(limit_s or 0.0, setattr, (options, "terminate", True))
    if limit_s is not None:
        stop.start()
    try:
        return _run_with(session, signature, names, feeds, options)
    finally:
        stop.cancel()


def _run_with(
    session: ort.InferenceSession,
    signature: dict[str, Any],
    names: list[str],
    feeds: dict[str, Any],
    options: ort.RunOptions,
) -> list[Any]:
    if any(tensor["datatype"] == "BF16" for kind in ("inputs", "outputs") for tensor in signature[kind]):
        return bfloat16.run(session, names, feeds, options)
    return session.run(names, feeds, options)


def _without_rows(run: Run) -> Run:
    """Return runs of one row that the model, without a batch dimension, does not see."""

    def once(feeds: Arrays, **limit: float) -> list[np.ndarray]:
        values = run({name: array.reshape(array.shape[1:]) for name, array in feeds.items()}, **limit)
        return [np.expand_dims(as_array(value), 0) if _is_tensor(value) else value for value in values]

    return once


def _is_tensor(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic | bool | int | float | str)


def _alone(path: str, outputs: Sequence[Any], run: Run, names: list[str], feeds: Arrays, rows: int | None) -> str:
    """Return why queries must run alone; empty: rows do not influence each other.

    Args:
        outputs: all of the model's.
        names: of those in the signature.
        rows: that a run may have; 0: the model has no batch dimension. None: any number.
    """
    model = onnx.load_model(path, load_external_data=False)
    hints = independence.Hints(model)
    began = time.perf_counter()
    run(feeds)
    # Made-up rows may have a loop run for years.
    run = functools.partial(run, limit_s=STOP_S + 64 * (time.perf_counter() - began))
    try:
        if rows is None:
            return independence.reason(run, feeds, names, hints)
        independence.unsteady(run, feeds, names, hints)
        if not rows:
            return ""
        independence.keeps_rows(run, feeds, names, hints)
    except independence.NotRows as found:
        detail = f"has no batch dimension: {_rows(found.rows)} in gave shape {found.shape}; {_CURE}"
        raise _invalid(f"file.outputs.{found.name}.shape", detail) from None
    except independence.Unsteady as found:
        detail = (
            "differs from run to run though nothing in the model draws at random: earlier queries influence it, as in "
            "BatchNormalization's training mode; export the model for inference"
        )
        raise _invalid(f"file.outputs.{found.name}", detail) from None
    own = {tensor.name: tensor.shape for tensor in outputs}
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


class _Ran(NamedTuple):
    """Rows that a model ran with.

    Attributes:
        size: of open dimensions; 0: there are none, or the rows were given.
        finite: no output has NaN or infinity.
    """

    feeds: Arrays
    rungs: Rungs
    size: int
    finite: bool


class _Trial:
    """Runs of one model with rows that it may or may not take.

    Args:
        run: with some rows, which gives the outputs in the order of the signature.
        counts: how many rows one run after the other has.
    """

    def __init__(self, run: Run, signature: dict[str, Any], counts: Sequence[int], batch: bool):
        self._run = run
        self._outputs = signature["outputs"]
        self._counts = counts
        self._batch = batch
        inputs = tuple(TensorSpec(t["name"], t["datatype"], tuple(t["shape"])) for t in signature["inputs"])
        self._signature = Signature(inputs, ())
        self.has_open = any(size < 0 for spec in inputs for size in spec.shape[1:])
        #: the first failure at each size
        self.failures: dict[int, Exception] = {}

    def given(self, rows: Arrays, sizes: Sequence[int]) -> _Ran | None:
        """Run given rows, at each of some sizes where there are any."""
        values, first = TrialValues(self._signature, given=rows), None
        for size in sizes if self.has_open and sizes else (0,):
            ran = self._once(values.rows(max(self._counts), size=size), {}, size)
            if ran is None:
                return None
            first = first or ran
        return first

    def made(self, sizes: Sequence[int]) -> _Ran | None:
        """Run made-up values, at all of some sizes; without any at one of ``OPEN_SIZES``."""
        first: _Ran | None = None
        for size in (sizes or OPEN_SIZES) if self.has_open else (0,):
            ran = self._climb(size, first.rungs if first else None)
            if ran is None and sizes:
                return None
            first = first or ran
            if first is not None and not sizes:
                break
        return first

    def _climb(self, size: int, known: Rungs | None) -> _Ran | None:
        """Try combinations of rungs until one gives numbers.

        Else it is the first that runs at all.
        """
        best, until = None, time.process_time() + CLIMB_S
        tried = combinations(self._signature) if known is None else chain([known], combinations(self._signature))
        for rungs in islice(tried, CLIMBS):
            feeds = TrialValues(self._signature, rungs).rows(max(self._counts), max(size, 1))
            ran = self._once(feeds, rungs, size)
            if ran is not None and ran.finite:
                return ran
            best = best or ran
            if time.process_time() > until:
                break
        return best

    def _once(self, feeds: Arrays, rungs: Rungs, size: int) -> _Ran | None:
        finite = True
        for rows in self._counts:
            try:
                outputs = self._run({name: value[:rows] for name, value in feeds.items()})
            except MemoryError:
                raise
            except Exception as error:  # onnxruntime raises many types of its own
                at = f" at size {size}" if size else ""
                failure = _failed(f"{f'with {_rows(rows)}' if self._batch else 'alone'}{at}", error)
                if isinstance(failure, MemoryError):
                    raise failure from None
                self.failures.setdefault(size, failure)
                return None
            pairs = list(zip(self._outputs, outputs, strict=True))
            faults = [fault for tensor, value in pairs for fault in _check_output(tensor, value, rows, self._batch)]
            if faults:
                self.failures.setdefault(size, InvalidInput(dict.fromkeys(faults)))
                return None
            finite = finite and all(_finite(value) for _, value in pairs)
        self.failures.pop(size, None)
        return _Ran(feeds, rungs, size, finite)

    def refusal(self, source: str) -> Exception:
        """Return the refusal of a model that never ran.

        It has the failure of each size that was tried, and the cures.
        """
        failures = list(self.failures.values())
        if failures[0].faults[0].field != "file":
            return failures[0]
        told = "; ".join(_shortened(one.faults[0].detail) for one in failures)
        sizes = "declare the application's 'sizes' if it needs others, or " if self.has_open else ""
        cure = "" if source else f"; {sizes}send rows of yours as 'sample' if it needs values of its own"
        return _invalid("file", f"fails a run{f' of {source}' if source else ''} {told}{cure}")


def _try(trial: _Trial, sizes: Sequence[int], rows: Arrays | None, source: str) -> tuple[_Ran, dict[str, Any]]:
    """Find rows that the model runs with: those given, else made-up ones.

    Returns:
        the rows, and the facts ``values`` (where they are from), ``rungs``, and ``rows`` (base64 of packed ones, where
        given rows alone will do).
    """
    made = trial.made(sizes) if rows is None else None
    ran = made if rows is None else trial.given(rows, sizes)
    if ran is None:
        raise trial.refusal(source)
    if rows is None:
        shown = ", ".join(f"{name} {rung}" for name, rung in list(made.rungs.items())[:20])
        return ran, {"values": f"made up: {shown}", "rungs": made.rungs, "rows": ""}
    # A warm-up takes no rows from a file: it has made-up values if those run, too, else a few rows along.
    made = trial.made(sizes)
    if made is not None:
        return ran, {"values": source, "rungs": made.rungs, "rows": ""}
    packed = pack({name: array[:1] for name, array in rows.items()})
    if len(packed) > ROW_BYTES:
        detail = f"runs with rows of {source} alone, and one takes {len(packed)} bytes packed; the limit is {ROW_BYTES}"
        raise _invalid("sample", detail)
    return ran, {"values": source, "rungs": {}, "rows": base64.b64encode(packed).decode()}


def _shortened(text: str) -> str:
    return text if len(text) <= 250 else f"{text[:249]}…"


def _finite(value: np.ndarray) -> bool:
    return not (value.dtype.kind == "f" or value.dtype == BF16) or bool(np.isfinite(value.astype(np.float64)).all())


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
    return []
