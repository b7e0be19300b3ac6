"""Trains the digits network reproducibly: fixed split, fixed seed, one thread.

Another processor may round differently and give slightly different weights; the committed ones are the reference.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional

SEED = 20260101
HELD_OUT = 450
EPOCHS = 60
LEARNING_RATE = 3e-3
# Takes the logits, images and labels of a batch.
Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Split:
    """Images [n, 1, 8, 8] with values 0..1, and their labels [n]."""

    pictures: np.ndarray
    labels: np.ndarray
    held_out_pictures: np.ndarray
    held_out_labels: np.ndarray


@dataclass(frozen=True)
class Trained:
    tensors: dict[str, np.ndarray]
    pictures: np.ndarray
    """Held-out images, [450, 1, 8, 8], values 0..1."""
    labels: np.ndarray
    note: str


@functools.cache
def split() -> Split:
    data = load_digits()
    pictures = (data.images[:, None] / 16).astype(np.float32)
    labels = data.target.astype(np.int64)
    train_x, test_x, train_y, test_y = train_test_split(
        pictures, labels, test_size=HELD_OUT, random_state=SEED, stratify=labels
    )
    return Split(train_x, train_y, test_x, test_y)


def train(model: nn.Module) -> Trained:
    data = split()
    start(model)
    fit(model)
    with torch.no_grad():
        accuracy = right(model(torch.from_numpy(data.held_out_pictures)).numpy()) / HELD_OUT
    assert accuracy > 0.975, f"accuracy {accuracy:.4f}: the training went wrong"
    note = (
        f"scikit-learn digits, {len(data.pictures)} training pictures, seed {SEED}; "
        f"{100 * accuracy:.1f} % of {HELD_OUT} held-out pictures"
    )
    return Trained(tensors(model), data.held_out_pictures, data.held_out_labels, note)


def start(model: nn.Module) -> None:
    """Sets the seed and the initial weights, so that they and the order of images do not depend on earlier code."""
    torch.manual_seed(SEED)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()


def fit(
    model: nn.Module,
    epochs: int = EPOCHS,
    learning_rate: float = LEARNING_RATE,
    loss: Loss = lambda logits, _, labels: functional.cross_entropy(logits, labels),
    after_step: Callable[[], None] = lambda: None,
) -> None:
    """Trains from the current weights, and leaves the network in eval mode."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    x, y = torch.from_numpy(split().pictures), torch.from_numpy(split().labels)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    model.train()
    for _ in range(epochs):
        for index in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            loss(model(x[index]), x[index], y[index]).backward()
            optimizer.step()
            after_step()
        schedule.step()
    model.eval()


def right(logits: np.ndarray) -> int:
    """The number of held-out images that are classified correctly."""
    return int((logits.argmax(1) == split().held_out_labels).sum())


def tensors(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy().copy() for name, value in model.named_parameters()}
