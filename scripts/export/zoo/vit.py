"""torchvision's vit_b_16, full size.

The traced module is torchvision's with the shape checks left out and nn.MultiheadAttention written out, so that no
batch size is fixed by the trace and the graph holds no arithmetic on shapes beyond the expansion of the class token.
"""

import math

import torch
import torchvision
from torch import nn
from torch.nn import functional
from torchvision.models.vision_transformer import VisionTransformer

from entry import Entry, Port

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
    # The fused path of nn.MultiheadAttention is neither traceable nor what a backend computes.
    torch.backends.mha.set_fastpath_enabled(False)
    return torchvision.models.vit_b_16(weights=None)


def _init(name: str, shape: list[int]) -> dict:
    """Deviations by fan-in.

    Projections to queries, keys and values are larger, which makes attention choose among patches: an even average over
    196 random patches would hardly depend on the picture.
    """
    if name in ("class_token", "encoder.pos_embedding"):
        return {"normal": 0.5}
    if name.endswith("in_proj_weight"):
        return {"normal": round(math.sqrt(3 / shape[1]), 6)}
    if len(shape) >= 2:
        return {"normal": round(math.sqrt(1 / math.prod(shape[1:])), 6)}
    if name.endswith("bias"):
        return {"normal": 0.1}
    return {"uniform": [0.8, 1.2]}


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
    init=_init,
)
