"""Prunes the trained digits network: single weights, or whole channels and neurons. Both are fine-tuned afterwards."""

import torch
from torch import nn

import train_digits

SPARSITY = 0.7
EPOCHS = 30
LEARNING_RATE = 1e-3


def unstructured(pruned: nn.Module, original: nn.Module) -> None:
    """Sets the smallest 70 % of all weights to 0 for good. Biases are kept, because there are few."""
    pruned.load_state_dict(original.state_dict())
    weights = [parameter for name, parameter in pruned.named_parameters() if name.endswith(".weight")]
    magnitudes = torch.cat([weight.detach().abs().flatten() for weight in weights])
    smallest = torch.zeros(len(magnitudes), dtype=torch.bool)
    # By rank, not by a threshold, so that the count is exact even if magnitudes are equal.
    smallest[magnitudes.argsort(stable=True)[: round(SPARSITY * len(magnitudes))]] = True
    masks = [part.view_as(weight) for part, weight in zip(smallest.split([w.numel() for w in weights]), weights)]

    def clear() -> None:
        with torch.no_grad():
            for weight, mask in zip(weights, masks):
                weight.masked_fill_(mask, 0)

    clear()
    _fine_tune(pruned, clear)
    zeros = sum(int((weight == 0).sum()) for weight in weights)
    assert zeros == round(SPARSITY * len(magnitudes)), f"{zeros} weights are 0"


def structured(pruned: nn.Module, original: nn.Module) -> None:
    """Copies the channels and neurons with the largest norms, as many as `pruned` has."""
    conv1 = _largest(original.conv1, pruned.conv1.out_channels)
    conv2 = _largest(original.conv2, pruned.conv2.out_channels)
    fc1 = _largest(original.fc1, pruned.fc1.out_features)
    # After Flatten, the pixels of a channel are consecutive inputs of fc1.
    pixels = torch.arange(original.fc1.in_features).view(original.conv2.out_channels, -1)
    _take(pruned.conv1, original.conv1, conv1, torch.arange(1))
    _take(pruned.conv2, original.conv2, conv2, conv1)
    _take(pruned.fc1, original.fc1, fc1, pixels[conv2].flatten())
    _take(pruned.fc2, original.fc2, torch.arange(original.fc2.out_features), fc1)
    _fine_tune(pruned)


def _largest(layer: nn.Module, count: int) -> torch.Tensor:
    """The outputs with the largest norms, in the layer's order."""
    norms = layer.weight.detach().flatten(1).norm(dim=1)
    return norms.argsort(descending=True, stable=True)[:count].sort().values


def _take(pruned: nn.Module, original: nn.Module, outputs: torch.Tensor, inputs: torch.Tensor) -> None:
    with torch.no_grad():
        pruned.weight.copy_(original.weight[outputs][:, inputs])
        pruned.bias.copy_(original.bias[outputs])


def _fine_tune(model: nn.Module, after_step=lambda: None) -> None:
    torch.manual_seed(train_digits.SEED)
    train_digits.fit(model, EPOCHS, LEARNING_RATE, after_step=after_step)
