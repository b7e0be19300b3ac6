"""Vision transformers: torchvision's vit_b_16, and transformers' ViT in two sizes.

The traced vit_b_16 is torchvision's without the shape checks and with nn.MultiheadAttention written out. So the trace
fixes no batch size, and the graph has no arithmetic on shapes except for the expansion of the class token.
"""

import torch
import torchvision
from torch import nn
from torch.nn import functional
from torchvision.models.vision_transformer import VisionTransformer
from transformers import ViTConfig, ViTForImageClassification

from entry import Entry, Port
from published import Published
from transformer_init import transformer_init

TOKENS, WIDTH, HEADS = 197, 768, 12


class SelfAttention(nn.Module):
    """nn.MultiheadAttention of one sequence with itself, under the same parameter names."""

    def __init__(self):
        super().__init__()
        self.in_proj_weight = nn.Parameter(torch.empty(3 * WIDTH, WIDTH))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * WIDTH))
        self.out_proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, query, _key, _value, need_weights=False):
        """[batch, 197, 768] to the same; the weights of the attention are not returned."""
        size = WIDTH // HEADS
        query, key, value = (
            part.reshape(-1, TOKENS, HEADS, size).transpose(1, 2)
            for part in functional.linear(query, self.in_proj_weight, self.in_proj_bias).split(WIDTH, -1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, scale=size**-0.5)
        return self.out_proj(mixed.transpose(1, 2).reshape(-1, TOKENS, WIDTH)), None


class ExportableViT(VisionTransformer):
    def __init__(self):
        super().__init__(image_size=224, patch_size=16, num_layers=12, num_heads=HEADS, hidden_dim=WIDTH, mlp_dim=3072)
        for block in self.encoder.layers:
            block.self_attention = SelfAttention()

    def forward(self, x):
        """[batch, 3, 224, 224] to [batch, 1000]."""
        patches = self.conv_proj(x).reshape(-1, WIDTH, TOKENS - 1).transpose(1, 2)
        cls = self.class_token.expand(x.shape[0], 1, WIDTH)
        return self.heads(self.encoder(torch.cat([cls, patches], dim=1))[:, 0])


def _original() -> nn.Module:
    # The fused path of nn.MultiheadAttention cannot be traced, and backends compute differently.
    torch.backends.mha.set_fastpath_enabled(False)
    return torchvision.models.vit_b_16(weights=None)


def entry_of(name: str, config: ViTConfig, source: str, quantized: bool = False) -> Entry:
    """transformers' ViTForImageClassification."""

    def build(attention: str) -> Published:
        model = ViTForImageClassification._from_config(config, attn_implementation=attention)
        return Published(model, lambda model, pixels: model(pixels).logits)

    return Entry(
        name=name,
        family="vit",
        modality="image",
        source=f"transformers 5.23.0, ViTForImageClassification; {source}",
        license="Apache-2.0",
        inputs=[Port("pixel_values", "f32", ["batch", 3, config.image_size, config.image_size])],
        outputs=[Port("logits", "f32", ["batch", config.num_labels])],
        original=lambda: build("eager"),
        exportable=lambda: build("sdpa"),
        init=transformer_init,
        quantized=quantized,
    )


VIT_B_16 = Entry(
    name="vit_b_16",
    family="vit",
    modality="image",
    source="torchvision 0.26.0, torchvision.models.vit_b_16",
    license="BSD-3-Clause",
    inputs=[Port("input", "f32", ["batch", 3, 224, 224])],
    outputs=[Port("logits", "f32", ["batch", 1000])],
    original=_original,
    exportable=ExportableViT,
    init=transformer_init,
    quantized=True,
)
VIT_SMALL = entry_of(
    "vit-small",
    ViTConfig(
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=384,
        image_size=64,
        patch_size=8,
        num_labels=100,
    ),
    "4 layers of width 128",
    quantized=True,
)
VIT_BASE = entry_of("vit-base", ViTConfig(num_labels=1000), "configuration of google/vit-base-patch16-224")
