"""Bounded bodies: JSON in memory, uploads hashed into the store's disk."""

from __future__ import annotations

from types import NoneType
from typing import Any

import msgspec
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

from registry.errors import UploadTooLarge
from registry.storage import CHUNK, Incoming

MAX_JSON_BYTES = 2**20
#: objects and lists within each other: far more than a tensor has dimensions, far fewer than Python's stack has frames
MAX_DEPTH = 32
#: what a multipart body may have beside its file
MULTIPART_SLACK = 2**16
#: what JSON calls what is no object
JSON_TYPES = {
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    NoneType: "null",
}


class BoundedJSONParser(JSONParser):
    """JSON of at most :data:`MAX_JSON_BYTES` and :data:`MAX_DEPTH` levels."""

    def parse(self, stream, media_type=None, parser_context=None):
        text = stream.read(MAX_JSON_BYTES + 1)
        if len(text) > MAX_JSON_BYTES:
            raise UploadTooLarge("body", MAX_JSON_BYTES)
        try:
            data = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            # NaN, 1e999 and half of a surrogate pair, which no database holds, are among these.
            raise ParseError(f"JSON parse error - {error}") from None
        except RecursionError:
            raise ParseError("JSON parse error - nested too deeply") from None
        if not isinstance(data, dict):
            raise ParseError(f"The body must be a JSON object, not {JSON_TYPES[type(data)]}.")
        _check_depth(data)
        return data


def _check_depth(data: dict[str, Any]) -> None:
    """Reject levels beyond the limit. Raises ParseError."""
    level: list[Any] = [data]
    for _ in range(MAX_DEPTH):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [each for some in inner for each in some if isinstance(each, dict | list)]
        if not level:
            return
    raise ParseError(f"JSON parse error - nested deeper than {MAX_DEPTH} levels")


class StoreUploadHandler(FileUploadHandler):
    """Streams files into the store; all together have at most ``limit`` bytes.

    Raises UploadTooLarge, at once by the announced length.
    """

    chunk_size = CHUNK

    def __init__(self, limit: int):
        super().__init__()
        self._limit = limit
        self._taken = 0
        self.file: StoredUpload | None = None
        self._files: list[StoredUpload] = []

    def handle_raw_input(self, input_data, META, content_length, boundary, encoding=None):
        if content_length > self._limit + MULTIPART_SLACK:
            raise UploadTooLarge("file", self._limit, "NEREUS_MAX_UPLOAD_MB")

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        incoming = Incoming(self._limit - self._taken)
        self.file = StoredUpload(incoming, self.file_name or "", self.content_type)
        self._files.append(self.file)

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        try:
            self.file.incoming.write(raw_data)
        except UploadTooLarge:
            raise UploadTooLarge("file", self._limit, "NEREUS_MAX_UPLOAD_MB") from None
        self._taken += len(raw_data)

    def file_complete(self, file_size: int) -> StoredUpload:
        self.file.incoming.finish()
        self.file.size = file_size
        return self.file

    def close(self) -> None:
        """Remove whatever was not placed: Django forgets a file after an error."""
        for file in self._files:
            file.close()


class StoredUpload(UploadedFile):
    """An upload on the store's disk; closing removes it unless it was placed."""

    def __init__(self, incoming: Incoming, name: str, content_type: str | None):
        super().__init__(file=None, name=name or "upload", content_type=content_type, size=0)
        self.incoming = incoming

    def close(self) -> None:
        self.incoming.discard()

    @property
    def closed(self) -> bool:
        return not self.incoming.path.exists()

    def __bool__(self) -> bool:
        return True
