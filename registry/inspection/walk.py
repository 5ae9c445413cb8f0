"""Every operator, graph and constant of a model, by reflection over ONNX."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import onnx
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

#: fields that name data in other files
OUTSIDE = ("data_location", "external_data")


class Found(NamedTuple):
    """A message inside ``depth`` graphs and functions, of function ``owner``."""

    message: Message
    depth: int
    owner: onnx.FunctionProto | None


def messages(model: onnx.ModelProto) -> Iterator[Found]:
    """Operators, graphs, functions, and what may keep data outside; parents first."""
    waiting = [Found(model, 0, None)]
    while waiting:
        found = waiting.pop()
        message, depth, owner = found
        yield found
        if isinstance(message, onnx.GraphProto):
            depth += 1
        elif isinstance(message, onnx.FunctionProto):
            depth, owner = depth + 1, message
        for name, repeated in _parts(message.DESCRIPTOR):
            if repeated:
                waiting.extend(Found(part, depth, owner) for part in getattr(message, name))
            elif message.HasField(name):
                waiting.append(Found(getattr(message, name), depth, owner))


@cache
def _parts(descriptor: Descriptor) -> tuple[tuple[str, bool], ...]:
    return tuple(
        (field.name, _repeated(field))
        for field in descriptor.fields
        if field.message_type is not None and _leads(field.message_type)
    )


@cache
def _leads(descriptor: Descriptor) -> bool:
    seen, waiting = {descriptor.full_name}, [descriptor]
    while waiting:
        kind = waiting.pop()
        if kind.full_name == onnx.NodeProto.DESCRIPTOR.full_name or any(
            name in kind.fields_by_name for name in OUTSIDE
        ):
            return True
        inner = [field.message_type for field in kind.fields if field.message_type is not None]
        waiting += [part for part in inner if part.full_name not in seen]
        seen |= {part.full_name for part in inner}
    return False


def _repeated(field: FieldDescriptor) -> bool:
    # Protobuf 7 has no label any more, and earlier releases no is_repeated.
    known = getattr(field, "is_repeated", None)
    return field.label == FieldDescriptor.LABEL_REPEATED if known is None else known


def outside(message: Message) -> str | None:
    """The place of a message's data, if that is not in the model itself."""
    fields = message.DESCRIPTOR.fields_by_name
    entries = list(message.external_data) if "external_data" in fields else []
    elsewhere = "data_location" in fields and message.data_location != onnx.TensorProto.DEFAULT
    if not entries and not elsewhere:
        return None
    return next((entry.value for entry in entries if entry.key == "location"), "another file")
