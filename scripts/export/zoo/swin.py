"""Swin: attention within windows that shift from layer to layer, with a bias by relative position."""

from torch import nn
from torchvision.models.swin_transformer import SwinTransformer

from entry import Entry
from transformer_init import fan_in, transformer_init
from zoo.resnet import classifier


def _init(name: str, shape: list[int]) -> dict:
    if name.endswith("relative_position_bias_table"):
        return {"normal": 1.0}
    if name.endswith("qkv.weight"):
        return {"normal": fan_in(shape, 3)}
    return transformer_init(name, shape)


def _entry(name: str, size: int, num_classes: int, source: str, **options) -> Entry:
    def build() -> nn.Module:
        model = SwinTransformer(patch_size=[4, 4], num_classes=num_classes, **options)
        for module in model.modules():
            # These integers follow from the size of the window, so they are not weights.
            if "relative_position_index" in module._buffers:
                module._non_persistent_buffers_set.add("relative_position_index")
        return model

    return classifier(name, "swin", build, size, num_classes, source, _init)


SWIN_SMALL = _entry(
    "swin-small",
    64,
    100,
    "swin_transformer.SwinTransformer; 4 layers of width 32 and 64",
    embed_dim=32,
    depths=[2, 2],
    num_heads=[2, 4],
    window_size=[4, 4],
)
SWIN_T = _entry(
    "swin_t", 224, 1000, "swin_t", embed_dim=96, depths=[2, 2, 6, 2], num_heads=[3, 6, 12, 24], window_size=[7, 7]
)
