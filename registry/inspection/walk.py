"""Every message of a model, by reflection over ONNX."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import onnx
from google.protobuf.message import Message


class Found(NamedTuple):
    """A message inside ``depth`` graphs and functions, of function ``owner``."""

    message: Message
    depth: int
    owner: onnx.FunctionProto | None


def messages(model: onnx.ModelProto) -> Iterator[Found]:
    """Everything in a model, parents first."""
    waiting = [Found(model, 0, None)]
    while waiting:
        found = waiting.pop()
        message, depth, owner = found
        yield found
        if isinstance(message, onnx.GraphProto):
            depth += 1
        elif isinstance(message, onnx.FunctionProto):
            depth, owner = depth + 1, message
        for field, value in message.ListFields():
            if field.message_type is not None:
                waiting += (Found(part, depth, owner) for part in ([value] if isinstance(value, Message) else value))


def outside(message: Message) -> str | None:
    """The place of a message's data, if that is not in the model itself."""
    fields = message.DESCRIPTOR.fields_by_name
    entries = list(message.external_data) if "external_data" in fields else []
    elsewhere = "data_location" in fields and message.data_location != onnx.TensorProto.DEFAULT
    if not entries and not elsewhere:
        return None
    return next((entry.value for entry in entries if entry.key == "location"), "another file")
