"""GPT-2: a decoder only, with learned positions."""

import torch
from torch import nn
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from attention import attend, cache_ports, decoder_ports, last_position, merge_heads, split_heads
from entry import Generative, Part, Port, Prompt
from transformer_init import fan_in, transformer_init


def _projected(layer: nn.Module, states: torch.Tensor) -> torch.Tensor:
    """A linear layer whose weight is [input, output], as in GPT-2."""
    return states @ layer.weight + layer.bias


def _next_token(model: PreTrainedModel, tokens, position_ids, bias, *past):
    decoder = model.transformer
    heads = decoder.config.n_head
    states, present = decoder.wte(tokens) + decoder.wpe(position_ids), []
    for block, past_key, past_value in zip(decoder.h, past[::2], past[1::2]):
        attention, mlp = block.attn, block.mlp
        parts = _projected(attention.c_attn, block.ln_1(states)).chunk(3, 2)
        queries, key, value = (split_heads(part, heads) for part in parts)
        key, value = torch.cat([past_key, key], 2), torch.cat([past_value, value], 2)
        queries = queries * attention.head_dim**-0.5
        states = states + _projected(attention.c_proj, merge_heads(attend(queries, key, value, bias)))
        inner = functional.gelu(_projected(mlp.c_fc, block.ln_2(states)), approximate="tanh")
        states = states + _projected(mlp.c_proj, inner)
        present += [key, value]
    return model.lm_head(last_position(decoder.ln_f(states))), *present


def _init(name: str, shape: list[int]) -> dict:
    leaf = name.removesuffix(".weight").rsplit(".", 1)[-1]
    if leaf in ("wte", "wpe"):
        # The head shares these weights. Larger ones would make each token predict itself.
        return {"normal": 0.2 if leaf == "wte" else 1.0}
    if len(shape) == 2:
        return {"normal": fan_in([1, shape[0]], 3 if leaf == "c_attn" else 1)}
    return transformer_init(name, shape)


def _entry(name: str, config: GPT2Config, source: str, sequence_lengths: list[int], seed: int = 1) -> Generative:
    vocabulary, size = config.vocab_size, config.n_embd // config.n_head
    past, present = (
        cache_ports(kind, config.n_layer, config.n_head, length, size)
        for kind, length in (("past", "past"), ("present", "total"))
    )
    return Generative(
        name=name,
        family="gpt2",
        modality="text",
        source=f"transformers 5.23.0, GPT2LMHeadModel; {source}",
        license="MIT",
        inputs=[Port("input_ids", "i64", ["batch", "sequence"], below=vocabulary)],
        build=lambda: GPT2LMHeadModel._from_config(config, attn_implementation="eager"),
        prompt=lambda model, tokens: Prompt({"input_ids": tokens}),
        parts=[
            Part(
                "lm",
                decoder_ports("input_ids", vocabulary, config.n_positions, past),
                [Port("logits", "f32", ["batch", vocabulary]), *present],
                _next_token,
            )
        ],
        init=_init,
        # The published checkpoints contain only the decoder, without this prefix.
        prefixes=(("transformer.", ""),),
        sequence_lengths=sequence_lengths,
        seed=seed,
    )


GPT2_TINY = _entry(
    "gpt2-tiny",
    GPT2Config(vocab_size=1000, n_positions=256, n_embd=96, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0),
    "2 layers of width 96",
    [32],
    seed=3,
)
GPT2 = _entry("gpt2", GPT2Config(), "configuration of openai-community/gpt2", [32, 128])
