"""MobileNetV3: depthwise convolutions, gates of channels (squeeze and excitation), and hard activations."""

from torch import nn
from torchvision.models.mobilenetv3 import MobileNetV3, _mobilenet_v3_conf

from convolution_init import convolution_init
from entry import Entry
from transformer_init import fan_in
from zoo.resnet import classifier


def _init(name: str, shape: list[int]) -> dict:
    if ".fc2." in name:
        # Larger gates would saturate and amplify rounding errors.
        return {"normal": fan_in(shape, 1) if len(shape) == 4 else 0.5}
    if name.endswith(".bias") and len(shape) == 1:
        return {"normal": 0.3}
    return convolution_init(name, shape)


def _entry(name: str, arch: str, size: int, source: str, num_classes: int = 1000, **options) -> Entry:
    def build() -> nn.Module:
        settings, last_channel = _mobilenet_v3_conf(arch, **options)
        return MobileNetV3(settings, last_channel, num_classes=num_classes)

    return classifier(name, "mobilenet", build, size, num_classes, f"{arch}; {source}", _init)


MOBILENET_SMALL = _entry("mobilenet-small", "mobilenet_v3_small", 96, "a quarter of the width", 100, width_mult=0.25)
MOBILENET_V3_LARGE = _entry("mobilenet_v3_large", "mobilenet_v3_large", 224, "as it is")
