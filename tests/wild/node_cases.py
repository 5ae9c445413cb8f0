"""ONNX's own node tests as applications: other people's models, with all operators, datatypes and shapes."""

from __future__ import annotations

import functools
import json
import os
import resource
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from registry import signatures
from workers.executor.codec import DTYPES

#: V2 datatypes by ONNX's element types
_DATATYPES = {onnx.helper.np_dtype_to_tensor_dtype(dtype): name for name, dtype in DTYPES.items()} | {
    onnx.TensorProto.STRING: "BYTES"
}

#: CPU seconds and bytes that an inspection may take
LONGEST_S = 30
MEMORY_BYTES = 8 * 2**30


class NodeCase(NamedTuple):
    """One operator's model, signature and query; ``batch``: every tensor's first dimension is taken as rows."""

    name: str
    proto: onnx.ModelProto
    signature: dict[str, Any]
    batch: bool
    inputs: dict[str, np.ndarray]

    def rows(self) -> dict[str, np.ndarray]:
        """The query behind the edges: without a batch dimension it is one row."""
        return self.inputs if self.batch else {name: value[None] for name, value in self.inputs.items()}


@functools.cache
def _collected() -> list[Any]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        # Some cases overflow or divide by zero on purpose.
        warnings.simplefilter("ignore")
        return collect_testcases(None)


def cases(batch: bool) -> Iterator[NodeCase]:
    """Cases with a signature; ``batch``: with rows first where all first dimensions are alike, else as they are."""
    for case in _collected():
        made = _made(case, batch)
        if made is not None and not signatures.check(made.signature, batch):
            yield made


def _made(case: Any, batch: bool) -> NodeCase | None:
    given, _ = case.data_sets[0]
    graph = case.model.graph
    if len(given) != len(graph.input) or not all(isinstance(value, np.ndarray | np.generic) for value in given):
        return None
    values = [*graph.input, *graph.output]
    if not all(value.type.tensor_type.elem_type in _DATATYPES for value in values):
        return None
    firsts = {tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim[:1]) for value in values}
    if batch and (len(firsts) != 1 or firsts & {(), (0,)}):
        return None
    proto = case.model
    if batch:
        proto = onnx.ModelProto.FromString(case.model.SerializeToString())
        for value in (*proto.graph.input, *proto.graph.output):
            value.type.tensor_type.shape.dim[0].dim_param = "N"
    signature = {"inputs": _tensors(graph.input, batch), "outputs": _tensors(graph.output, batch)}
    inputs = {value.name: np.asarray(array) for value, array in zip(graph.input, given, strict=True)}
    return NodeCase(f"{case.name}{'_rows' if batch else ''}", proto, signature, batch, inputs)


def _tensors(values: Any, batch: bool) -> list[dict[str, Any]]:
    found = []
    for value in values:
        shape = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in value.type.tensor_type.shape.dim]
        datatype = _DATATYPES[value.type.tensor_type.elem_type]
        found.append({"name": value.name, "datatype": datatype, "shape": [-1, *shape[1:]] if batch else shape})
    return found


def saved(case: NodeCase, folder: Path) -> Path:
    path = folder / f"{case.name}.onnx"
    onnx.save(case.proto, path)
    return path


def main(folder: str, given: str, every: str) -> None:
    """Inspect one in ``every`` case, each in a process of its own.

    A verdict a line is printed. It has the name and ``batch``, and ``facts``, ``faults`` or ``signal``.

    Args:
        given: ``sample``: the case's query as rows of the owner; ``made``: made-up values.
    """
    from registry.errors import InvalidInput
    from registry.inspection import model, trial

    assert trial
    for case in [*cases(True), *cases(False)][:: int(every)]:
        path = saved(case, Path(folder))
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            if os.WIFSIGNALED(status):
                print(json.dumps({"name": case.name, "signal": signal.Signals(os.WTERMSIG(status)).name}), flush=True)
            continue
        resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_S, LONGEST_S))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        verdict: dict[str, Any] = {"name": case.name, "batch": case.batch}
        options = {"rows": case.rows(), "begin": None} if given == "sample" else {}
        try:
            verdict["facts"] = model.inspect(str(path), case.signature, batch=case.batch, **options)
        except InvalidInput as error:
            verdict["faults"] = [f"{fault.field}: {fault.detail}" for fault in error.faults]
        except MemoryError:
            verdict["faults"] = ["file: needs more memory"]
        print(json.dumps(verdict), flush=True)
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
