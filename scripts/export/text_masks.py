"""Attention masks and positions of text, written with operators that every backend has.

transformers uses integer sums and boolean logic, in ways that depend on the values during a trace.
"""

import torch

# The most negative f32, as in transformers, so that a row without any token stays finite.
MASKED = torch.finfo(torch.float32).min


def padding(mask: torch.Tensor) -> torch.Tensor:
    """[batch, sequence], 1 for a token and 0 for padding, to a bias for scores, [batch, 1, 1, sequence]."""
    return (1 - mask.to(torch.float32))[:, None, None, :] * MASKED


def causal(mask: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """The same for causal attention: [batch, 1, sequence, sequence].

    `position` counts from 0 at least to the length of the longest text.
    """
    position = position[: mask.shape[1]]
    seen = (position[None, :] <= position[:, None]).to(torch.float32)
    return (1 - seen * mask.to(torch.float32)[:, None, None, :]) * MASKED


def positions(tokens: torch.Tensor, pad: int) -> torch.Tensor:
    """RoBERTa's positions: tokens count from `pad + 1`, padding has `pad`. Not every runtime sums integers."""
    token = (tokens != pad).to(torch.float32)
    return (torch.cumsum(token, 1) * token).to(torch.int64) + pad


def last_token(states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """[batch, sequence, width] to [batch, width], at CLIP's end of text, which is the token with the highest number."""
    index = tokens.to(torch.float32).argmax(1)
    return states.gather(1, index[:, None, None].expand(-1, 1, states.shape[2]))[:, 0]
