"""Signatures of applications, and ONNX tensor types in the protocol.

Does not import Django: the inspection process uses it too.
"""

from __future__ import annotations

from typing import Any

import msgspec

from registry.errors import InputFault
from workers.protocol.datatypes import DATATYPES
from workers.protocol.specs import Signature, TensorSpec

MAX_TENSORS = 1000
MAX_RANK = 8
MAX_NAME = 200
#: size classes of an application, and the largest that one may be
MAX_SIZES, MAX_SIZE = 16, 2**24
#: a row of one tensor, its -1 dimensions counted as 1
MAX_ROW_BYTES = 64 * 2**20


def with_rows(signature: dict[str, Any], batch: bool) -> dict[str, Any]:
    """Shapes with the rows first; without batch dimension a query is one row."""
    if batch:
        return signature
    return {
        kind: [{**tensor, "shape": [-1, *tensor["shape"]]} for tensor in tensors] for kind, tensors in signature.items()
    }


def spec(signature: dict[str, Any], batch: bool, largest: int = 0) -> Signature:
    """The signature as processes exchange it; ``largest`` size of inputs' open dimensions, 0: any."""
    inputs, outputs = (
        [TensorSpec(tensor["name"], tensor["datatype"], tuple(tensor["shape"])) for tensor in tensors]
        for tensors in map(with_rows(signature, batch).get, ("inputs", "outputs"))
    )
    sized = [msgspec.structs.replace(one, most=largest) if -1 in one.shape[1:] else one for one in inputs]
    return Signature(tuple(sized), tuple(outputs), batch)


def check(signature: Any, batch: bool = True) -> list[InputFault]:
    """Return everything that is wrong with a signature; fields are relative.

    A signature is ``{"inputs": [TENSOR...], "outputs": [...]}``. A TENSOR is ``{"name", "datatype", "shape"}`` with the
    batch dimension first (-1) and other dimensions -1 (any) or 1 and more. Without a ``batch`` dimension any may be
    -1, and there may be none.
    """
    if not isinstance(signature, dict):
        return [InputFault("", "must be an object with inputs and outputs")]
    faults = [
        InputFault(str(key), "is not known; a signature has inputs and outputs")
        for key in signature
        if key not in _KINDS
    ]
    for kind in _KINDS:
        tensors = signature.get(kind)
        if not isinstance(tensors, list) or not 1 <= len(tensors) <= MAX_TENSORS:
            faults.append(InputFault(kind, f"must be a list of 1 to {MAX_TENSORS} tensors"))
            continue
        names: set[str] = set()
        for index, tensor in enumerate(tensors):
            faults += _check_tensor(tensor, f"{kind}.{index}", names, batch)
    return faults


#: what to do where tensors do not begin with the rows
_CURE = '; for models without a batch dimension, set "batch": false on the application and give their own shapes'
_KINDS = ("inputs", "outputs")
_KEYS = ("name", "datatype", "shape")


def _check_tensor(tensor: Any, where: str, names: set[str], batch: bool) -> list[InputFault]:
    if not isinstance(tensor, dict):
        return [InputFault(where, "must be an object with name, datatype and shape")]
    faults = [
        InputFault(f"{where}.{key}", "is not known; a tensor has name, datatype and shape")
        for key in tensor
        if key not in _KEYS
    ]
    name = tensor.get("name")
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        faults.append(InputFault(f"{where}.name", f"must be 1 to {MAX_NAME} printable characters"))
    elif name in names:
        faults.append(InputFault(f"{where}.name", f"{name!r} is there twice; names must differ"))
    else:
        names.add(name)
    datatype = tensor.get("datatype")
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        faults.append(InputFault(f"{where}.datatype", f"{datatype!r} is not one of {', '.join(DATATYPES)}"))
        datatype = None
    return faults + _check_shape(tensor.get("shape"), f"{where}.shape", datatype, batch)


