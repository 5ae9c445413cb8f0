"""InfAdapter's load forecaster: an LSTM of 25 units and one dense unit.

It is trained with Adam on the squared error. Its input is the largest second of each of the last ten minutes, as in its
authors' code. ``python -m benchmarks.minute.lstm`` trains it with PyTorch, which nothing else needs, and writes
``lstm.onnx``; ONNX Runtime runs that.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .stream import FITTED_DAYS, MINUTE_S, PAST_S, maxima, minutes_before, rates, starts

MODEL = Path(__file__).with_name("lstm.onnx")
UNITS = 25
EPOCHS = 50
BATCH = 64
LEARNING_RATE = 1e-3
#: queries/s that inputs and the output are divided by, so that training begins near one
SCALE = 100.0


def predict(before: np.ndarray, model: onnx.ModelProto | None = None) -> np.ndarray:
    """Return forecasts by ONNX Runtime.

    Args:
        before: maxima of ten minutes, shape (moments, 10).
        model: another one than the stored one.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(
        str(MODEL) if model is None else model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"maxima": before.astype(np.float32)})[0]


def as_onnx(state: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Return the trained network as an ONNX model.

    Args:
        state: weights by PyTorch's names, whose gates ONNX orders otherwise.
    """

    def reordered(name: str) -> np.ndarray:
        i, f, g, o = np.split(state[name], 4)
        return np.concatenate([i, o, f, g])[None].astype(np.float32)

    biases = np.concatenate([reordered("lstm.bias_ih_l0"), reordered("lstm.bias_hh_l0")], axis=1)
    weights = {
        "w": reordered("lstm.weight_ih_l0"),
        "r": reordered("lstm.weight_hh_l0"),
        "b": biases,
        "dense": state["dense.weight"].T.astype(np.float32),
        "offset": state["dense.bias"].astype(np.float32),
        "scale": np.float32(SCALE),
        "units": np.array([2], dtype=np.int64),
        "first": np.array([0], dtype=np.int64),
        "flat": np.array([-1], dtype=np.int64),
    }
    nodes = [
        helper.make_node("Div", ["maxima", "scale"], ["scaled"]),
        helper.make_node("Transpose", ["scaled"], ["by_minute"], perm=[1, 0]),
        helper.make_node("Unsqueeze", ["by_minute", "units"], ["sequence"]),
        helper.make_node("LSTM", ["sequence", "w", "r", "b"], ["", "last"], hidden_size=UNITS),
        helper.make_node("Squeeze", ["last", "first"], ["state"]),
        helper.make_node("MatMul", ["state", "dense"], ["product"]),
        helper.make_node("Add", ["product", "offset"], ["share"]),
        helper.make_node("Mul", ["share", "scale"], ["column"]),
        helper.make_node("Reshape", ["column", "flat"], ["forecast"]),
    ]
    graph = helper.make_graph(
        nodes,
        "infadapter_lstm",
        [helper.make_tensor_value_info("maxima", TensorProto.FLOAT, ["moments", PAST_S // MINUTE_S])],
        [helper.make_tensor_value_info("forecast", TensorProto.FLOAT, ["moments"])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model


def train() -> None:
    """Train on days 1 to 14 and write the model."""
    import torch

    torch.manual_seed(1)
    torch.set_num_threads(1)
    seconds, at = rates(), starts(1, FITTED_DAYS)
    x = torch.tensor(minutes_before(seconds, at)[:, :, None] / SCALE, dtype=torch.float32)
    y = torch.tensor(maxima(seconds, at) / SCALE, dtype=torch.float32)
    network = torch.nn.ModuleDict(
        {"lstm": torch.nn.LSTM(1, UNITS, batch_first=True), "dense": torch.nn.Linear(UNITS, 1)}
    )
    optimizer = torch.optim.Adam(network.parameters(), LEARNING_RATE)
    for epoch in range(EPOCHS):
        total = 0.0
        for batch in torch.randperm(len(at)).split(BATCH):
            last = network["lstm"](x[batch])[0][:, -1]
            loss = torch.nn.functional.mse_loss(network["dense"](last)[:, 0], y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        print(f"epoch {epoch + 1}: root mean squared error {SCALE * (total / len(at)) ** 0.5:.2f}", flush=True)
    state = {name: value.detach().numpy() for name, value in network.state_dict().items()}
    onnx.save(as_onnx(state), MODEL)
    print(
        f"{MODEL.name}: mean absolute error on what it was trained on "
        f"{np.abs(predict(minutes_before(seconds, at)) - maxima(seconds, at)).mean():.2f}"
    )


if __name__ == "__main__":
    train()
