"""Llama, Qwen2 and Qwen3: decoders only. Qwen2 has biases in its projections; Qwen3 has norms of queries and keys."""

import torch
from torch import nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

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
from transformer_init import transformer_init


class Rotation:
    """Rotates queries and keys by their positions, [1, positions]."""

    def __init__(self, frequencies: torch.Tensor, position_ids: torch.Tensor):
        angles = position_ids.to(torch.float32)[:, None, :, None] * frequencies
        sine = angles.sin()
        self._cosine = torch.cat([angles.cos()] * 2, 3)
        self._sine = torch.cat([-sine, sine], 3)

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        first, second = states.chunk(2, 3)
        return states * self._cosine + torch.cat([second, first], 3) * self._sine


def decode(
    decoder: nn.Module, states: torch.Tensor, position_ids: torch.Tensor, bias: torch.Tensor, past
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The state of the last position, and the cache: each layer's key and value, with those of `states` appended."""
    config = decoder.config
    heads, shared = config.num_attention_heads, config.num_key_value_heads
    rotation = Rotation(decoder.rotary_emb.inv_freq, position_ids)
    bias = torch.cat([bias] * (heads // shared), 2)
    present = []
    for layer, past_key, past_value in zip(decoder.layers, past[::2], past[1::2]):
        attention, normed = layer.self_attn, root_mean_square_norm(layer.input_layernorm, states)
        queries = split_heads(attention.q_proj(normed), heads)
        if hasattr(attention, "q_norm"):
            queries = root_mean_square_norm(attention.q_norm, queries)
        queries = rotation(queries) * attention.scaling
        key = split_heads(attention.k_proj(normed), shared)
        if hasattr(attention, "k_norm"):
            key = root_mean_square_norm(attention.k_norm, key)
        key = torch.cat([past_key, rotation(key)], 2)
        value = torch.cat([past_value, split_heads(attention.v_proj(normed), shared)], 2)
        states = states + attention.o_proj(merge_heads(attend(queries, key, value, bias)))
        mlp, normed = layer.mlp, root_mean_square_norm(layer.post_attention_layernorm, states)
        states = states + mlp.down_proj(mlp.act_fn(mlp.gate_proj(normed)) * mlp.up_proj(normed))
        present += [key, value]
    return last_position(root_mean_square_norm(decoder.norm, states)), present


def is_same_at_all_lengths(config: PreTrainedConfig) -> bool:
    """Whether each token sees all tokens before it, and its rotation does not depend on the text's length. `decode`
    needs both."""
    is_sliding = "sliding_attention" in (getattr(config, "layer_types", None) or ())
    # Older releases of transformers have no such parameters.
    rope = getattr(config, "rope_parameters", None) or {}
    return not is_sliding and rope.get("rope_type", "default") in ("default", "linear", "llama3")


def past_ports(config: PreTrainedConfig, kind: str, length: str) -> list[Port]:
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return cache_ports(kind, config.num_hidden_layers, config.num_key_value_heads, length, size)


def _next_token(model: PreTrainedModel, tokens, position_ids, bias, *past):
    state, present = decode(model.model, model.model.embed_tokens(tokens), position_ids, bias, past)
    return model.lm_head(state), *present


def _prompt(model: PreTrainedModel, tokens: torch.Tensor) -> Prompt:
    return Prompt({"input_ids": tokens, "logits_to_keep": 1})


def entry_of(
    name: str,
    model_class: type[PreTrainedModel],
    config: PreTrainedConfig,
    source: str,
    sequence_lengths: list[int],
    seed: int = 1,
    init=transformer_init,
) -> Generative:
    vocabulary = config.vocab_size
    past = past_ports(config, "past", "past")
    return Generative(
        name=name,
        family=config.model_type,
        modality="text",
        source=f"transformers 5.23.0, {model_class.__name__}; {source}",
        license="Apache-2.0",
        inputs=[Port("input_ids", "i64", ["batch", "sequence"], below=vocabulary)],
        build=lambda: model_class._from_config(config, attn_implementation="eager"),
        prompt=_prompt,
        parts=[
            Part(
                "lm",
                decoder_ports("input_ids", vocabulary, config.max_position_embeddings, past),
                [Port("logits", "f32", ["batch", vocabulary]), *past_ports(config, "present", "total")],
                _next_token,
            )
        ],
        init=init,
        sequence_lengths=sequence_lengths,
        seed=seed,
    )


def choosing_norms(name: str, shape: list[int]) -> dict:
    """Initialises a model that normalises queries and keys. The scale of these norms makes attention selective."""
    is_norm = name.endswith(("q_norm.weight", "k_norm.weight"))
    return {"uniform": [1.4, 2.0]} if is_norm else transformer_init(name, shape)


def rope(theta: float) -> dict:
    return {"rope_type": "default", "rope_theta": theta}


QWEN2_05B_CONFIG = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 131072,
    "rope_parameters": rope(1000000.0),
    "tie_word_embeddings": True,
}

LLAMA_SMALL = entry_of(
    "llama-small",
    LlamaForCausalLM,
    LlamaConfig(
        vocab_size=1000,
        hidden_size=128,
        intermediate_size=344,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        rope_parameters=rope(10000.0),
    ),
    "2 layers of width 128",
    [32],
)
# Rows have multiples of 256 values, as all formats of quantised weights need.
LLAMA_256 = entry_of(
    "llama-256",
    LlamaForCausalLM,
    LlamaConfig(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        rope_parameters=rope(10000.0),
    ),
    "2 layers of width 256",
    [32],
)
QWEN2_SMALL = entry_of(
    "qwen2-small",
    Qwen2ForCausalLM,
    Qwen2Config(
        vocab_size=1000,
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        rope_parameters=rope(1000000.0),
        tie_word_embeddings=True,
    ),
    "2 layers of width 96",
    [32],
    seed=4,
)
TINYLLAMA = entry_of(
    "tinyllama-1.1b",
    LlamaForCausalLM,
    LlamaConfig(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=22,
        num_key_value_heads=4,
        rms_norm_eps=1e-5,
        rope_parameters=rope(10000.0),
    ),
    "configuration of TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    [32, 128],
    seed=6,
)
QWEN2_05B = entry_of(
    "qwen2-0.5b",
    Qwen2ForCausalLM,
    Qwen2Config(**QWEN2_05B_CONFIG),
    "configuration of Qwen/Qwen2-0.5B",
    [32, 128],
    seed=10,
)
QWEN3_SMALL = entry_of(
    "qwen3-small",
    Qwen3ForCausalLM,
    Qwen3Config(
        vocab_size=1000,
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        rope_parameters=rope(1000000.0),
        tie_word_embeddings=False,
    ),
    "2 layers of width 96, heads of 32",
    [32],
    seed=2,
)
QWEN3_06B = entry_of(
    "qwen3-0.6b",
    Qwen3ForCausalLM,
    Qwen3Config(
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40960,
        rope_parameters=rope(1000000.0),
        tie_word_embeddings=True,
    ),
    "configuration of Qwen/Qwen3-0.6B",
    [32, 128],
    seed=14,
    init=choosing_norms,
)
