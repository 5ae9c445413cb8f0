"""Files that are often uploaded in place of an ONNX model, by first bytes."""

from __future__ import annotations

import re

#: of a file, that tell its format
HEAD_BYTES = 4096

_EXPORT = "export the model to ONNX"
#: first bytes, kind of file and remedy, the special before the general
_KINDS = [
    (rb"version https://git-lfs", "a Git LFS pointer", 'fetch the file itself ("git lfs pull")'),
    (rb"\s*(?i:<!doctype html|<html)", "an HTML page", "download the file itself (its raw or download link)"),
    (rb"\x1f\x8b", "a gzip archive", "unpack it and upload the .onnx file inside"),
    (rb"PK\x03\x04.*data\.pkl", "a PyTorch checkpoint", f"{_EXPORT} (torch.onnx.export)"),
    (rb"PK[\x03\x05]", "a zip archive", "unpack it and upload the .onnx file inside"),
    (rb".{257}ustar", "a tar archive", "unpack it and upload the .onnx file inside"),
    (rb".{4}TFL3", "a TensorFlow Lite model", f"{_EXPORT} (tf2onnx with --tflite)"),
    (rb"\x89HDF", "an HDF5 file, as Keras writes", f"{_EXPORT} (model.export(format='onnx') in Keras)"),
    (rb"\x80[\x02-\x05]", "a Python pickle", f"{_EXPORT} (torch.onnx.export, or skl2onnx.to_onnx)"),
    (rb".{8}\{\s*\"", "a safetensors file, weights without a graph", f"{_EXPORT} (torch.onnx.export)"),
    (rb"\x08\x01\x12[\x80-\xff]*[\x00-\x7f]\n", "a TensorFlow SavedModel", f"{_EXPORT} (tf2onnx with --saved-model)"),
    (rb"\s*[\[{]\s*[\"\[{\]}\d]", "JSON", "upload the .onnx file itself"),
]


def stranger(path: str) -> str | None:
    """Return what a file is in place of an ONNX model, and what to do."""
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
    for magic, kind, cure in _KINDS:
        if re.match(magic, head, re.DOTALL):
            return f"is not an ONNX model but {kind}: {cure}"
    return None
