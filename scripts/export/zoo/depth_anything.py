"""Depth Anything: depth per pixel, from a vision transformer and a decoder that resizes features of four sizes."""

from torch import nn
from transformers import DepthAnythingConfig, DepthAnythingForDepthEstimation, Dinov2Config

from convolution_init import convolution_init
from entry import Entry, Port
from published import Published
from transformer_init import transformer_init


def _init(name: str, shape: list[int]) -> dict:
    if name.endswith("lambda1"):
        # The scale of a branch, as large as after training.
        return {"uniform": [0.5, 1.5]}
    if name == "head.conv3.bias":
        # Depths are rectified.
        return {"constant": 2.0}
    if name == "head.conv3.weight":
        return transformer_init(name, shape)
    return (transformer_init if name.startswith("backbone") else convolution_init)(name, shape)


def _entry(name: str, config: DepthAnythingConfig, source: str) -> Entry:
    size = config.backbone_config.image_size

    def build(attention: str) -> DepthAnythingForDepthEstimation:
        return DepthAnythingForDepthEstimation._from_config(config, attn_implementation=attention)

    def published(model: DepthAnythingForDepthEstimation) -> nn.Module:
        # The token for masked patches in training, and a branch of the smallest features, which have none to join.
        branch = [name for name, _ in model.named_parameters() if ".layers.0.residual_layer1." in name]
        unused = ("backbone.embeddings.mask_token", *branch)
        return Published(model, lambda model, pixels: model(pixels).predicted_depth, unused)

    def exportable() -> nn.Module:
        model = build("eager")
        # The positions fit an image of this size, but the original would interpolate them in a trace.
        embeddings = model.backbone.embeddings
        embeddings.interpolate_pos_encoding = lambda *_: embeddings.position_embeddings
        return published(model)

    return Entry(
        name=name,
        family="depth_anything",
        modality="image",
        source=f"transformers 5.23.0, DepthAnythingForDepthEstimation; {source}",
        license="Apache-2.0",
        inputs=[Port("pixel_values", "f32", ["batch", 3, size, size])],
        outputs=[Port("predicted_depth", "f32", ["batch", size, size])],
        original=lambda: published(build("eager")),
        exportable=exportable,
        init=_init,
    )


def _config(size: int, layers: list[int], width: int, heads: int, **options) -> DepthAnythingConfig:
    backbone = Dinov2Config(
        hidden_size=width,
        num_hidden_layers=layers[-1],
        num_attention_heads=heads,
        image_size=size,
        patch_size=14,
        out_indices=layers,
        apply_layernorm=True,
        reshape_hidden_states=False,
    )
    return DepthAnythingConfig(backbone_config=backbone, reassemble_hidden_size=width, **options)


DEPTH_ANYTHING_TINY = _entry(
    "depth-anything-tiny",
    _config(56, [1, 2, 3, 4], 48, 4, neck_hidden_sizes=[12, 24, 48, 48], fusion_hidden_size=16, head_hidden_size=8),
    "4 layers of width 48",
)
DEPTH_ANYTHING_SMALL = _entry(
    "depth-anything-small",
    _config(518, [9, 10, 11, 12], 384, 6, neck_hidden_sizes=[48, 96, 192, 384], fusion_hidden_size=64),
    "configuration of LiheYoung/depth-anything-small-hf",
)
