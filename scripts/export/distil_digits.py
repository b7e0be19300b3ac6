"""Distils the trained digits network into a smaller one (Hinton, Vinyals, Dean 2015, section 2)."""

import torch
from torch import nn
from torch.nn import functional

import train_digits

EPOCHS = 200
TEMPERATURE = 4.0
# The weight of the soft outputs in the loss; the labels have the rest.
SOFT = 0.7


def distil(student: nn.Module, original: nn.Module) -> None:
    def loss(logits: torch.Tensor, pictures: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            soft = functional.log_softmax(original(pictures) / TEMPERATURE, dim=1)
        own = functional.log_softmax(logits / TEMPERATURE, dim=1)
        distance = functional.kl_div(own, soft, reduction="batchmean", log_target=True)
        # The temperature makes the gradients of the soft part smaller by its square.
        return SOFT * TEMPERATURE**2 * distance + (1 - SOFT) * functional.cross_entropy(logits, labels)

    train_digits.start(student)
    train_digits.fit(student, EPOCHS, loss=loss)
