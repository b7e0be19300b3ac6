"""U-Net: an encoder of convolutions and pools, and a decoder of transposed convolutions that sees the encoder's features.

It has the layout of Ronneberger, Fischer and Brox 2015 with padded convolutions and batch norms, as is common today.
"""

import torch
from torch import nn

from convolution_init import convolution_init
from entry import Entry, Port


def _twice(inputs: int, outputs: int) -> nn.Sequential:
    layers = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """[batch, 3, height, width] to [batch, classes, height, width]. Height and width are multiples of 16."""

    def __init__(self, width: int, classes: int):
        super().__init__()
        widths = [width << level for level in range(5)]
        self.down = nn.ModuleList(_twice(inputs, outputs) for inputs, outputs in zip([3, *widths], widths))
        pairs = list(zip(widths, widths[1:]))[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(inputs, outputs, 2, 2) for outputs, inputs in pairs)
        self.merge = nn.ModuleList(_twice(inputs, outputs) for outputs, inputs in pairs)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skipped = []
        for level, block in enumerate(self.down):
            x = block(self.pool(x) if level else x)
            skipped.append(x)
        for up, merge, skip in zip(self.up, self.merge, skipped[-2::-1]):
            x = merge(torch.cat([skip, up(x)], 1))
        return self.head(x)


def _entry(name: str, width: int, classes: int, size: int, source: str) -> Entry:
    def build() -> nn.Module:
        return UNet(width, classes)

    return Entry(
        name=name,
        family="unet",
        modality="image",
        source=f"U-Net with batch norms; {source}",
        license="MIT OR Apache-2.0",
        inputs=[Port("input", "f32", ["batch", 3, size, size])],
        outputs=[Port("logits", "f32", ["batch", classes, size, size])],
        original=build,
        exportable=build,
        init=convolution_init,
    )


UNET_SMALL = _entry("unet-small", 8, 2, 32, "5 levels of width 8 to 128")
UNET = _entry("unet", 64, 2, 256, "5 levels of width 64 to 1024")
