"""V2 queries (Open Inference Protocol) and their checks, common to HTTP and gRPC.

:func:`check` turns a :class:`Request` into a :class:`V2Query` that fits an application's signature, tensors packed as
executors take them. Every mistake is a :class:`V2Error` that names the field and its limit.

Dialect: https://github.com/kserve/open-inference-protocol and Triton's extensions ``binary_tensor_data`` and
``parameters``. Optional fields that are null count as left out. Unknown parameters are ignored, as the extension has
them be clients' own; sequences, shared memory and classification are rejected: a client that asks for them would
misread the response.

The first dimension counts rows, of which a query has at least one. Where the signature has no batch dimension, a query
is one row that its shapes do not show: from here to the executor they begin with 1. Other dimensions may be 0 where the
signature leaves them open (an empty sequence). BF16 is sent as binary data only; FP16 in JSON too.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import msgspec

from workers.protocol.datatypes import DATATYPES, ITEM_BYTES
from workers.protocol.frames import Buffer, RequestShape, TensorHeader
from workers.protocol.specs import Signature, TensorSpec

from . import tensors
from .tensors import TensorError

#: characters of a request id
MAX_ID = 1024
#: queries that a memory of one spelling holds, and bytes of each without its tensors
MOST, LONGEST = 1024, 4096
#: bytes up to which a copy costs less than a view
COPY_BYTES = 4096
#: datatypes of which any bytes of the right number are valid
ANY_BYTES = frozenset(ITEM_BYTES) - {"BOOL"}


#: parameters of extensions that are not served, by the beginning of their names
_REFUSED = {
    "sequence_": "sequences (stateful models) are not supported; send each query by itself",
    "shared_memory_": "not supported; send data in the request, and take outputs from the response",
    "classification": "not supported; leave it out, and rank the whole output",
}


class V2Error(ValueError):
    """The client's mistake; the text names the field and the limit."""


class NotSendable(V2Error):
    """An output cannot be sent as JSON, though the model gave it."""


class Terms(msgspec.Struct, eq=False):
    """A query without its id and data; repeated queries share one.

    Attributes:
        shape: rows, inputs in the signature's order, and wanted outputs, as executors get them.
        outputs: (name, as binary data) of wanted outputs, in the order wanted.
        nbytes: of all inputs.
        latency_s: seconds; None unless the client asked.
        min_accuracy: percent; None unless the client asked.
        key, size: the gateway's own: what queries must share to run together, and the size class.
    """

    shape: RequestShape
    rows: int
    outputs: tuple[tuple[str, bool], ...]
    nbytes: int
    latency_s: float | None = None
    min_accuracy: float | None = None
    key: Hashable = None
    size: int = 0


class V2Query(msgspec.Struct):
    """A valid query.

    Attributes:
        parts: packed data of its inputs, in the signature's order.
        latency_s: as in its terms, or less if its call has a deadline of its own.
    """

    id: str
    terms: Terms
    parts: Sequence[Buffer]
    latency_s: float | None


class Input(msgspec.Struct):
    """One input as the client describes it. ``data``: only in JSON."""

    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] | None = None
    data: Any = None


class Output(msgspec.Struct):
    name: str
    parameters: dict[str, Any] | None = None


class Request(msgspec.Struct):
    """A query as the client describes it, nothing checked but its types."""

    inputs: list[Input]
    id: str | None = None
    parameters: dict[str, Any] | None = None
    outputs: list[Output] | None = None


#: returns the packed data of an input, of the size that its shape needs, by its place in the request, its name in
#: errors and its description. Raises TensorError or V2Error.
Take = Callable[[int, str, Input], Buffer]


