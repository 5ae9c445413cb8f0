"""What of a query's JSON is looked at to know it again: parts of it, as they are spelled."""

from __future__ import annotations

import msgspec

_EMPTY = msgspec.Raw(b"")
MISTAKES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Named(msgspec.Struct):
    """A request of whose JSON nothing is read but the id, as it is spelled."""

    id: msgspec.Raw = _EMPTY


class Spelled(msgspec.Struct):
    """What a request's terms come from, as it is spelled."""

    inputs: msgspec.Raw
    parameters: msgspec.Raw = _EMPTY
    outputs: msgspec.Raw = _EMPTY


named = msgspec.json.Decoder(Named).decode
spelled = msgspec.json.Decoder(Spelled).decode
string = msgspec.json.Decoder(str).decode
