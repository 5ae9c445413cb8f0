"""Inspection of an ONNX model: format, limits, completeness, operators, trial run."""

from __future__ import annotations

import os
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from registry.inspection import contents, formats, limits
from registry.inspection.contents import refused


def inspect(path: str, signature: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Facts about the model. Raises InvalidInput, of the first stage that failed."""
    facts = read(path)
    # onnxruntime's load judges the graph: onnx.checker refuses some that run, as those with outputs of unknown rank.
    from registry.inspection import trial

    return {**facts, **trial.run(path, signature, **options)}


def read(path: str) -> dict[str, Any]:
    """Facts that need no run. Raises InvalidInput.

    The content is not kept, which would count as memory.
    """
    model = parse(path)
    opset = _opset(model)
    counts = contents.check(model, opset)
    return {
        "ir_version": model.ir_version,
        "opset": opset,
        "producer": f"{model.producer_name} {model.producer_version}".strip()[:100],
        **counts,
    }


def parse(path: str) -> onnx.ModelProto:
    size = os.path.getsize(path)
    if size == 0:
        raise refused("is empty; upload the .onnx file again")
    if size > limits.MAX_MODEL_BYTES:
        raise refused(f"has {size} bytes; an ONNX file has at most {limits.MAX_MODEL_BYTES}")
    other = formats.stranger(path)
    if other:
        raise refused(other)
    try:
        model = onnx.load_model(path, load_external_data=False)
    except (DecodeError, ValueError, RecursionError):
        raise refused(f"is not an ONNX model, or is truncated at its {size} bytes: it cannot be parsed") from None
    if not model.ir_version or not model.HasField("graph") or not model.opset_import:
        raise refused("is not an ONNX model, or is truncated: it has no graph, no IR version or no opset")
    if not model.graph.node:
        raise refused("has a graph without operators")
    return model


def _opset(model: onnx.ModelProto) -> int:
    """The opset of ai.onnx; onnxruntime judges it at the load."""
    for entry in model.opset_import:
        # onnxruntime would cut it to 32 bits and see another one.
        if abs(entry.version) >= 2**31:
            raise refused(f"opset {entry.version} of {entry.domain[:80] or 'ai.onnx'} is no opset", "file.opset")
    opsets = {("" if entry.domain == "ai.onnx" else entry.domain): entry.version for entry in model.opset_import}
    opset = opsets.get("", 0)
    if opset < 1 and "ai.onnx.ml" not in opsets:
        raise refused("names no opset of the ai.onnx domain", "file.opset")
    return opset
