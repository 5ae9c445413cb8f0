"""Run an inspection in a confined process and turn every outcome into a verdict."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from registry.errors import Busy, InputFault, InvalidInput
from registry.inspection import limits
from registry.inspection.worker import out_of_memory
from workers import log
from workers.settings import Settings

logger = log.get("registry.inspection")

_CODE = Path(__file__).resolve().parent.parent.parent
#: how long an upload waits for the inspection before it
MAX_WAIT_S = 30


def inspect_model(
    path: Path,
    signature: dict[str, Any],
    settings: Settings,
    sizes: Sequence[int] = (),
    padding: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Facts about an ONNX file that fits the signature: opset, sizes, tensors, warnings; ``max_batch`` 1 where it takes
    one row at a time, else None. ``sizes`` of open dimensions it must run at; none: any that it takes. ``padding``: the
    inputs that will be padded.

    Raises:
        InvalidInput: it cannot be a variant; fields begin with ``file``.
        Busy: other inspections are in the way.
    """
    order = {"kind": "model", "path": str(path), "signature": signature}
    return _inspect({**order, "sizes": list(sizes), "padding": sorted(padding or ())}, settings)


def inspect_validation(path: Path, signature: dict[str, Any], metric: str, settings: Settings) -> dict[str, Any]:
    """Facts (``rows``) about an ``.npz`` validation set that fits the signature. Raises as :func:`inspect_model`."""
    return _inspect({"kind": "validation", "path": str(path), "signature": signature, "metric": metric}, settings)


def _inspect(order: dict[str, Any], settings: Settings) -> dict[str, Any]:
    order = {**order, "cpu_s": settings.inspect_seconds, "memory_bytes": settings.inspect_memory_bytes}
    # The process runs at the lowest priority: on a busy box its CPU seconds take longer on the wall.
    wall_s = 3 * settings.inspect_seconds + 10
    with one_at_a_time(settings), tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        started = time.monotonic()
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
                },
                start_new_session=True,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise InvalidInput([InputFault("file", f"could not be inspected within {wall_s} s")]) from None
        seconds = time.monotonic() - started
        verdict = _read_verdict(output)
        if code != 0 or verdict is None:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4000))
            complaint = errors.read().decode(errors="replace")
            logger.warning(
                "inspection_died", kind=order["kind"], code=code, seconds=round(seconds, 2), stderr=complaint
            )
            raise InvalidInput([InputFault("file", _why_dead(code, complaint, order))])
    if verdict["faults"]:
        raise InvalidInput(InputFault(*fault) for fault in verdict["faults"])
    return {**verdict["facts"], "seconds": round(seconds, 3)}


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
        return f"crashes the runtime that loads it ({signal.Signals(-code).name})"
    return "could not be inspected; the log says why"


@contextlib.contextmanager
def one_at_a_time(settings: Settings) -> Iterator[None]:
    """One inspection on this box: two at their memory limit could push inference out of memory.

    Raises:
        Busy: after :data:`MAX_WAIT_S`.
    """
    folder = settings.home / "models"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".inspecting", "w") as file:
        deadline = time.monotonic() + MAX_WAIT_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise Busy("other uploads are being inspected", retry_after_s=30) from None
                time.sleep(0.05)
        yield