def _check_shape(shape: Any, where: str, datatype: str | None, batch: bool) -> list[InputFault]:
    if not batch and (not isinstance(shape, list) or len(shape) > MAX_RANK):
        return [InputFault(where, f"must be a list of at most {MAX_RANK} dimensions")]
    if batch and (not isinstance(shape, list) or not 1 <= len(shape) <= MAX_RANK):
        detail = f"must be a list of 1 to {MAX_RANK} dimensions, the batch dimension (-1) first{_CURE}"
        return [InputFault(where, detail)]
    if not all(isinstance(size, int) and not isinstance(size, bool) for size in shape):
        return [InputFault(where, "must hold whole numbers: -1 (any) or 1 and more")]
    if batch and shape[0] != -1:
        return [InputFault(where, f"must begin with -1, the batch dimension; it begins with {shape[0]}{_CURE}")]
    if any(size != -1 and size < 1 for size in shape):
        return [InputFault(where, "must hold dimensions of -1 (any) or 1 and more")]
    if any(size > MAX_ROW_BYTES for size in shape):
        # Not repeated: Python writes out no number of thousands of digits.
        return [InputFault(where, f"has a dimension of more than {MAX_ROW_BYTES}, and a row at most as many bytes")]
    row = DATATYPES[datatype] if datatype else 1
    for size in shape[1:] if batch else shape:
        row *= max(size, 1)
    if row > MAX_ROW_BYTES:
        return [InputFault(where, f"a row would take {row} bytes; the limit is {MAX_ROW_BYTES} bytes")]
    return []


def _open_inputs(signature: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {tensor["name"]: tensor for tensor in signature["inputs"] if -1 in tensor["shape"][1:]}


def check_padding(padding: Any, signature: dict[str, Any], batch: bool = True) -> list[InputFault]:
    """Return everything that is wrong with ``padding``; fields are relative.

    It has values by input, for a valid signature. Only inputs with open dimensions beside the batch can be padded, with
    a number that their datatype can hold.
    """
    if not isinstance(padding, dict):
        return [InputFault("", "must be an object of numbers by input")]
    if padding and not batch:
        return [InputFault("", "says nothing: without a batch dimension queries never share a run")]
    faults = []
    able = _open_inputs(signature)
    for name, value in padding.items():
        tensor = able.get(name)
        if tensor is None:
            known = ", ".join(able) or "none"
            faults.append(
                InputFault(str(name)[:60], f"is no input with open dimensions (-1) beside the batch; {known} are")
            )
        elif tensor["datatype"] == "BYTES":
            faults.append(InputFault(name, "is of BYTES, which cannot be padded with a number"))
        else:
            faults += _check_value(name, value, tensor["datatype"])
    return faults


def _check_value(name: str, value: Any, datatype: str) -> list[InputFault]:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) > _LARGEST:
        return [InputFault(name, f"must be a number from -{_LARGEST} to {_LARGEST}")]
    low, high = _RANGES.get(datatype, (-_LARGEST, _LARGEST))
    if not low <= value <= high:
        return [InputFault(name, f"is {value}; a {datatype} is from {low} to {high}")]
    if datatype in _RANGES and datatype != "FP16" and value != int(value):
        return [InputFault(name, f"is {value}; a {datatype} is a whole number")]
    return []


#: padding values travel as doubles, which hold whole numbers up to this
_LARGEST = 2**53
_RANGES = {
    "BOOL": (0, 1),
    "FP16": (-65504, 65504),
    **{f"UINT{bits}": (0, min(2**bits - 1, _LARGEST)) for bits in (8, 16, 32, 64)},
    **{
        f"INT{bits}": (max(-(2 ** (bits - 1)), -_LARGEST), min(2 ** (bits - 1) - 1, _LARGEST))
        for bits in (8, 16, 32, 64)
    },
}


def check_sizes(sizes: Any, signature: dict[str, Any], batch: bool = True) -> list[InputFault]:
    """Return the faults of ``sizes``, ascending, of a valid signature."""
    whole = isinstance(sizes, list) and all(isinstance(size, int) and not isinstance(size, bool) for size in sizes)
    if not whole or len(sizes) > MAX_SIZES:
        return [InputFault("", f"must be a list of at most {MAX_SIZES} whole numbers")]
    if any(not 1 <= size <= MAX_SIZE for size in sizes):
        return [InputFault("", f"must be from 1 to {MAX_SIZE}")]
    if sorted(set(sizes)) != sizes:
        return [InputFault("", "must ascend, each size once")]
    signature = with_rows(signature, batch)
    if sizes and not _open_inputs(signature):
        return [InputFault("", "says nothing: no input has an open dimension (-1) beside the batch")]
    if sizes:
        for tensor in _open_inputs(signature).values():
            row = DATATYPES[tensor["datatype"]]
            for size in tensor["shape"][1:]:
                row *= sizes[-1] if size == -1 else size
            if row > MAX_ROW_BYTES:
                name = tensor["name"]
                return [
                    InputFault(
                        "", f"a row of {name} would take {row} bytes at {sizes[-1]}; the limit is {MAX_ROW_BYTES}"
                    )
                ]
    return []
