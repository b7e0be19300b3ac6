"""Trains the digits network, the same way every time: fixed split, fixed seed, one thread.

Another processor may round differently and give slightly different weights; the committed ones are the reference.
"""

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


@dataclass(frozen=True)
class Trained:
    tensors: dict[str, np.ndarray]
    pictures: np.ndarray
    """Held-out pictures, [450, 1, 8, 8], values 0..1."""
    labels: np.ndarray
    note: str


def train(model: nn.Module) -> Trained:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    data = load_digits()
    pictures = (data.images[:, None] / 16).astype(np.float32)
    labels = data.target.astype(np.int64)
    train_x, test_x, train_y, test_y = train_test_split(
        pictures, labels, test_size=HELD_OUT, random_state=SEED, stratify=labels
    )
    torch.manual_seed(SEED)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    x, y = torch.from_numpy(train_x), torch.from_numpy(train_y)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    model.train()
    for _ in range(EPOCHS):
        for index in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            functional.cross_entropy(model(x[index]), y[index]).backward()
            optimizer.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(torch.from_numpy(test_x)).argmax(1).numpy() == test_y).mean()
    assert accuracy > 0.975, f"accuracy {accuracy:.4f}: the training went wrong"
    note = (
        f"scikit-learn digits, {len(train_x)} training pictures, seed {SEED}; "
        f"{100 * accuracy:.1f} % of {HELD_OUT} held-out pictures"
    )
    tensors = {name: value.detach().numpy().copy() for name, value in model.named_parameters()}
    return Trained(tensors, test_x, test_y, note)
