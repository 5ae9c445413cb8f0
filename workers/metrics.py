"""Metrics that turn a validation set's outputs into an accuracy in percent.

Higher is better. Pure numpy. Each accumulates over pieces of a validation set, so that measuring can go in small steps.
Scores of shape [rows, classes] are taken from the first output of that form; predicted labels from the first output
with one value a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

Outputs = Mapping[str, np.ndarray]


class MetricError(ValueError):
    """Outputs and labels do not fit the metric; the message says what it needs."""


class _Hits:
    def __init__(self) -> None:
        self._right = 0
        self._rows = 0

    def _take(self, right: np.ndarray) -> None:
        self._right += int(np.count_nonzero(right))
        self._rows += len(right)

    def percent(self) -> float:
        if self._rows == 0:
            raise MetricError("labels: at least one row is needed")
        return 100.0 * self._right / self._rows


class TopK(_Hits):
    """A hit is a label among the ``k`` highest scores, or for k = 1 the label output."""

    def __init__(self, k: int):
        super().__init__()
        self._k = k

    def add(self, outputs: Outputs, labels: np.ndarray) -> None:
        truth = _column("labels", labels)
        scores = next((a for a in outputs.values() if a.ndim == 2 and a.dtype.kind == "f" and a.shape[1] > 1), None)
        if scores is None:
            if self._k > 1:
                raise MetricError(f"top{self._k}: needs an output of scores [rows, classes], got {_shapes(outputs)}")
            predicted = next((a for a in outputs.values() if a.dtype.kind in "iuO" and _one_a_row(a)), None)
            if predicted is None:
                raise MetricError(
                    f"top1: needs an output of scores [rows, classes] or of labels [rows], got {_shapes(outputs)}"
                )
            _same_rows(predicted, truth)
            if (predicted.dtype == object) != (truth.dtype.kind in "OUS"):
                raise MetricError(f"labels: {truth.dtype} cannot be compared with predicted {predicted.dtype}")
            self._take(predicted.reshape(-1) == (truth.astype(str) if predicted.dtype == object else truth))
            return
        _same_rows(scores, truth)
        classes = scores.shape[1]
        if self._k > 1 and classes < self._k:
            raise MetricError(f"top{self._k}: needs at least {self._k} classes, the output has {classes}")
        truth = _integers(truth, classes)
        if self._k == 1:
            self._take(scores.argmax(axis=1) == truth)
        else:
            best = np.argpartition(scores, classes - self._k, axis=1)[:, -self._k :]
            self._take((best == truth[:, None]).any(axis=1))


class Binary(_Hits):
    """One score a row and labels 0 or 1: a score of ``threshold`` or more predicts 1."""

    def __init__(self, threshold: float):
        super().__init__()
        self._threshold = threshold

    def add(self, outputs: Outputs, labels: np.ndarray) -> None:
        scores = next((a for a in outputs.values() if a.dtype.kind == "f" and _one_a_row(a)), None)
        if scores is None:
            raise MetricError(f"binary: needs an output of one score a row, got {_shapes(outputs)}")
        truth = _integers(_column("labels", labels), 2)
        _same_rows(scores, truth)
        self._take((scores.reshape(-1) >= self._threshold) == (truth == 1))


class R2:
    """Coefficient of determination in percent, mean over output columns.

    It is 0 where it is no better than the mean: a negative accuracy would have no meaning to a plan. Sums are kept
    about the first row against cancellation.
    """

    def __init__(self) -> None:
        self._rows = 0

    def add(self, outputs: Outputs, labels: np.ndarray) -> None:
        values = next((a for a in outputs.values() if a.dtype.kind == "f"), None)
        if values is None:
            raise MetricError(f"r2: needs an output of numbers, got {_shapes(outputs)}")
        if labels.dtype.kind not in "fiub":
            raise MetricError(f"labels: must be numbers for r2, not {labels.dtype}")
        _same_rows(values, labels)
        if len(labels) == 0:
            return
        given, truth = (a.reshape(len(a), -1).astype(np.float64) for a in (values, labels))
        if given.shape != truth.shape:
            raise MetricError(f"r2: outputs {given.shape[1]} values a row, labels {truth.shape[1]}")
        if not np.isfinite(truth).all():
            raise MetricError("labels: must be finite for r2")
        if self._rows == 0:
            self._origin = truth[0].copy()
            self._sum, self._squares, self._residual = (np.zeros(truth.shape[1]) for _ in range(3))
        centred = truth - self._origin
        self._rows += len(truth)
        self._sum += centred.sum(axis=0)
        self._squares += (centred**2).sum(axis=0)
        self._residual += ((truth - given) ** 2).sum(axis=0)

    def percent(self) -> float:
        if self._rows < 2:
            raise MetricError("labels: r2 needs at least two rows")
        total = self._squares - self._sum**2 / self._rows
        if (total <= 0).any():
            raise MetricError("labels: r2 needs labels that are not all equal")
        value = 100.0 * float(np.mean(1.0 - self._residual / total))
        return max(0.0, value) if np.isfinite(value) else 0.0


#: each adds rows of outputs (in the signature's order) and labels, and has the percent of all; both raise MetricError
Metric = TopK | Binary | R2
_METRICS: dict[str, Callable[[], Metric]] = {
    "top1": lambda: TopK(1),
    "top5": lambda: TopK(5),
    "binary": lambda: Binary(0.5),
    "binary_logit": lambda: Binary(0.0),
    "r2": R2,
}


def names() -> tuple[str, ...]:
    """``top1``, ``top5`` of class scores, ``binary``, ``binary_logit``, ``r2``."""
    return tuple(_METRICS)


def create(name: str) -> Metric:
    if name not in _METRICS:
        raise MetricError(f"metric {name!r}: must be one of {', '.join(_METRICS)}")
    return _METRICS[name]()


def _shapes(outputs: Outputs) -> str:
    return ", ".join(f"{name} {array.dtype} {list(array.shape)}" for name, array in outputs.items()) or "none"


def _one_a_row(array: np.ndarray) -> bool:
    return array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1)


def _same_rows(values: np.ndarray, labels: Sequence) -> None:
    if len(values) != len(labels):
        raise MetricError(f"labels: {len(labels)} rows, the outputs have {len(values)}")


def _column(name: str, array: np.ndarray) -> np.ndarray:
    if not _one_a_row(array):
        raise MetricError(f"{name}: must have one value a row, not shape {list(array.shape)}")
    return array.reshape(-1)


def _integers(labels: np.ndarray, classes: int) -> np.ndarray:
    if labels.dtype.kind == "f" and np.isfinite(labels).all() and (labels == np.floor(labels)).all():
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "iub":
        raise MetricError(f"labels: must be whole numbers, not {labels.dtype}")
    labels = labels.astype(np.int64)
    if len(labels) and (labels.min() < 0 or labels.max() >= classes):
        raise MetricError(f"labels: must be from 0 to {classes - 1}, found {labels.min()} to {labels.max()}")
    return labels
