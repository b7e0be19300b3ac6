"""One step of a diffusion model: a U-Net of residual blocks with attention to a text at three sizes.

It has the layout and the names of diffusers' UNet2DConditionModel in Stable Diffusion 1.5.
"""

import math

import torch
from torch import nn
from torch.nn import functional

from convolution_init import convolution_init
from entry import Entry, Port
from transformer_init import fan_in


class WrittenGroupNorm(nn.GroupNorm):
    """nn.GroupNorm written with means, because not every backend has the operator that it exports to."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        groups = x.reshape(x.shape[0], self.num_groups, -1)
        groups = groups - groups.mean(2, keepdim=True)
        groups = groups / ((groups * groups).mean(2, keepdim=True) + self.eps).sqrt()
        return groups.reshape(x.shape) * self.weight[:, None, None] + self.bias[:, None, None]


class ResnetBlock(nn.Module):
    def __init__(self, norm, inputs: int, outputs: int, time: int):
        super().__init__()
        self.norm1, self.norm2 = norm(inputs, 1e-5), norm(outputs, 1e-5)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time_emb_proj = nn.Linear(time, outputs)
        self.conv_shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.conv1(functional.silu(self.norm1(x)))
        y = y + self.time_emb_proj(functional.silu(time))[:, :, None, None]
        return self.conv_shortcut(x) + self.conv2(functional.silu(self.norm2(y)))


class Attention(nn.Module):
    def __init__(self, width: int, context: int, heads: int):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k = nn.Linear(context, width, bias=False)
        self.to_v = nn.Linear(context, width, bias=False)
        self.to_out = nn.ModuleList([nn.Linear(width, width)])

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        def split(states: torch.Tensor) -> torch.Tensor:
            return states.reshape(states.shape[0], -1, self.heads, states.shape[2] // self.heads).transpose(1, 2)

        query, key, value = split(self.to_q(x)), split(self.to_k(context)), split(self.to_v(context))
        mixed = functional.scaled_dot_product_attention(query, key, value, scale=query.shape[3] ** -0.5)
        return self.to_out[0](mixed.transpose(1, 2).flatten(2))


class GatedGelu(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.proj = nn.Linear(width, 8 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, gate = self.proj(x).chunk(2, 2)
        return x * functional.gelu(gate)


class TransformerBlock(nn.Module):
    def __init__(self, width: int, context: int, heads: int):
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.attn1 = Attention(width, width, heads)
        self.attn2 = Attention(width, context, heads)
        # diffusers has a dropout in place of the Identity.
        self.ff = nn.Module()
        self.ff.net = nn.ModuleList([GatedGelu(width), nn.Identity(), nn.Linear(4 * width, width)])

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        normed = self.norm1(x)
        x = x + self.attn1(normed, normed)
        x = x + self.attn2(self.norm2(x), context)
        return x + self.ff.net[2](self.ff.net[0](self.norm3(x)))


class Transformer(nn.Module):
    def __init__(self, norm, width: int, context: int, heads: int):
        super().__init__()
        self.norm = norm(width, 1e-6)
        self.proj_in, self.proj_out = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.transformer_blocks = nn.ModuleList([TransformerBlock(width, context, heads)])

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        y = self.proj_in(self.norm(x))
        tokens = self.transformer_blocks[0](y.flatten(2).transpose(1, 2), context)
        return x + self.proj_out(tokens.transpose(1, 2).reshape(y.shape))


class Level(nn.Module):
    """Blocks of one size, and the layer to the next size; `inputs` are the channels of each block's input."""

    def __init__(self, norm, inputs: list[int], width: int, time: int, attends, change: tuple[str, nn.Module] | None):
        super().__init__()
        self.resnets = nn.ModuleList(ResnetBlock(norm, channels, width, time) for channels in inputs)
        if attends:
            self.attentions = nn.ModuleList(attends(width) for _ in inputs)
        if change:
            name, module = change
            holder = nn.Module()
            holder.conv = module
            setattr(self, name, nn.ModuleList([holder]))

    def block(self, place: int, x: torch.Tensor, time: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        x = self.resnets[place](x, time)
        return self.attentions[place](x, context) if hasattr(self, "attentions") else x


class ConditionedUNet(nn.Module):
    """Predicts noise from noise, [batch, 4, size, size], its step, [batch, 1], and a text, [batch, tokens, width]."""

    def __init__(self, group_norm, widths: list[int], context: int, heads: int, groups: int, blocks: int):
        super().__init__()

        def norm(channels: int, eps: float) -> nn.Module:
            return group_norm(groups, channels, eps)

        def attends(width: int) -> nn.Module:
            return Transformer(norm, width, context, heads)

        time, last = 4 * widths[0], len(widths) - 1
        self.first, self.blocks = widths[0], blocks
        self.conv_in = nn.Conv2d(4, widths[0], 3, padding=1)
        self.time_embedding = nn.Module()
        self.time_embedding.linear_1 = nn.Linear(widths[0], time)
        self.time_embedding.linear_2 = nn.Linear(time, time)
        self.down_blocks, self.up_blocks = nn.ModuleList(), nn.ModuleList()
        skips = [widths[0]]
        for level, width in enumerate(widths):
            inputs = [widths[max(level - 1, 0)], *[width] * (blocks - 1)]
            change = ("downsamplers", nn.Conv2d(width, width, 3, 2, 1)) if level < last else None
            self.down_blocks.append(Level(norm, inputs, width, time, attends if level < last else None, change))
            skips += [width] * (blocks + (level < last))
        self.mid_block = nn.Module()
        self.mid_block.resnets = nn.ModuleList(ResnetBlock(norm, widths[-1], widths[-1], time) for _ in range(2))
        self.mid_block.attentions = nn.ModuleList([attends(widths[-1])])
        channels = widths[-1]
        for level, width in enumerate(widths[::-1]):
            inputs = []
            for _ in range(blocks + 1):
                inputs.append(channels + skips.pop())
                channels = width
            change = ("upsamplers", nn.Conv2d(width, width, 3, padding=1)) if level < last else None
            self.up_blocks.append(Level(norm, inputs, width, time, attends if level else None, change))
        self.conv_norm_out = norm(widths[0], 1e-5)
        self.conv_out = nn.Conv2d(widths[0], 4, 3, padding=1)
        frequencies = torch.exp(-math.log(10000) * torch.arange(widths[0] // 2) / (widths[0] // 2))
        self.register_buffer("frequencies", frequencies[None], persistent=False)

    def forward(self, sample: torch.Tensor, timestep: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        angles = timestep.to(torch.float32) * self.frequencies
        time = torch.cat([angles.cos(), angles.sin()], 1)
        if time.dtype != sample.dtype:
            time = time.to(sample.dtype)
        time = self.time_embedding.linear_1(time)
        time = self.time_embedding.linear_2(functional.silu(time))
        x = self.conv_in(sample)
        skipped = [x]
        for level in self.down_blocks:
            for place in range(self.blocks):
                x = level.block(place, x, time, text)
                skipped.append(x)
            if hasattr(level, "downsamplers"):
                x = level.downsamplers[0].conv(x)
                skipped.append(x)
        x = self.mid_block.resnets[0](x, time)
        x = self.mid_block.resnets[1](self.mid_block.attentions[0](x, text), time)
        for level in self.up_blocks:
            for place in range(self.blocks + 1):
                x = level.block(place, torch.cat([x, skipped.pop()], 1), time, text)
            if hasattr(level, "upsamplers"):
                x = level.upsamplers[0].conv(functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.conv_out(functional.silu(self.conv_norm_out(x)))


def _init(name: str, shape: list[int]) -> dict:
    if name.endswith(("to_q.weight", "to_k.weight", "to_v.weight")):
        return {"normal": fan_in(shape, 3)}
    if len(shape) == 2 or name.endswith("conv_out.weight"):
        return {"normal": fan_in(shape, 1)}
    return convolution_init(name, shape)


def _entry(name: str, size: int, tokens: int, context: int, source: str, **options) -> Entry:
    return Entry(
        name=name,
        family="diffusion",
        modality="image",
        source=f"the layout of diffusers' UNet2DConditionModel; {source}",
        license="MIT OR Apache-2.0",
        inputs=[
            Port("sample", "f32", ["batch", 4, size, size]),
            Port("timestep", "i64", ["batch", 1], below=1000),
            Port("encoder_hidden_states", "f32", ["batch", tokens, context]),
        ],
        outputs=[Port("noise", "f32", ["batch", 4, size, size])],
        original=lambda: ConditionedUNet(nn.GroupNorm, context=context, **options),
        exportable=lambda: ConditionedUNet(WrittenGroupNorm, context=context, **options),
        init=_init,
    )


DIFFUSION_TINY = _entry(
    "diffusion-tiny", 16, 8, 32, "3 sizes of width 16 to 48", widths=[16, 32, 48], heads=4, groups=8, blocks=1
)
STABLE_DIFFUSION = _entry(
    "stable-diffusion-v1-5", 32, 77, 768, "the sizes of Stable Diffusion 1.5, for pictures of 256 × 256",
    widths=[320, 640, 1280, 1280], heads=8, groups=32, blocks=2,
)
