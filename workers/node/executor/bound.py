"""Runs of small batches through buffers that stay bound to the session: onnxruntime then neither takes arrays apart nor
makes new ones, which for the smallest models is a good part of a run (measured: 8 instead of 13 us for a model of two
layers)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnxruntime as ort

from workers.protocol.specs import Signature, TensorSpec
from workers.protocol.tensors import NUMPY

from .codec import SMALL

#: bytes of a run's inputs, above which to copy them into place costs more than it saves
_INPUTS = 8 * 1024
#: numbers of rows that are kept ready
_KEPT = 32

Arrays = Mapping[str, np.ndarray]


class Bound:
    """A session's bindings, by rows. For one thread at a time, on the CPU."""

    def __init__(self, session: ort.InferenceSession, signature: Signature):
        self._session = session
        self._signature = signature
        self._bindings: dict[int, tuple[ort.IOBinding, list[tuple[str, np.ndarray]], Arrays]] = {}
        #: rows that are small enough; 0: none, as some tensor's size or type is not known beforehand
        self.most_rows = _most_rows(signature)

    def run(self, inputs: Arrays, rows: int) -> Arrays | None:
        """The outputs, to be used before the next call: each is small enough for :func:`~.codec.packed` to copy it.
        None where the model has to be run in another way: it raised, or gives other shapes than its signature says.
        ``rows``: at most :attr:`most_rows`."""
        binding = self._bindings.get(rows)
        try:
            if binding is None:
                binding = self._bind(rows)
            io, places, outputs = binding
            for name, place in places:
                place[...] = inputs[name]
            self._session.run_with_iobinding(io)
        except Exception:  # onnxruntime raises many types of its own; the other way will say what is wrong
            return None
        return outputs

    def _bind(self, rows: int) -> tuple[ort.IOBinding, list[tuple[str, np.ndarray]], Arrays]:
        io = self._session.io_binding()
        places = {spec.name: _buffer(spec, rows) for spec in self._signature.inputs}
        outputs = {spec.name: _buffer(spec, rows) for spec in self._signature.outputs}
        for name, array in places.items():
            io.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        for name, array in outputs.items():
            io.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        if len(self._bindings) >= _KEPT:
            del self._bindings[next(iter(self._bindings))]
        binding = self._bindings[rows] = io, list(places.items()), outputs
        return binding


def _buffer(spec: TensorSpec, rows: int) -> np.ndarray:
    return np.zeros((rows, *spec.shape[1:]), NUMPY[spec.datatype])


def _most_rows(signature: Signature) -> int:
    specs = (*signature.inputs, *signature.outputs)
    if any(spec.datatype not in NUMPY or min(spec.shape[1:], default=1) < 1 for spec in specs):
        return 0
    given = sum(_buffer(spec, 1).nbytes for spec in signature.inputs)
    return min(_INPUTS // given, *(SMALL // _buffer(spec, 1).nbytes for spec in signature.outputs))
