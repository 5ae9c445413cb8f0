"""I/O binding: small batches run through buffers that stay bound to the session.

onnxruntime then neither converts nor allocates arrays, which for the smallest models is a good part of a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import onnxruntime as ort

from workers.protocol.datatypes import NUMPY
from workers.protocol.frames import ResultTensor
from workers.protocol.specs import Signature, TensorSpec

from .codec import SMALL
from .independence import Arrays, around
from .watchdog import Watchdog

#: bytes of a run's inputs, above which to copy them into place costs more than it saves
_INPUTS = 8 * 1024
#: numbers of rows that are kept ready, and choices of outputs of each
_KEPT = 64
#: seconds for the comparison with plain runs: where one takes longer, bindings would save nothing that counts
CHECK_S = 0.05
#: in buffers of outputs before that comparison, so that one that is not written shows
_UNWRITTEN = 0xA5


class Packed(NamedTuple):
    """Outputs as they go on the wire, and the seconds that the run took."""

    headers: tuple[ResultTensor, ...]
    body: list[bytes]
    run_s: float


class IOBindings:
    """A session's bindings, by rows. For one thread at a time, on the CPU.

    Args:
        most_rows: that the model may be run with; None: any number.
        watchdog: its run options are used.
    """

    def __init__(self, session: ort.InferenceSession, signature: Signature, most_rows: int | None, watchdog: Watchdog):
        self._session = session
        self._watchdog = watchdog
        self._signature = signature
        self._bindings: dict[int, _Binding] = {}
        self._possible = min(_most_rows(signature), _KEPT if most_rows is None else most_rows, _KEPT)
        #: rows up to which bindings are known to answer as plain runs do; 0: none
        self.most_rows = 0

    def check(self, sample: Callable[[int], Arrays], run: Callable[[Arrays, int], Sequence[np.ndarray]]) -> str:
        """Compare bindings with plain runs, and use those that agree.

        One row is compared, two rows and so on. onnxruntime leaves some bound outputs as they were, such as those that
        are inputs as well. A difference takes all bindings away.

        Args:
            sample: makes inputs of so many rows.
            run: runs them without bindings, and gives the outputs in the order of the signature.

        Returns:
            the difference; empty where there is none.
        """
        until = time.perf_counter() + CHECK_S
        names = tuple(spec.name for spec in self._signature.outputs)
        for rows in range(1, self._possible + 1):
            inputs = sample(rows)
            expected = run(inputs, rows)
            binding = self._bind(rows)
            for array in binding.want(names)[1]:
                array.reshape(-1).view(np.uint8)[:] = _UNWRITTEN
            body = b"".join(np.ascontiguousarray(inputs[spec.name]).tobytes() for spec in self._signature.inputs)
            found = self.run(memoryview(body), rows, names)
            if found is None:
                break
            for name, plain, bound in zip(names, expected, binding.want(names)[1], strict=True):
                # Any bits but 0 are true as they are compared, and the unwritten ones would be.
                difference = around(plain, bound) or (
                    "its bits differ" if plain.dtype == np.bool_ and plain.tobytes() != bound.tobytes() else ""
                )
                if difference:
                    self.most_rows = 0
                    return f"{name}: {difference}"
            self.most_rows = rows
            if time.perf_counter() > until:
                break
        return ""

    def run(self, inputs: memoryview, rows: int, outputs: tuple[str, ...]) -> Packed | None:
        """Run a batch; None: run it otherwise, the model raised or broke its signature.

        Args:
            inputs: one behind the other in the signature's order.
            rows: at most :attr:`most_rows`.
            outputs: names wanted.
        """
        started = time.perf_counter()
        try:
            binding = self._bindings.get(rows) or self._bind(rows)
            start = 0
            for place in binding.places:
                end = start + place.nbytes
                place[:] = inputs[start:end]
                start = end
            self._session.run_with_iobinding(binding.io, self._watchdog.options)
        except Exception:  # onnxruntime raises many types of its own; a run on arrays will report the error
            return None
        headers, arrays = binding.wanted.get(outputs) or binding.want(outputs)
        return Packed(headers, [array.tobytes() for array in arrays], time.perf_counter() - started)

    def _bind(self, rows: int) -> _Binding:
        if len(self._bindings) >= _KEPT:
            del self._bindings[next(iter(self._bindings))]
        binding = self._bindings[rows] = _Binding(self._session.io_binding(), self._signature, rows)
        return binding


class _Binding:
    """Buffers of a fixed number of rows.

    Attributes:
        places: bytes of inputs.
        wanted: headers and arrays by outputs.
    """

    __slots__ = ("_outputs", "io", "places", "wanted")

    def __init__(self, io: ort.IOBinding, signature: Signature, rows: int):
        self.io = io
        # A model without a batch dimension does not see the rows.
        skipped = 0 if signature.batch else 1
        self.places: list[memoryview] = []
        for spec in signature.inputs:
            array = _buffer(spec, rows)
            io.bind_input(spec.name, "cpu", 0, array.dtype, array.shape[skipped:], array.ctypes.data)
            self.places.append(memoryview(array.reshape(-1).view(np.uint8)))
        self._outputs: dict[str, tuple[ResultTensor, np.ndarray]] = {}
        for spec in signature.outputs:
            array = _buffer(spec, rows)
            io.bind_output(spec.name, "cpu", 0, array.dtype, array.shape[skipped:], array.ctypes.data)
            self._outputs[spec.name] = ResultTensor(spec.name, spec.datatype, array.shape, array.nbytes), array
        self.wanted: dict[tuple[str, ...], tuple[tuple[ResultTensor, ...], list[np.ndarray]]] = {}

    def want(self, names: tuple[str, ...]) -> tuple[tuple[ResultTensor, ...], list[np.ndarray]]:
        if len(self.wanted) >= _KEPT:
            del self.wanted[next(iter(self.wanted))]
        tensors = [self._outputs[name] for name in names]
        wanted = self.wanted[names] = tuple(tensor for tensor, _ in tensors), [array for _, array in tensors]
        return wanted


def _buffer(spec: TensorSpec, rows: int) -> np.ndarray:
    return np.zeros((rows, *spec.shape[1:]), NUMPY[spec.datatype])


def _most_rows(signature: Signature) -> int:
    specs = (*signature.inputs, *signature.outputs)
    if any(spec.datatype not in NUMPY or min(spec.shape[1:], default=1) < 1 for spec in specs):
        return 0
    given = sum(_buffer(spec, 1).nbytes for spec in signature.inputs)
    return min(_INPUTS // given, *(SMALL // _buffer(spec, 1).nbytes for spec in signature.outputs))
