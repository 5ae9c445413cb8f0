"""Runs of a model in its trial: with which rows, and why others failed."""

from __future__ import annotations

import base64
import re
import threading
import time
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import msgspec
import numpy as np
import onnxruntime as ort

from registry.errors import InputFault, InvalidInput, invalid
from registry.signatures import spec
from workers.executor import bfloat16
from workers.executor.codec import BF16, as_array
from workers.executor.independence import Arrays, Run
from workers.executor.padding import Axes
from workers.executor.trial_values import Rungs, TrialValues, combinations, pack
from workers.protocol.shapes import open_sizes

#: what helps where tensors do not begin with the rows
CURE = 'set "batch": false on the application, give the models\' own shapes, and have queries run one by one'
#: combinations of made-up values that are tried at one size; CPU seconds for those after the first, and at all sizes
CLIMBS, CLIMB_S, CLIMBS_S = 80, 3.0, 6.0
#: seconds after which a run at a size that nobody asked for is stopped, where it is larger than most models' are
LARGE_S, LARGE = 10.0, 256
#: bytes of packed rows that go along with a variant
ROW_BYTES = 64 * 1024


def run(
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
        if any(tensor["datatype"] == "BF16" for kind in ("inputs", "outputs") for tensor in signature[kind]):
            return bfloat16.run(session, names, feeds, options)
        return session.run(names, feeds, options)
    finally:
        stop.cancel()


def without_rows(run: Run) -> Run:
    """Return runs of one row that the model, without a batch dimension, does not see."""

    def once(feeds: Arrays, **limit: float) -> list[np.ndarray]:
        values = run({name: array.reshape(array.shape[1:]) for name, array in feeds.items()}, **limit)
        return [np.expand_dims(as_array(value), 0) if _is_tensor(value) else value for value in values]

    return once


def _is_tensor(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic | bool | int | float | str)


def failed(what: str, error: Exception) -> Exception:
    text = str(error)
    if re.search(r"bad_alloc|[Ff]ailed to allocate|[Aa]llocation failed|out of memory", text):
        return MemoryError()
    too_new = re.search(r"IR version: (\d+), max supported IR version: (\d+)", text)
    if too_new:
        cure = f"set model.ir_version = {too_new[2]} with the onnx package and save it again"
        detail = f"IR version {too_new[1]} is too new; onnxruntime supports up to {too_new[2]}: {cure}"
        return invalid("file.ir_version", detail)
    too_new = re.search(r"Opset (\d+) is under development.*?domain (\S+) is till opset (\d+)", text, re.DOTALL)
    if too_new:
        opset, domain, newest = too_new.groups()
        cure = (
            f"onnx.version_converter.convert_version(model, {newest}) or torch.onnx.export(..., opset_version={newest})"
        )
        if domain != "ai.onnx":
            cure = f"export it with target_opset={{'{domain}': {newest}}} (skl2onnx)"
        detail = f"opset {opset} of {domain} is too new; onnxruntime supports up to {newest}: {cure}"
        return invalid("file.opset", detail)
    # Paths on this box, native source locations and signatures do not help a client.
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    text = re.sub(r"Load model from \S+ failed:", "", text)
    text = re.sub(r"\S+\.(cc|h|cpp):\d+ .*?\) ", "", text)
    return invalid("file", f"{what}: {' '.join(text.split())[:300] or type(error).__name__}")


def shown_rows(count: int) -> str:
    return f"{count} row{'s' if count > 1 else ''}"


class Ran(NamedTuple):
    """Rows that a model ran with."""

    feeds: Arrays
    rungs: Rungs
    size: int  # of open dimensions; 0: none
    finite: bool
    first: Sequence[np.ndarray]  # outputs of the first row alone
    seconds: float  # of the longest run


class Trial:
    """Runs of one model with rows that it may or may not take.

    ``run`` gives the outputs in the signature's order; ``counts``: rows of one run after the other.
    """

    def __init__(self, run: Run, signature: dict[str, Any], counts: Sequence[int], batch: bool, axes: Axes):
        self._run = run
        self._outputs = signature["outputs"]
        self._counts = counts
        self._batch = batch
        # Its tensors have their rows already.
        self._signature = msgspec.structs.replace(spec(signature, batch=True), batch=batch)
        self._axes = axes
        self.has_open = any(size < 0 for tensor in self._signature.inputs for size in tensor.shape[1:])
        self._until = time.process_time() + CLIMBS_S
        #: the first failure at each size
        self.failures: dict[int, Exception] = {}

    def given(self, rows: Arrays, sizes: Sequence[int]) -> Ran | None:
        first: Ran | None = None
        for size in sizes if self.has_open and sizes else (0,):
            for values in TrialValues(self._signature, given=rows).forms(self._axes):
                if ran := self._once(values.rows(max(self._counts), size=size), {}, size):
                    break
            else:
                return None
            first = first or ran
        return first

    def made(self, sizes: Sequence[int], begin: int) -> Ran | None:
        first: Ran | None = None
        for size in (sizes or open_sizes(self._signature)) if self.has_open else (0,):
            large = size > LARGE and not sizes
            if large and any(failure.faults[0].field != "file" for failure in self.failures.values()):
                # It ran, and longer inputs would not change the rank of its outputs.
                break
            limit = {"limit_s": LARGE_S} if large else {}
            ran = self._climb(size, first.rungs if first else None, begin, **limit)
            if ran is None and sizes:
                return None
            first = first or ran
            if first is not None and not sizes:
                break
        return first

    def _climb(self, size: int, known: Rungs | None, begin: int, **limit: float) -> Ran | None:
        """Try combinations of rungs until one gives numbers, else the first that runs."""
        best, until = None, min(time.process_time() + CLIMB_S, self._until)
        tried = islice(combinations(self._signature), begin, begin + CLIMBS)
        for rungs in tried if known is None else chain([known], tried):
            for values in TrialValues(self._signature, rungs).forms(self._axes):
                try:
                    ran = self._once(values.rows(max(self._counts), max(size, 1)), rungs, size, **limit)
                except MemoryError:
                    # A size or a count among the values may be what takes it.
                    ran = None
                if ran is not None and ran.finite:
                    return ran
                best = best or ran
            if time.process_time() > until:
                break
        return best

    def _once(self, feeds: Arrays, rungs: Rungs, size: int, **limit: float) -> Ran | None:
        finite, seconds, first = True, 0.0, None
        for rows in self._counts:
            began = time.perf_counter()
            try:
                outputs = self._run({name: value[:rows] for name, value in feeds.items()}, **limit)
            except MemoryError:
                raise
            except Exception as error:  # onnxruntime raises many types of its own
                at = f" at size {size}" if size else ""
                failure = failed(f"{f'with {shown_rows(rows)}' if self._batch else 'alone'}{at}", error)
                if isinstance(failure, MemoryError):
                    raise failure from None
                self.failures.setdefault(size, failure)
                return None
            seconds = max(seconds, time.perf_counter() - began)
            pairs = list(zip(self._outputs, outputs, strict=True))
            faults = [fault for tensor, value in pairs for fault in _check_output(tensor, value, rows, self._batch)]
            if faults:
                self.failures.setdefault(size, InvalidInput(dict.fromkeys(faults)))
                return None
            finite = finite and all(_finite(value) for _, value in pairs)
            first = first or [np.copy(value) for value in outputs]
        self.failures.pop(size, None)
        return Ran(feeds, rungs, size, finite, first, seconds)

    def refusal(self, source: str) -> Exception:
        """The refusal of a model that never ran, with each size's failure and cures."""
        failures = list(self.failures.values())
        if not failures:
            return MemoryError()
        if failures[0].faults[0].field != "file":
            faults = list(failures[0].faults)
            if not source and not self._batch:
                where, detail = faults[-1]
                cure = "give the signature what runs give, or send rows of yours as 'sample' if their values decide it"
                faults[-1] = InputFault(where, f"{detail}; {cure}")
            return InvalidInput(faults)
        told = "; ".join(_shortened(one.faults[0].detail) for one in failures)
        sizes = "declare the application's 'sizes' if it needs others, or " if self.has_open else ""
        cure = "" if source else f"; {sizes}send rows of yours as 'sample' if it needs values of its own"
        return invalid("file", f"fails a run{f' of {source}' if source else ''} {told}{cure}")


def find_rows(
    trial: Trial, sizes: Sequence[int], rows: Arrays | None, source: str, begin: int | None
) -> tuple[Ran, dict[str, Any]]:
    """Find rows that the model runs with: those given, else made-up ones.

    Args:
        begin: the combination of made-up values that is tried first; None: none is.

    Returns:
        the rows, and the facts ``values`` (where they are from), ``rungs``, and ``rows`` (base64 of packed ones, where
        given rows alone will do).
    """
    ran = trial.made(sizes, begin or 0) if rows is None else trial.given(rows, sizes)
    if ran is None:
        raise trial.refusal(source)
    if rows is None:
        shown = ", ".join(f"{name} {rung}" for name, rung in list(ran.rungs.items())[:20])
        return ran, {"values": f"made up: {shown}", "rungs": ran.rungs, "rows": ""}
    # A warm-up takes no rows from a file: it has made-up values if those run, too, else a few rows along.
    made = None if begin is None else trial.made(sizes, begin)
    if made is not None:
        return ran, {"values": source, "rungs": made.rungs, "rows": ""}
    packed = pack({name: array[:1] for name, array in rows.items()})
    if len(packed) > ROW_BYTES:
        detail = f"runs with rows of {source} alone, and one takes {len(packed)} bytes packed; the limit is {ROW_BYTES}"
        raise invalid("sample", detail)
    return ran, {"values": source, "rungs": {}, "rows": base64.b64encode(packed).decode()}


def _shortened(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:159]}…"


def _finite(value: np.ndarray) -> bool:
    return not (value.dtype.kind == "f" or value.dtype == BF16) or bool(np.isfinite(value.astype(np.float64)).all())


def _check_output(tensor: dict[str, Any], value: Any, rows: int, batch: bool) -> list[InputFault]:
    where = f"file.outputs.{tensor['name']}"
    if not isinstance(value, np.ndarray):
        return [InputFault(f"{where}.datatype", f"is a {type(value).__name__}, not a tensor")]
    shape, expected = list(value.shape), tensor["shape"]
    if not shape or shape[0] != rows:
        detail = f"has no batch dimension: {shown_rows(rows)} in gave shape {shape}; {CURE}"
        return [InputFault(f"{where}.shape", detail)]
    if len(shape) != len(expected) or any(w not in (-1, s) for s, w in zip(shape[1:], expected[1:], strict=False)):
        if not batch:
            shape, expected = shape[1:], expected[1:]
        return [InputFault(f"{where}.shape", f"a run gave {shape}; the application's signature says {expected}")]
    return []
