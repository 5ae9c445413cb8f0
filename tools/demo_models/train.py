"""Train the demo's variants and write everything under ``appliance/demo/models``.

The results are committed. Needs PyTorch and scikit-learn, which nothing needs at run time. In an environment of its
own::

    python3 -m venv /tmp/train && /tmp/train/bin/pip install torch==2.13.0 scikit-learn onnx onnxruntime
    /tmp/train/bin/python -m tools.demo_models.train [digits] [meters]

One core, about a quarter of an hour, seeds fixed. The data are scikit-learn's bundled handwritten digits (UCI "Optical
Recognition of Handwritten Digits", 1797 images of 8x8): their first half trains; images of the second half, whose
writers the nets never saw, are held out. ``digits`` reads one of them, ``meters`` a two-digit number made of two.

Variants in order of cost: one layer of large kernels; two layers; then committees of four-layer nets trained on warped
images. Each net sees the image under several shifts, and all votes are averaged. Accuracies in the manifest are
onnxruntime's on the written files.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from .graph import CLASSES, Layer, TrainedNet, digit_reader, meter_reader

MODELS = Path(__file__).parents[2] / "appliance/demo/models"
TRAIN_ROWS = 898
HELD_OUT = 400


def shifts(count: int) -> list[tuple[int, int]]:
    """The ``count`` smallest shifts, in pixels of the enlarged image; the first is none."""
    reach = range(-4, 5)
    return sorted(((dy, dx) for dy in reach for dx in reach), key=lambda s: (s[0] ** 2 + s[1] ** 2, s))[:count]


@dataclass(frozen=True)
class Recipe:
    """A variant: how many nets of a kind vote, and under how many shifts each sees the image."""

    name: str
    kind: str
    members: int
    views: int


APPLICATIONS = {
    "digits": {
        "description": "Reads one handwritten digit.",
        "slo_ms": 500.0,
        "reader": digit_reader,
        "seed": 100,
        "recipes": [
            Recipe("wide", "wide", 1, 6),
            Recipe("pair", "pair", 1, 29),
            Recipe("quartet", "deep", 4, 21),
            Recipe("sextet", "deep", 6, 33),
        ],
    },
    "meters": {
        "description": "Reads a two-digit meter of handwritten digits.",
        "slo_ms": 500.0,
        "reader": meter_reader,
        "seed": 200,
        "recipes": [
            Recipe("wide", "wide", 1, 3),
            Recipe("pair", "pair", 1, 15),
            Recipe("trio", "deep", 3, 13),
            Recipe("quintet", "deep", 5, 24),
        ],
    },
}


@dataclass(frozen=True)
class NetKind:
    """A kind of net; ``side``: of the enlarged image, pixels."""

    build: Callable[[], nn.Sequential]
    side: int
    epochs: int
    augment: bool


def enlarge(images: torch.Tensor, side: int) -> torch.Tensor:
    return functional.interpolate(images, size=(side, side), mode="bilinear", align_corners=False)


def warp(images: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Rotate, scale, shear and shift by at most about 14 degrees, 15%, 0.2 and an eighth of the image."""
    count = len(images)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=random) - 0.5

    angle, scale, shear = 0.5 * uniform(count), 1 + 0.3 * uniform(count), 0.4 * uniform(count)
    matrix = torch.zeros(count, 2, 3)
    matrix[:, 0, 0] = angle.cos() * scale
    matrix[:, 0, 1] = -angle.sin() * scale + shear
    matrix[:, 1, 0] = angle.sin() * scale
    matrix[:, 1, 1] = angle.cos() * scale
    matrix[:, :, 2] = 0.5 * uniform(count, 2)
    grid = functional.affine_grid(matrix, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def stacked(*layers: tuple[int, int, bool]) -> nn.Sequential:
    """Convolutions (channels, kernel, whether the image is halved), average pooling to 4x4 and a dense layer."""
    modules: list[nn.Module] = []
    before = 1
    for channels, kernel, halve in layers:
        modules += [nn.Conv2d(before, channels, kernel, padding=kernel // 2), nn.ReLU()]
        if halve:
            modules.append(nn.MaxPool2d(2))
        before = channels
    return nn.Sequential(
        *modules, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Dropout(0.3), nn.Linear(before * 16, CLASSES)
    )


KINDS = {
    "wide": NetKind(lambda: stacked((96, 13, False)), side=48, epochs=12, augment=False),
    "pair": NetKind(lambda: stacked((32, 5, True), (64, 5, False)), side=32, epochs=25, augment=True),
    "deep": NetKind(
        lambda: stacked((24, 3, False), (24, 3, True), (48, 3, False), (48, 3, False)), side=24, epochs=30, augment=True
    ),
}


def fit(kind: NetKind, images: torch.Tensor, labels: torch.Tensor, seed: int) -> TrainedNet:
    """Train a net on images [n, 1, 8, 8] and return its weights."""
    torch.manual_seed(seed)
    net = kind.build()
    random = torch.Generator().manual_seed(seed)
    rows, batch = len(images), 32
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=0.01)
    steps = kind.epochs * -(-rows // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    net.train()
    for _ in range(kind.epochs):
        for index in torch.randperm(rows, generator=random).split(batch):
            large = enlarge(images[index], kind.side)
            loss = functional.cross_entropy(net(warp(large, random) if kind.augment else large), labels[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    modules = list(net)
    layers = []
    for place, module in enumerate(modules):
        if isinstance(module, nn.Conv2d):
            pool = 2 if isinstance(modules[place + 2], nn.MaxPool2d) else 1
            layers.append(Layer(module.weight.detach().numpy(), module.bias.detach().numpy(), pool))
    dense = modules[-1]
    return TrainedNet(kind.side, tuple(layers), dense.weight.detach().numpy(), dense.bias.detach().numpy())


def held_out(name: str, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Validation rows and their labels; for ``meters``, pairs of images side by side (fixed shuffle)."""
    if name == "digits":
        return images[::2][:HELD_OUT], labels[::2][:HELD_OUT]
    order = np.random.default_rng(0).permutation(len(images))
    left, right = order[:HELD_OUT], order[HELD_OUT : 2 * HELD_OUT]
    return np.concatenate([images[left], images[right]], axis=3), labels[left] * 10 + labels[right]


def wrong_rows(path: Path, images: np.ndarray, labels: np.ndarray) -> list[int]:
    """Rows that the file, run by onnxruntime on one thread, gets wrong."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    scores = np.concatenate([session.run(None, {"image": images[i : i + 20]})[0] for i in range(0, len(images), 20)])
    return [int(row) for row in np.flatnonzero(scores.argmax(1) != labels)]


def train_application(name: str, images: np.ndarray, labels: np.ndarray, log) -> dict:
    """Train, write and measure one application's variants; returns its part of the manifest."""
    setup = APPLICATIONS[name]
    folder = MODELS / name
    folder.mkdir(parents=True, exist_ok=True)
    rows, truth = held_out(name, images[TRAIN_ROWS:], labels[TRAIN_ROWS:])
    rows = np.ascontiguousarray(rows, np.float32)
    np.savez_compressed(folder / "validation.npz", image=rows, labels=truth.astype(np.int64))
    train_images = torch.from_numpy(images[:TRAIN_ROWS])
    train_labels = torch.from_numpy(labels[:TRAIN_ROWS])
    trained: dict[str, list[TrainedNet]] = {kind: [] for kind in KINDS}
    variants = []
    for recipe in setup["recipes"]:
        begun = time.monotonic()
        members = trained[recipe.kind]
        while len(members) < recipe.members:
            members.append(fit(KINDS[recipe.kind], train_images, train_labels, setup["seed"] + len(members)))
        path = folder / f"{recipe.name}.onnx"
        onnx.save(setup["reader"](members[: recipe.members], shifts(recipe.views)), str(path))
        wrong = wrong_rows(path, rows, truth)
        percent = 100 * (1 - len(wrong) / len(truth))
        log(f"{name}/{recipe.name}: {percent:.2f}% ({time.monotonic() - begun:.0f} s, {path.stat().st_size} bytes)")
        variants.append(
            {"name": recipe.name, "file": f"{name}/{recipe.name}.onnx", "accuracy": round(percent, 4), "wrong": wrong}
        )
    classes = CLASSES if name == "digits" else CLASSES**2
    return {
        "name": name,
        "description": setup["description"],
        "slo_ms": setup["slo_ms"],
        "signature": {
            "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, *rows.shape[1:]]}],
            "outputs": [{"name": "scores", "datatype": "FP32", "shape": [-1, classes]}],
        },
        "validation_set": f"{name}/validation.npz",
        "metric": "top1",
        "variants": variants,
    }


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    parts = {name: train_application(name, images, labels, print) for name in names}
    path = MODELS / "manifest.json"
    known = {a["name"]: a for a in json.loads(path.read_text())["applications"]} if path.exists() else {}
    applications = [(known | parts)[name] for name in APPLICATIONS if name in known | parts]
    path.write_text(json.dumps({"applications": applications}, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:] or list(APPLICATIONS))
