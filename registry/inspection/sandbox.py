"""Run an inspection in a confined process and turn every outcome into a verdict."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from registry.errors import Conflict, InputFault, InvalidInput
from registry.inspection import limits, queue
from registry.inspection.worker import out_of_memory
from workers import confinement, log
from workers.settings import Settings

logger = log.get("registry.inspection")

#: combinations of made-up values to begin with, the next after a crash
BEGINS = (0, 1, 2)
_CODE = Path(__file__).resolve().parent.parent.parent


class Died(InvalidInput):
    """The process ended without a verdict. ``crashed``: not by a limit of time or memory."""

    def __init__(self, detail: str, crashed: bool) -> None:
        super().__init__([InputFault("file", detail)])
        self.crashed = crashed


def inspect_model(
    path: Path,
    signature: dict[str, Any],
    settings: Settings,
    sizes: Sequence[int] = (),
    padding: Mapping[str, float] | None = None,
    batch: bool = True,
    rows: Path | None = None,
    source: str = "",
) -> dict[str, Any]:
    """Return facts about an ONNX file that fits the signature.

    They are opset, sizes, tensors, warnings, ``alone`` (why its queries run alone; empty: they share runs) and
    ``max_batch``: 1 where the model takes one row at a time, else None.

    The other arguments are those of :func:`.trial.run`; ``rows``: a validation set, or a sample (:mod:`.samples`).

    Raises:
        InvalidInput: it cannot be a variant; fields begin with ``file``.
        Busy: other inspections are in the way.
        Conflict: this box cannot isolate it, and its settings demand that.
    """
    order = {"kind": "model", "signature": signature, "batch": batch, "source": source}
    order |= {"sizes": list(sizes), "padding": dict(padding or {})}
    for begin in BEGINS if rows is None else (0, None):
        try:
            return _inspect(path, {**order, "begin": begin}, settings, rows)
        except Died as error:
            # Made-up values may crash a model that serves others, and take it to limits that the owner's rows do not.
            if rows is None and not error.crashed:
                raise
            death = error
    raise death


def inspect_validation(path: Path, signature: dict[str, Any], metric: str, settings: Settings) -> dict[str, Any]:
    """The number of ``rows`` of a set that fits. Raises as :func:`inspect_model`."""
    return _inspect(path, {"kind": "validation", "signature": signature, "metric": metric}, settings)


def warning(settings: Settings) -> str:
    """How this box falls short of isolating uploads, for operators; empty: not."""
    isolation = confinement.isolation()
    if isolation.complete:
        return ""
    if settings.require_isolation:
        return f"Uploads are refused (NEREUS_REQUIRE_ISOLATION=1): they would be {isolation}."
    return (
        f"Uploaded models are {isolation}. They run with limits of time and memory alone: upload only what you trust, "
        "or set NEREUS_REQUIRE_ISOLATION=1 to refuse uploads."
    )


def _inspect(path: Path, order: dict[str, Any], settings: Settings, rows: Path | None = None) -> dict[str, Any]:
    if settings.require_isolation and (shortcoming := warning(settings)):
        raise Conflict(shortcoming)
    # The process runs at the lowest priority: on a busy box its CPU seconds take longer on the wall.
    wall_s = 3 * settings.inspect_seconds + 10
    order = {**order, "cpu_s": settings.inspect_seconds, "memory_bytes": settings.inspect_memory_bytes}
    memory = limits.RUNTIME_BYTES + settings.inspect_memory_bytes + limits.MODEL_COPIES * path.stat().st_size
    with queue.place(settings.home / "models", memory) as place, _alone(path, place) as file:
        order["rows"] = "" if rows is None else str(_linked(rows, place / "rows"))
        started = time.monotonic()
        verdict = _run({**order, "path": str(file), "private": str(settings.home)}, wall_s)
        seconds = time.monotonic() - started
    if verdict["faults"]:
        raise InvalidInput(InputFault(*fault) for fault in verdict["faults"])
    return {**verdict["facts"], "seconds": round(seconds, 3)}


@contextlib.contextmanager
def _alone(path: Path, folder: Path) -> Iterator[Path]:
    """Yield the file as the only one of a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        yield _linked(path, folder / "upload")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _linked(path: Path, place: Path) -> Path:
    try:
        os.link(path, place)
    except OSError:
        # Another file system, or one without links.
        shutil.copyfile(path, place)
    return place


def _run(order: dict[str, Any], wall_s: float) -> dict[str, Any]:
    """The verdict of an inspecting process. Raises Died: it ended without."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            code = subprocess.run(
                [sys.executable, "-m", "registry.inspection.worker"],
                input=json.dumps(order).encode(),
                stdout=output,
                stderr=errors,
                timeout=wall_s,
                cwd=_CODE,
                # Nothing of this process' environment is the upload's business: settings hold secrets.
                env={
                    "PATH": os.defpath,
                    "PYTHONPATH": str(_CODE),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "LC_ALL": "C.UTF-8",
                    "OMP_NUM_THREADS": "1",
                    "OPENBLAS_NUM_THREADS": "1",
                    "CUDA_VISIBLE_DEVICES": "",
                    "ORT_DISABLE_TELEMETRY": "1",
                },
                start_new_session=True,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            detail = f"could not be inspected within {wall_s} s; the limit follows from NEREUS_INSPECT_SECONDS"
            raise Died(detail, crashed=False) from None
        verdict = _read_verdict(output)
        if code != 0 or verdict is None:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4000))
            complaint = errors.read().decode(errors="replace")
            logger.warning("inspection_died", kind=order["kind"], code=code, stderr=complaint)
            detail = _why_dead(code, complaint, order)
            raise Died(detail, crashed=detail.startswith("crashes"))
    return verdict


def _read_verdict(output) -> dict[str, Any] | None:
    output.seek(0)
    try:
        verdict = json.loads(output.read(limits.MAX_OUTPUT_BYTES))
    except ValueError:
        return None
    well_formed = isinstance(verdict, dict) and {"faults", "facts"} <= verdict.keys()
    return verdict if well_formed else None


def _why_dead(code: int, complaint: str, order: dict[str, Any]) -> str:
    if "bad_alloc" in complaint or "MemoryError" in complaint:
        return out_of_memory(order["memory_bytes"])
    if code == -signal.SIGXCPU:
        return (
            f"takes more than {order['cpu_s']} s of CPU time to load and run; "
            "the limit is set by NEREUS_INSPECT_SECONDS"
        )
    if code == -signal.SIGKILL:
        return f"was stopped: it takes more than {order['cpu_s']} s of CPU time or more memory than this box has"
    if code < 0:
        name = signal.Signals(-code).name
        return (
            f"crashes the runtime that loads it ({name}), as some do when memory ends (NEREUS_INSPECT_MEMORY_MB) or "
            "with values that they do not expect: then send rows of yours as 'sample'"
        )
    return "could not be inspected; the log says why"