def check(request: Request, signature: Signature, max_rows: int, take: Take) -> V2Query:
    """The query for ``signature`` that a request describes.

    Args:
        max_rows: most rows that one query may have.
        take: called once for each input, in the request's order.

    Raises:
        V2Error: the query is not valid.
    """
    id = request.id or ""
    if len(id) > MAX_ID:
        raise V2Error(f"id: at most {MAX_ID} characters")
    binary_default, latency_s, min_accuracy = _parameters(request.parameters or {})
    outputs = _outputs(request.outputs, signature, binary_default)
    found = _inputs(request.inputs, signature, max_rows, take)
    headers, parts = zip(*(found[spec.name] for spec in signature.inputs), strict=True)
    rows = headers[0].shape[0]
    for header in headers:
        if header.shape[0] != rows:
            raise V2Error(
                f"inputs: all must have the same number of rows (first dimension): "
                f"{headers[0].name!r} has {rows}, {header.name!r} {header.shape[0]}"
            )
    form = RequestShape(rows, headers, tuple([name for name, _ in outputs]))
    nbytes = sum([header.nbytes for header in headers])
    return V2Query(id, Terms(form, rows, outputs, nbytes, latency_s, min_accuracy), parts, latency_s)


# --- parameters -----------------------------------------------------------------------------------------------------


def _parameters(parameters: dict[str, Any]) -> tuple[bool, float | None, float | None]:
    binary, latency_s, min_accuracy = False, None, None
    for name, value in parameters.items():
        field = f"parameters.{name}"
        if value is None:
            continue
        if name == "binary_data_output":
            binary = _flag(field, value)
        elif name == "latency_ms":
            latency_s = _at_most(latency_s, _number(field, value, 0.0, None) / 1e3)
        elif name == "timeout":  # Triton clients' own parameter, in microseconds
            latency_s = _at_most(latency_s, _number(field, value, 0.0, None) / 1e6)
        elif name == "min_accuracy":
            min_accuracy = _number(field, value, None, 100.0)
        elif name == "priority":
            # Accepted and ignored: deadlines alone order the queue.
            _number(field, value, None, None)
        elif name == "triton_enable_empty_final_response":
            # Every query has one response, which is the final one.
            _flag(field, value)
        else:
            refuse(field, name, value)
    return binary, latency_s, min_accuracy


def refuse(field: str, name: str, value: Any) -> None:
    """Ignore a parameter that is the client's own.

    Raises:
        V2Error: it belongs to an extension that is not served, and its value asks for something.
    """
    for begin, why in _REFUSED.items():
        if value and name.startswith(begin):
            raise V2Error(f"{field[:200]}: {why}")


def _at_most(known: float | None, value: float) -> float:
    return value if known is None else min(known, value)


def _number(field: str, value: Any, above: float | None, up_to: float | None) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise V2Error(f"{field}: must be a number, not {quote(value)}")
    try:
        value = float(value)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value) or (above is not None and value <= above):
        over = "" if above is None else f" above {above:g}"
        raise V2Error(f"{field}: must be a finite number{over}, not {value:g}")
    if up_to is not None and not 0 <= value <= up_to:
        raise V2Error(f"{field}: must be from 0 to {up_to:g}, not {value:g}")
    return value


