"""torchvision's resnet50, full size.

Two parameter-free modules are rewritten, because not every backend has a padded MaxPool or GlobalAveragePool.
"""

import math
from collections.abc import Callable

import torch
import torchvision
from torch import nn
from torch.nn import functional

from entry import Entry, Port


class StemPool(nn.Module):
    """MaxPool2d(kernel 3, stride 2, padding 1), without padding the pool.

    A row reflected above the top is the image's second row, which the first window already contains, so it cannot
    change a maximum; the same holds on the other sides. If sizes are even, no window reaches the padding below and on
    the right.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.max_pool2d(functional.pad(x, (1, 1, 1, 1), mode="reflect"), 3, 2)


class SpatialMean(nn.Module):
    """AdaptiveAvgPool2d(1) as a mean over height and width."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3), keepdim=True)


def with_means(model: nn.Module) -> nn.Module:
    """The model with a `SpatialMean` for each AdaptiveAvgPool2d of size 1."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.AdaptiveAvgPool2d):
                assert child.output_size in (1, (1, 1)), child.output_size
                setattr(module, name, SpatialMean())
    return model


def classifier(
    name: str, family: str, build: Callable[[], nn.Module], size: int, classes: int, source: str, init: Callable
) -> Entry:
    """The entry of a torchvision network that classifies images."""
    return Entry(
        name=name,
        family=family,
        modality="image",
        source=f"torchvision 0.26.0, torchvision.models.{source}",
        license="BSD-3-Clause",
        inputs=[Port("input", "f32", ["batch", 3, size, size])],
        outputs=[Port("logits", "f32", ["batch", classes])],
        original=build,
        exportable=lambda: with_means(build()),
        init=init,
    )


def _original() -> nn.Module:
    return torchvision.models.resnet50(weights=None)


def _exportable() -> nn.Module:
    model = _original()
    model.maxpool = StemPool()
    return with_means(model)


def resnet_init(name: str, shape: list[int]) -> dict:
    """Keeps the root mean square of every stage near 0.7, and the logits dependent on the image.

    With He initialisation and biases of 0, random images give almost the same logits, because the means of rectified
    features add up over the depth. Negative biases in the stem and at the head of each stage make features sparse,
    which keeps images apart; the convolutions after a rectification are larger to compensate. Running statistics differ
    from 0 and 1, so that a backend that ignores them gives wrong results.
    """
    if len(shape) == 4:
        gain = 1 if name == "conv1.weight" else 3 if name.endswith(("conv2.weight", "conv3.weight")) else 2
        return {"normal": round(math.sqrt(gain / math.prod(shape[1:])), 6)}
    if name == "fc.weight":
        return {"normal": round(math.sqrt(1 / shape[1]), 6)}
    if name.endswith("running_mean") or name == "fc.bias" or name.endswith("bn3.bias"):
        return {"normal": 0.1}
    if name.endswith("running_var"):
        return {"uniform": [0.5, 1.5]}
    if name.endswith("bn3.weight"):
        return {"uniform": [0.175, 0.325]}
    if name.endswith("downsample.1.weight"):
        return {"uniform": [1.1, 1.7]}
    if name.endswith("bias"):
        return {"uniform": [-1.4, -1.0] if name == "bn1.bias" or "downsample" in name else [-0.6, -0.2]}
    return {"uniform": [0.8, 1.2]}


RESNET50 = Entry(
    name="resnet50",
    family="resnet",
    modality="image",
    source="torchvision 0.26.0, torchvision.models.resnet50; configuration of microsoft/resnet-50",
    license="BSD-3-Clause",
    inputs=[Port("input", "f32", ["batch", 3, 224, 224], open_sizes={2: "height", 3: "width"})],
    outputs=[Port("logits", "f32", ["batch", 1000])],
    original=_original,
    exportable=_exportable,
    init=resnet_init,
    quantized=True,
)
