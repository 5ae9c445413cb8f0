"""Limits of what a model holds, judged without running it."""

from __future__ import annotations

import functools
import graphlib
from collections import Counter, defaultdict
from typing import Any

import onnx
from google.protobuf.message import Message

from registry.errors import InputFault, InvalidInput, invalid
from registry.inspection import limits, walk

#: the standard's own domains; com.microsoft is onnxruntime's (quantised and fused operators)
STANDARD = ("", "ai.onnx", "ai.onnx.ml")
RUNTIME = "com.microsoft"
#: reads a compiled model from another file
FORBIDDEN = {(RUNTIME, "EPContext")}

Name = tuple[str, str, str]


def check(model: onnx.ModelProto, opset: int) -> dict[str, Any]:
    """Counts of nodes, operators (the most frequent) and parameters.

    Raises InvalidInput: it exceeds a limit, keeps data outside, or has unknown operators.
    """
    for kind, found in (("inputs", model.graph.input), ("outputs", model.graph.output)):
        if len(found) > limits.MAX_INTERFACE:
            raise refused(f"has {len(found)} {kind}; the limit is {limits.MAX_INTERFACE}")
    contents = _Contents(model, opset)
    for found in walk.messages(model):
        contents.add(found)
    if contents.faults:
        raise InvalidInput(contents.faults.values())
    _check_functions(contents.calls)
    kinds = dict(contents.kinds.most_common(limits.MOST_KINDS))
    return {"nodes": contents.nodes, "operators": kinds, "parameters": contents.parameters}


def refused(detail: str, field: str = "file") -> InvalidInput:
    return invalid(field, detail)


class _Contents:
    """Counts what is in a model; refuses excess, collects unknown operators."""

    def __init__(self, model: onnx.ModelProto, opset: int):
        self._opset = opset
        self._ml = next((entry.version for entry in model.opset_import if entry.domain == "ai.onnx.ml"), 1)
        self._functions = {_name(function.domain, function) for function in model.functions}
        self.nodes = self.tensors = self.parameters = 0
        self.faults: dict[str, InputFault] = {}
        #: operators by kind, without calls of the model's own functions
        self.kinds: Counter[str] = Counter()
        #: of each function, and of the model itself (None): how many operators of its own, by function called
        self.calls: dict[Name | None, Counter[Name | None]] = defaultdict(Counter)

    def add(self, found: walk.Found) -> None:
        message = found.message
        where = walk.outside(message)
        if where is not None:
            raise refused(
                f"keeps the data of {_label(message)} outside, in {where[:100]!r}; save the model with its data inside",
                "file.external_data",
            )
        if isinstance(message, onnx.NodeProto):
            self._operator(message, found.owner)
        elif isinstance(message, onnx.TensorProto):
            self._tensor(message)
        elif isinstance(message, onnx.SparseTensorProto):
            _elements(_label(message.values), message.dims)
        elif isinstance(message, onnx.GraphProto) and found.depth > limits.MAX_DEPTH:
            raise refused(f"nests graphs deeper than {limits.MAX_DEPTH} levels")

    def _operator(self, node: onnx.NodeProto, owner: onnx.FunctionProto | None) -> None:
        self.nodes += 1
        if self.nodes > limits.MAX_NODES:
            raise refused(f"has more than {limits.MAX_NODES} operators")
        # Protobuf gives bytes for what is no text.
        if not isinstance(node.op_type, str) or not isinstance(node.domain, str):
            raise refused(f"has an operator whose name is not UTF-8: {node.domain!r} {node.op_type!r}"[:200])
        called = _called(node)
        inside = None if owner is None else _name(owner.domain, owner)
        self.calls[inside][called if called in self._functions else None] += 1
        if called not in self._functions:
            self.kinds[node.op_type[:80]] += 1
        detail = _unknown(node, called in self._functions, self._opset, self._ml)
        if detail and len(self.faults) < limits.MAX_FAULTS:
            self.faults[detail] = InputFault("file.operators", detail)

    def _tensor(self, tensor: onnx.TensorProto) -> None:
        self.tensors += 1
        if self.tensors > limits.MAX_TENSORS:
            raise refused(f"has more than {limits.MAX_TENSORS} constants")
        if len(tensor.dims) > limits.MAX_RANK:
            raise refused(
                f"constant {_label(tensor)} has {len(tensor.dims)} dimensions; the limit is {limits.MAX_RANK}"
            )
        if len(tensor.string_data) > limits.MAX_STRINGS:
            raise refused(
                f"constant {_label(tensor)} has {len(tensor.string_data)} texts; the limit is {limits.MAX_STRINGS}"
            )
        self.parameters += _elements(_label(tensor), tensor.dims)


def _elements(label: str, dims: Any) -> int:
    elements = 1
    for size in dims:
        if not 0 <= size <= limits.MAX_DIM:
            raise refused(f"constant {label} has a dimension of {size}; the limit is {limits.MAX_DIM}")
        elements *= size
    if elements > limits.MAX_ELEMENTS:
        raise refused(f"constant {label} has {elements} elements; the limit is {limits.MAX_ELEMENTS}")
    return elements


def _label(message: Message) -> str:
    return repr(str(getattr(message, "name", ""))[:100])


def _name(domain: str, function: Any) -> Name:
    return ("" if domain == "ai.onnx" else domain, function.name, getattr(function, "overload", ""))


def _called(node: onnx.NodeProto) -> Name:
    domain = "" if node.domain == "ai.onnx" else node.domain
    return (domain, node.op_type, getattr(node, "overload", ""))


def _check_functions(calls: dict[Name | None, Counter[Name | None]]) -> None:
    graph = {caller: {name for name in callees if name is not None} for caller, callees in calls.items()}
    try:
        order = list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        names = " calls ".join(repr(name[1][:60]) for name in error.args[1][:5] if name)
        raise refused(f"has functions that call themselves: {names}", "file.functions") from None
    sizes: dict[Name | None, int] = {}
    for name in order:
        sizes[name] = sum(
            times * (1 if callee is None else max(1, sizes[callee])) for callee, times in calls[name].items()
        )
        if sizes[name] > limits.MAX_NODES:
            what = f"function {name[1][:60]!r}" if name else "the model"
            raise refused(
                f"{what} stands for {sizes[name]} operators with the functions that it calls; "
                f"the limit is {limits.MAX_NODES}",
                "file.functions",
            )


def _unknown(node: onnx.NodeProto, is_function: bool, opset: int, ml: int) -> str | None:
    domain, kind = node.domain, node.op_type
    if (domain, kind) in FORBIDDEN:
        return f"operator {kind[:80]} of {domain} reads other files"
    if is_function:
        return None
    if domain == RUNTIME:
        return None  # onnx does not have these; onnxruntime says at the load
    if domain not in STANDARD:
        return f"operator {kind[:80]} is of the custom domain {domain[:80]!r}; known are ai.onnx, ai.onnx.ml, {RUNTIME}"
    version, schema_domain = (ml, domain) if domain == "ai.onnx.ml" else (opset, "")
    if not _has_schema(kind, version, schema_domain):
        return f"operator {kind[:80]} is unknown in opset {version} of {schema_domain or 'ai.onnx'}"
    return None


@functools.lru_cache(1000)
def _has_schema(kind: str, version: int, domain: str) -> bool:
    try:
        onnx.defs.get_schema(kind, version, domain)
    except onnx.defs.SchemaError:
        return False
    return True