def _flag(field: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise V2Error(f"{field}: must be true or false, not {quote(value)}")
    return value


def _outputs(wanted: list[Output] | None, signature: Signature, binary_default: bool) -> tuple[tuple[str, bool], ...]:
    known = [spec.name for spec in signature.outputs]
    if not wanted:
        return tuple((name, binary_default) for name in known)
    chosen: dict[str, bool] = {}
    for output in wanted:
        if output.name not in known:
            raise V2Error(f"outputs: {quote(output.name)} is not an output; the application has {', '.join(known)}")
        if output.name in chosen:
            raise V2Error(f"outputs: {quote(output.name)} is named twice")
        binary = binary_default
        for name, value in (output.parameters or {}).items():
            field = f"outputs.{output.name}.parameters.{name}"
            if name != "binary_data":
                refuse(field, name, value)
            elif value is not None:
                binary = _flag(field, value)
        chosen[output.name] = binary
    return tuple(chosen.items())


# --- inputs ---------------------------------------------------------------------------------------------------------


def _inputs(
    given: list[Input], signature: Signature, max_rows: int, take: Take
) -> dict[str, tuple[TensorHeader, Buffer]]:
    specs = {spec.name: spec for spec in signature.inputs}
    found: dict[str, tuple[TensorHeader, Buffer]] = {}
    batch = signature.batch
    for place, item in enumerate(given):
        spec = specs.get(item.name)
        if spec is None:
            raise V2Error(f"inputs: {quote(item.name)} is not an input; the application takes {', '.join(specs)}")
        field = f"inputs.{item.name}"
        if item.name in found:
            raise V2Error(f"{field}: is given twice")
        _check_shape(field, item, spec, batch)
        if batch:
            # Before the data is looked at: it may be large.
            _check_rows(item.shape[0], max_rows)
        try:
            data = take(place, field, item)
            if spec.datatype == "BYTES":
                tensors.check_text(data)
        except TensorError as error:
            raise V2Error(f"{field}.data: {error}") from None
        shape = tuple(item.shape) if batch else (1, *item.shape)
        found[item.name] = (TensorHeader(spec.name, spec.datatype, shape, len(data)), data)
    missing = [name for name in specs if name not in found]
    if missing:
        raise V2Error(f"inputs: {', '.join(missing)} missing")
    return found


def _check_shape(field: str, item: Input, spec: TensorSpec, batch: bool) -> None:
    wanted = spec.shape if batch else spec.shape[1:]
    if item.datatype != spec.datatype:
        if item.datatype not in DATATYPES:
            raise V2Error(f"{field}.datatype: {quote(item.datatype)} is not a V2 datatype; must be {spec.datatype}")
        raise V2Error(f"{field}.datatype: is {item.datatype}, must be {spec.datatype}")
    if len(item.shape) != len(wanted):
        raise V2Error(f"{field}.shape: has {len(item.shape)} dimensions, must have {len(wanted)} as in {list(wanted)}")
    for place, (have, want) in enumerate(zip(item.shape, wanted, strict=True)):
        rows = batch and place == 0
        if rows and have < 1:
            raise V2Error(f"{field}.shape[0]: is {have}, must be at least 1: a query has one row or more")
        if have < 0:
            raise V2Error(f"{field}.shape[{place}]: is {have}, must be 0 or more")
        if not rows and want < 0 and 0 < spec.most < have:
            raise V2Error(
                f"{field}.shape[{place}]: is {have}, must be at most {spec.most}, the application's largest size"
            )
        if not rows and want >= 0 and have != want:
            raise V2Error(f"{field}.shape[{place}]: is {have}, must be {want} as in {list(wanted)}")


def _check_rows(rows: int, max_rows: int) -> None:
    if rows > max_rows:
        raise V2Error(f"inputs: {rows} rows (first dimension); must be 1 to {max_rows}")


def binary_size(field: str, item: Input) -> int | None:
    """The bytes that an input says it has as binary data; None: it does not say."""
    size = None
    for name, value in (item.parameters or {}).items():
        if name != "binary_data_size":
            refuse(f"{field}.parameters.{name}", name, value)
        elif value is not None:
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise V2Error(
                    f"{field}.parameters.binary_data_size: must be a whole number, 0 or more, not {quote(value)}"
                )
            size = value
    return size


def check_binary_size(field: str, size: int, data: Buffer) -> None:
    """Check the size that an input gives beside data of its own. Raises V2Error."""
    if size != len(data):
        raise V2Error(f"{field}.parameters.binary_data_size: is {size}, its data has {len(data)} bytes")


def quote(value: Any) -> str:
    """A value for an error, cut off where it is long or deep."""
    if isinstance(value, str):
        return repr(value if len(value) <= 80 else value[:80] + "…")
    return reprlib.repr(value)
