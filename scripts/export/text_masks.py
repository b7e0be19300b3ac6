"""Attention masks and positions of text, written with operators that every backend has.

transformers makes them with integer sums and logic on booleans, in ways that depend on the values while it is traced.
"""

import torch

# As transformers: the most negative f32, so that a row without any token stays finite.
MASKED = torch.finfo(torch.float32).min


def padding(mask: torch.Tensor) -> torch.Tensor:
    """[batch, sequence], 1 for a token and 0 for padding, to what is added to scores: [batch, 1, 1, sequence]."""
    return (1 - mask.to(torch.float32))[:, None, None, :] * MASKED


def causal(mask: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """The same for tokens that see those before them only: [batch, 1, sequence, sequence].

    `position` counts from 0 to the longest text or beyond.
    """
    position = position[: mask.shape[1]]
    seen = (position[None, :] <= position[:, None]).to(torch.float32)
    return (1 - seen * mask.to(torch.float32)[:, None, None, :]) * MASKED


def positions(tokens: torch.Tensor, pad: int) -> torch.Tensor:
    """RoBERTa's positions: tokens count from `pad + 1`, padding stays `pad`. Not every runtime sums integers."""
    token = (tokens != pad).to(torch.float32)
    return (torch.cumsum(token, 1) * token).to(torch.int64) + pad


def last_token(states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """[batch, sequence, width] to [batch, width], at CLIP's end of text: the token of the highest number."""
    index = tokens.to(torch.float32).argmax(1)
    return states.gather(1, index[:, None, None].expand(-1, 1, states.shape[2]))[:, 0]
