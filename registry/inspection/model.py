"""Inspection of an ONNX model: format, limits, completeness, operators, trial run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from registry.errors import InputFault, InvalidInput
from registry.inspection import limits, wire

#: the standard's own domains; com.microsoft is onnxruntime's (quantised and fused operators)
STANDARD = ("", "ai.onnx", "ai.onnx.ml")
RUNTIME = "com.microsoft"
#: reads a compiled model from another file
FORBIDDEN = {(RUNTIME, "EPContext")}


def inspect(
    path: str, signature: dict[str, Any], sizes: Sequence[int] = (), padding: Sequence[str] = ()
) -> dict[str, Any]:
    """Facts about the model (``sizes`` and ``padding``: see :func:`.trial.run`), or InvalidInput with everything found
    wrong at the first stage that failed."""
    model = parse(path)
    opset = _check_versions(model)
    nodes, parameters = _check_contents(model)
    _check_operators(model, opset)
    try:
        onnx.checker.check_model(path)
    except onnx.checker.ValidationError as error:
        raise _refused(f"is not a valid ONNX model: {_first_line(error)}") from None
    facts = {
        "ir_version": model.ir_version,
        "opset": opset,
        "producer": f"{model.producer_name} {model.producer_version}".strip()[:100],
        "nodes": nodes,
        "parameters": parameters,
    }
    # onnxruntime reads the file itself; this copy would count against the memory limit.
    del model
    from registry.inspection import trial

    return {**facts, **trial.run(path, signature, sizes, padding)}


def _refused(detail: str, field: str = "file") -> InvalidInput:
    return InvalidInput([InputFault(field, detail)])


def _first_line(error: Exception) -> str:
    """An error of a native library, without what only a developer of it wants to read."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


def parse(path: str) -> onnx.ModelProto:
    """The file as a model with a graph, external data left alone."""
    size = os.path.getsize(path)
    if size == 0:
        raise _refused("is empty")
    if size > limits.MAX_MODEL_BYTES:
        raise _refused(f"has {size} bytes; an ONNX file has at most {limits.MAX_MODEL_BYTES}")
    missing = wire.missing_bytes(path, size)
    if missing:
        raise _refused(f"is truncated: at least {missing} bytes are missing at its end")
    try:
        model = onnx.load_model(path, load_external_data=False)
    except (DecodeError, ValueError, RecursionError):
        raise _refused("is not an ONNX model: it cannot be parsed") from None
    if not model.ir_version or not model.HasField("graph") or not model.opset_import:
        raise _refused("is not an ONNX model: it has no graph, no IR version or no opset (or is truncated)")
    if not model.graph.node:
        raise _refused("has a graph without operators")
    return model


def _check_versions(model: onnx.ModelProto) -> int:
    if model.ir_version > onnx.IR_VERSION:
        raise _refused(
            f"IR version {model.ir_version} is too new; the newest known is {onnx.IR_VERSION}", "file.ir_version"
        )
    newest = onnx.defs.onnx_opset_version()
    opsets = {("" if entry.domain == "ai.onnx" else entry.domain): entry.version for entry in model.opset_import}
    opset = opsets.get("", 0)
    if opset > newest:
        raise _refused(f"opset {opset} is too new; the newest known is {newest}", "file.opset")
    if opset < 1 and "ai.onnx.ml" not in opsets:
        raise _refused("names no opset of the ai.onnx domain", "file.opset")
    return opset


def _graphs(model: onnx.ModelProto) -> Iterator[tuple[Any, int]]:
    """The main graph, functions and every graph inside of them, with their depth."""
    waiting = [(model.graph, 0)] + [(function, 0) for function in model.functions]
    while waiting:
        graph, depth = waiting.pop()
        yield graph, depth
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    waiting.append((attribute.g, depth + 1))
                waiting.extend((inner, depth + 1) for inner in attribute.graphs)


