"""The inspecting process: ``python -m registry.inspection.worker``.

An order comes on standard input, a verdict goes to standard output.

Order (JSON): ``{"kind": "model" | "validation", "path", "private", "signature", "cpu_s", "memory_bytes"}``, with
``"rows"`` of a model (a file of rows to try it with; empty: none) and further options of :func:`.trial.run`, and the
``"metric"`` of a validation set.
Verdict (JSON): ``{"faults": [[field, detail], ...], "facts": {...}}``; no faults means accepted.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from registry.errors import InvalidInput
from registry.inspection import limits
from workers.confinement import confine_inspection


def main() -> None:
    order = json.load(sys.stdin)
    # Native libraries print to standard output as they like; the verdict gets a descriptor that they do not know.
    verdict = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    size = os.path.getsize(order["path"])
    isolation, apart = confine_inspection(
        [_package("registry"), _package("workers"), Path(order["path"]).parent],
        private=Path(order["private"]),
        cpu_s=order["cpu_s"],
        address_space=limits.RUNTIME_BYTES + order["memory_bytes"] + limits.MODEL_COPIES * size,
        file_bytes=limits.MAX_OUTPUT_BYTES,
    )
    try:
        facts = _inspect(order)
        facts |= {"offline": apart or isolation.seccomp, "isolation": str(isolation)}
        if not isolation.complete:
            facts["warnings"] = [*facts.get("warnings", ()), f"was inspected {isolation}"]
        answer = {"faults": [], "facts": facts}
    except InvalidInput as error:
        answer = {"faults": error.faults[: limits.MAX_FAULTS], "facts": {}}
    except UnicodeDecodeError:
        # Names that only onnxruntime has read so far, as those of dimensions.
        answer = {"faults": [["file", "has names that are not UTF-8"]], "facts": {}}
    except MemoryError:
        answer = {"faults": [["file", out_of_memory(order["memory_bytes"])]], "facts": {}}
    json.dump(answer, verdict)
    verdict.flush()
    # Native destructors of a model that was refused need not be trusted either.
    os._exit(0)


def _package(name: str) -> Path:
    return Path(sys.modules[name].__file__).parent


def _inspect(order: dict) -> dict:
    if order["kind"] == "model":
        from registry.inspection import model

        signature, batch, rows = order["signature"], order["batch"], None
        if order["rows"]:
            from registry.inspection import samples

            rows = samples.read(order["rows"], signature, batch)
        options = {name: order[name] for name in ("sizes", "padding", "batch", "source", "begin")}
        return model.inspect(order["path"], signature, rows=rows, **options)
    from registry.inspection import validation

    return validation.inspect(order["path"], order["signature"], order["metric"])


def out_of_memory(memory_bytes: int) -> str:
    return (
        f"needs more than {memory_bytes // 2**20} MiB of memory beyond its own size; "
        "the limit is set by NEREUS_INSPECT_MEMORY_MB"
    )


if __name__ == "__main__":
    main()
