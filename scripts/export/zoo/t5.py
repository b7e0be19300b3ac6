"""T5: a text encoder and a decoder. Attention has a bias by distance instead of positions."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel, T5Config, T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Attention

from attention import (
    attend,
    cache_ports,
    decoder_ports,
    last_position,
    merge_heads,
    root_mean_square_norm,
    split_heads,
)
from entry import Generative, Part, Port, Prompt
from transformer_init import fan_in, transformer_init

# Number of the encoder's positions that are compared.
SAMPLE = 8


class DistanceBias:
    """The bias of each distance from query to key, counted from the smallest distance with its own bucket.

    The buckets are a table, because each backend would round the logarithm of a distance differently.
    """

    def __init__(self, config: T5Config, both_ways: bool):
        farthest = config.relative_attention_max_distance
        self._first = -farthest if both_ways else 0
        self._count = farthest - self._first
        self._buckets = T5Attention._relative_position_bucket(
            -torch.arange(self._first, farthest + 1), both_ways, config.relative_attention_num_buckets, farthest
        )

    def __call__(self, stack: nn.Module, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """[1, heads, queries, keys], from positions [queries] and [keys] as f32."""
        bias = functional.embedding(self._buckets, stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight)
        # Clamped to the table with an operator that every backend has.
        distances = functional.relu(queries[:, None] - keys[None, :] - self._first)
        distances = self._count - functional.relu(self._count - distances)
        return functional.embedding(distances.to(torch.int64), bias).permute(2, 0, 1)[None]


def _counted(values: torch.Tensor, count: int) -> torch.Tensor:
    """0 to `count` - 1. An `arange` would put a device into the trace."""
    return values.new_ones(count).cumsum(0) - 1


def _projected(attention: nn.Module, states: torch.Tensor) -> list[torch.Tensor]:
    return [split_heads(projection(states), attention.n_heads) for projection in (attention.k, attention.v)]


def _attended(attention: nn.Module, states: torch.Tensor, key, value, bias=None) -> torch.Tensor:
    queries = split_heads(attention.q(states), attention.n_heads)
    return attention.o(merge_heads(attend(queries, key, value, bias)))


def _fed_forward(layer: nn.Module, states: torch.Tensor) -> torch.Tensor:
    dense = layer.DenseReluDense
    return states + dense.wo(dense.act(dense.wi(root_mean_square_norm(layer.layer_norm, states))))


def _encode(distance_bias: DistanceBias, model: T5ForConditionalGeneration, tokens: torch.Tensor):
    states = model.shared(tokens)
    positions = _counted(states, tokens.shape[1])
    bias = distance_bias(model.encoder, positions, positions)
    for block in model.encoder.block:
        attending, feeding = block.layer
        normed = root_mean_square_norm(attending.layer_norm, states)
        key, value = _projected(attending.SelfAttention, normed)
        states = states + _attended(attending.SelfAttention, normed, key, value, bias)
        states = _fed_forward(feeding, states)
    states = root_mean_square_norm(model.encoder.final_layer_norm, states)
    cross = [tensor for b in model.decoder.block for tensor in _projected(b.layer[1].EncDecAttention, states)]
    return states[:, :SAMPLE], *cross


def _next_token(
    distance_bias: DistanceBias, model: T5ForConditionalGeneration, tokens, position_ids, bias, *caches
):
    past, cross = caches[: len(caches) // 2], caches[len(caches) // 2 :]
    states, present = model.shared(tokens), []
    keys = _counted(states, past[0].shape[2] + tokens.shape[1])
    bias = bias + distance_bias(model.decoder, position_ids[0].to(torch.float32), keys)
    for index, block in enumerate(model.decoder.block):
        attending, crossing, feeding = block.layer
        normed = root_mean_square_norm(attending.layer_norm, states)
        new = _projected(attending.SelfAttention, normed)
        key, value = (torch.cat(pair, 2) for pair in zip(past[2 * index : 2 * index + 2], new))
        states = states + _attended(attending.SelfAttention, normed, key, value, bias)
        normed = root_mean_square_norm(crossing.layer_norm, states)
        states = states + _attended(crossing.EncDecAttention, normed, *cross[2 * index : 2 * index + 2])
        states = _fed_forward(feeding, states)
        present += [key, value]
    state = last_position(root_mean_square_norm(model.decoder.final_layer_norm, states))
    return model.lm_head(state * model.model_dim**-0.5), *present


def _prompt(model: PreTrainedModel, tokens: torch.Tensor, decoder_tokens: torch.Tensor) -> Prompt:
    encoded = model.encoder(tokens)
    given = {"encoder_outputs": encoded}
    return Prompt(given | {"decoder_input_ids": decoder_tokens}, given, [encoded.last_hidden_state[:, :SAMPLE]])


def _init(name: str, shape: list[int], head: int) -> dict:
    leaf = name.removesuffix(".weight").rsplit(".", 1)[-1]
    if leaf == "q":
        # T5 does not divide scores by the square root of a head's size.
        return {"normal": fan_in([1, shape[1] * head], 3)}
    if leaf in ("k", "v"):
        return {"normal": fan_in(shape, 3)}
    # With smaller biases, attention would hardly depend on distances, and tokens would repeat.
    return {"normal": 4.0} if leaf == "relative_attention_bias" else transformer_init(name, shape)


def entry_of(name: str, config: T5Config, source: str, sequence_lengths: list[int], seed: int = 1) -> Generative:
    layers, heads, size, vocabulary = config.num_decoder_layers, config.num_heads, config.d_kv, config.vocab_size
    state = Port("encoder_state", "f32", ["batch", SAMPLE, config.d_model])
    past = cache_ports("past", layers, heads, "past", size)
    cross = cache_ports("cross", layers, heads, "sequence", size)
    tokens = Port("input_ids", "i64", ["batch", "sequence"], below=vocabulary)
    return Generative(
        name=name,
        family="t5",
        modality="text",
        source=f"transformers 5.23.0, T5ForConditionalGeneration; {source}",
        license="Apache-2.0",
        inputs=[tokens, Port("decoder_input_ids", "i64", ["batch", 1], constant=config.pad_token_id)],
        build=lambda: T5ForConditionalGeneration._from_config(config, attn_implementation="eager"),
        prompt=_prompt,
        parts=[
            Part("encoder", [tokens], [state, *cross], partial(_encode, DistanceBias(config, True))),
            Part(
                "decoder",
                [*decoder_ports("decoder_input_ids", vocabulary, 512, past), *cross],
                [
                    Port("logits", "f32", ["batch", vocabulary]),
                    *cache_ports("present", layers, heads, "total", size),
                ],
                partial(_next_token, DistanceBias(config, False)),
            ),
        ],
        init=lambda name, shape: _init(name, shape, size),
        tokens="decoder_input_ids",
        encoded=[state],
        sequence_lengths=sequence_lengths,
        seed=seed,
    )


T5_TINY = entry_of(
    "t5-tiny",
    T5Config(vocab_size=1000, d_model=96, d_kv=32, d_ff=384, num_layers=2, num_heads=4),
    "2 layers of width 96",
    [32],
    seed=4,
)
T5_SMALL = entry_of("t5-small", T5Config(), "configuration of google-t5/t5-small", [32, 128], seed=22)
