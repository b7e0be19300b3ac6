"""Greedy generation, by transformers' own model with its own cache, and by the parts of an exported model."""

from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

import check
from entry import Generative, Part
from text_masks import MASKED

# Decoding steps after the first token.
STEPS = 16


@dataclass(frozen=True)
class Generated:
    encoded: list[np.ndarray]
    """The outputs of the phase `encoder`."""
    token: np.ndarray
    """The first token, [batch]."""
    logits: np.ndarray
    """The logits of the first token, [batch, vocabulary]."""
    tokens: np.ndarray
    """The tokens that the steps chose, [batch, STEPS]."""
    last_logits: np.ndarray
    """The logits of the last step."""


def reference(entry: Generative, model: PreTrainedModel, inputs: dict[str, np.ndarray]) -> tuple[Generated, float]:
    """Generates with transformers. Also returns the smallest lead of a chosen token over the second, relative to the
    largest logit."""
    with torch.no_grad():
        prompt = entry.prompt(model, *(torch.from_numpy(value) for value in inputs.values()))
        output = model(**prompt.prefill, use_cache=True)
        logits = [output.logits[:, -1]]
        for _ in range(STEPS):
            token = {entry.tokens: logits[-1].argmax(1, keepdim=True)}
            output = model(**prompt.decode, **token, past_key_values=output.past_key_values, use_cache=True)
            logits.append(output.logits[:, -1])
    best = [row.topk(2, 1).values for row in logits]
    lead = min(((b[:, 0] - b[:, 1]) / row.abs().amax(1)).min().item() for b, row in zip(best, logits))
    encoded = [value.contiguous().numpy() for value in prompt.encoded]
    return _generated(encoded, [row.numpy() for row in logits]), lead


def by_parts(entry: Generative, run: dict[str, check.Runner], inputs: dict[str, np.ndarray]) -> Generated:
    """Generates with the parts; `run` has a runner for each."""
    *_, decoder = entry.parts
    batch, tokens = inputs[entry.tokens].shape
    position = entry.prefix_positions + tokens
    values = inputs | _places(0, position)
    for part in entry.parts:
        values |= _call(part, run, values, batch)
    encoded = [values[port.name] for port in entry.encoded]
    logits = [values["logits"]]
    for _ in range(STEPS):
        kept = {name: value for name, value in values.items() if name not in entry.once}
        cache = {f"past.{name[8:]}": value for name, value in values.items() if name.startswith("present.")}
        values = kept | cache | _places(position, 1) | {entry.tokens: logits[-1].argmax(1)[:, None]}
        values |= _call(decoder, run, values, batch)
        logits.append(values["logits"])
        position += 1
    return _generated(encoded, logits)


def error(actual: Generated, expected: Generated) -> float:
    """The largest error of the encoder's outputs and the logits. The tokens must be the same."""
    batch = len(actual.token)
    assert np.array_equal(actual.token, expected.token[:batch]), "first token"
    assert np.array_equal(actual.tokens, expected.tokens[:batch]), "tokens"
    pairs = [
        *zip(actual.encoded, expected.encoded),
        (actual.logits, expected.logits),
        (actual.last_logits, expected.last_logits),
    ]
    return max(check.relative_error(a, e[:batch]) for a, e in pairs)


def _generated(encoded: list[np.ndarray], logits: list[np.ndarray]) -> Generated:
    first, *steps = (row.argmax(1) for row in logits)
    return Generated(encoded, first, logits[0], np.stack(steps, 1), logits[-1])


def _places(start: int, count: int) -> dict[str, np.ndarray]:
    """The positions of a call's tokens, and their attention bias: each token sees the cache, itself and the tokens
    before it."""
    positions = np.arange(start, start + count)[None]
    keys = np.arange(count)
    seen = keys[None, :] <= keys[:, None]
    bias = np.where(seen, np.float32(0), np.float32(MASKED))
    return {"position_ids": positions, "attention_bias": bias[None, None]}


def _call(part: Part, run, values: dict[str, np.ndarray], batch: int) -> dict[str, np.ndarray]:
    """The outputs of a part. An input without a value yet, such as the cache at the start, is empty."""
    feed = {}
    for port in part.inputs:
        empty = [batch, *(0 if isinstance(size, str) else size for size in port.shape[1:])]
        feed[port.name] = values[port.name] if port.name in values else np.zeros(empty, dtype=np.float32)
    return dict(zip((port.name for port in part.outputs), run[part.name](feed)))