def _tensors(graph: Any) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Every constant of one graph or function with a name for it: initializers and attributes, sparse ones in parts."""
    sparse = []
    for tensor in getattr(graph, "initializer", ()):
        yield tensor.name, tensor
    sparse.extend(getattr(graph, "sparse_initializer", ()))
    for node in graph.node:
        label = f"{node.op_type} {node.name}".strip()
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield f"{label}.{attribute.name}", attribute.t
            for tensor in attribute.tensors:
                yield f"{label}.{attribute.name}", tensor
            if attribute.HasField("sparse_tensor"):
                sparse.append(attribute.sparse_tensor)
            sparse.extend(attribute.sparse_tensors)
    for tensor in sparse:
        elements = 1
        for size in tensor.dims:
            elements *= max(size, 1)
        if elements > limits.MAX_ELEMENTS:
            raise _refused(
                f"constant {tensor.values.name!r} stands for {elements} elements; the limit is {limits.MAX_ELEMENTS}"
            )
        yield tensor.values.name, tensor.values
        yield tensor.values.name, tensor.indices


def _check_contents(model: onnx.ModelProto) -> tuple[int, int]:
    """Counts of nodes and parameters, after checking both, the depth, and each constant's shape and whereabouts."""
    nodes = tensors = parameters = 0
    for graph, depth in _graphs(model):
        nodes += len(graph.node)
        if nodes > limits.MAX_NODES:
            raise _refused(f"has more than {limits.MAX_NODES} operators")
        if depth > limits.MAX_DEPTH:
            raise _refused(f"nests graphs deeper than {limits.MAX_DEPTH} levels")
        for name, tensor in _tensors(graph):
            tensors += 1
            if tensors > limits.MAX_TENSORS:
                raise _refused(f"has more than {limits.MAX_TENSORS} constants")
            parameters += _check_tensor(name, tensor)
    return nodes, parameters


def _check_tensor(name: str, tensor: onnx.TensorProto) -> int:
    name = name[:100]
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
        where = next((entry.value for entry in tensor.external_data if entry.key == "location"), "another file")
        raise _refused(
            f"keeps the data of {name!r} outside, in {where[:100]!r}; save the model with its data inside",
            "file.external_data",
        )
    if len(tensor.dims) > limits.MAX_RANK:
        raise _refused(f"constant {name!r} has {len(tensor.dims)} dimensions; the limit is {limits.MAX_RANK}")
    elements = 1
    for size in tensor.dims:
        if not 0 <= size <= limits.MAX_DIM:
            raise _refused(f"constant {name!r} has a dimension of {size}; the limit is {limits.MAX_DIM}")
        elements *= size
    if elements > limits.MAX_ELEMENTS:
        raise _refused(f"constant {name!r} has {elements} elements; the limit is {limits.MAX_ELEMENTS}")
    return elements


def _check_operators(model: onnx.ModelProto, opset: int) -> None:
    functions = {(function.domain, function.name) for function in model.functions}
    ml = next((entry.version for entry in model.opset_import if entry.domain == "ai.onnx.ml"), 1)
    faults: dict[str, InputFault] = {}
    for graph, _ in _graphs(model):
        for node in graph.node:
            detail = _unknown(node, functions, opset, ml)
            if detail:
                faults[detail] = InputFault("file.operators", detail)
    if faults:
        raise InvalidInput(faults.values())


def _unknown(node: onnx.NodeProto, functions: set[tuple[str, str]], opset: int, ml: int) -> str | None:
    domain, kind = node.domain, node.op_type
    if (domain, kind) in functions:
        return None
    if (domain, kind) in FORBIDDEN:
        return f"operator {kind[:80]} of {domain} reads other files"
    if domain == RUNTIME:
        return None  # onnx does not know these; onnxruntime says at the load
    if domain not in STANDARD:
        return f"operator {kind[:80]} is of the custom domain {domain[:80]!r}; known are ai.onnx, ai.onnx.ml, {RUNTIME}"
    version, schema_domain = (ml, domain) if domain == "ai.onnx.ml" else (opset, "")
    try:
        onnx.defs.get_schema(kind, version, schema_domain)
    except onnx.defs.SchemaError:
        return f"operator {kind[:80]} is unknown in opset {version} of {schema_domain or 'ai.onnx'}"
    return None
