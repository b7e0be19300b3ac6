"""ConvNeXt: depthwise convolutions of 7 × 7, and norms and products over the channels of each pixel."""

from torch import nn
from torchvision.models.convnext import CNBlockConfig, ConvNeXt

from entry import Entry
from transformer_init import transformer_init
from zoo.resnet import classifier


def _init(name: str, shape: list[int]) -> dict:
    if name.endswith("layer_scale"):
        # Trained scales are near these. Their values at the start of training would hide the blocks.
        return {"uniform": [0.5, 1.5]}
    return transformer_init(name, shape)


def _entry(name: str, blocks: list[CNBlockConfig], size: int, num_classes: int, source: str) -> Entry:
    def build() -> nn.Module:
        return ConvNeXt(blocks, num_classes=num_classes)

    return classifier(name, "convnext", build, size, num_classes, source, _init)


CONVNEXT_SMALL = _entry(
    "convnext-small",
    [CNBlockConfig(24, 48, 2), CNBlockConfig(48, 96, 2), CNBlockConfig(96, None, 2)],
    64,
    100,
    "convnext.ConvNeXt; 6 blocks of width 24 to 96",
)
CONVNEXT_TINY = _entry(
    "convnext_tiny",
    [CNBlockConfig(96, 192, 3), CNBlockConfig(192, 384, 3), CNBlockConfig(384, 768, 9), CNBlockConfig(768, None, 3)],
    224,
    1000,
    "convnext_tiny",
)
