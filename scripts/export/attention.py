"""Attention with a cache, and norms, written over the modules of transformers with operators that every backend has."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from entry import Port


def split_heads(states: torch.Tensor, heads: int) -> torch.Tensor:
    """[batch, positions, heads * size] to [batch, heads, positions, size]."""
    return states.view(states.shape[0], states.shape[1], heads, -1).transpose(1, 2)


def merge_heads(states: torch.Tensor) -> torch.Tensor:
    """The inverse of `split_heads`."""
    return states.transpose(1, 2).flatten(2)


def attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, bias: torch.Tensor | None = None):
    """Attention with scaled queries. Heads that share keys become one head, with their positions concatenated."""
    batch, heads, positions, _ = queries.shape
    groups = heads // keys.shape[1]
    if groups > 1:
        queries = queries.reshape(batch, heads // groups, groups * positions, -1)
    states = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=bias, scale=1.0)
    return states.reshape(batch, heads, positions, -1) if groups > 1 else states


def root_mean_square_norm(norm: nn.Module, states: torch.Tensor) -> torch.Tensor:
    """The norm of Llama and T5, over the last dimension."""
    power = (states * states).mean(states.dim() - 1, keepdim=True)
    return states / (power + norm.variance_epsilon).sqrt() * norm.weight


def last_position(states: torch.Tensor) -> torch.Tensor:
    """[batch, positions, width] to [batch, width]."""
    return states[:, -1:].flatten(1)


def cache_ports(kind: str, layers: int, heads: int, length: int | str, size: int) -> list[Port]:
    return [
        Port(f"{kind}.{layer}.{name}", "f32", ["batch", heads, length, size])
        for layer in range(layers)
        for name in ("key", "value")
    ]


def decoder_ports(tokens: str, vocabulary: int, positions: int, past: list[Port]) -> list[Port]:
    """The inputs of a part that generates tokens; positions are below `positions`."""
    return [
        Port(tokens, "i64", ["batch", "tokens"], below=vocabulary),
        Port("position_ids", "i64", [1, "positions"], below=positions),
        Port("attention_bias", "f32", [1, 1, "queries", "keys"]),
        *past,
    ]
