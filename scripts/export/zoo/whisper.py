"""Whisper: an encoder of 30 seconds of audio, as a spectrogram, and a decoder of its text."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel, WhisperConfig, WhisperForConditionalGeneration

from attention import attend, cache_ports, decoder_ports, last_position, merge_heads, split_heads
from entry import Generative, Part, Port, Prompt
from transformer_init import fan_in, transformer_init

# The most positions of the encoder that are compared, evenly spaced.
SAMPLE = 16
# Tokens of the decoder's prompt: start, language, task, no timestamps.
PROMPT = 4


def _projected(attention: nn.Module, states: torch.Tensor) -> list[torch.Tensor]:
    return [split_heads(project(states), attention.num_heads) for project in (attention.k_proj, attention.v_proj)]


def _attended(attention: nn.Module, states: torch.Tensor, key, value, bias=None) -> torch.Tensor:
    queries = split_heads(attention.q_proj(states) * attention.scaling, attention.num_heads)
    return attention.out_proj(merge_heads(attend(queries, key, value, bias)))


def _fed_forward(layer: nn.Module, states: torch.Tensor) -> torch.Tensor:
    return states + layer.fc2(functional.gelu(layer.fc1(layer.final_layer_norm(states))))


def _encode(every: int, model: WhisperForConditionalGeneration, features: torch.Tensor):
    encoder = model.model.encoder
    states = functional.gelu(encoder.conv2(functional.gelu(encoder.conv1(features))))
    states = states.transpose(1, 2) + encoder.embed_positions.weight
    for layer in encoder.layers:
        normed = layer.self_attn_layer_norm(states)
        states = states + _attended(layer.self_attn, normed, *_projected(layer.self_attn, normed))
        states = _fed_forward(layer, states)
    states = encoder.layer_norm(states)
    cross = [tensor for layer in model.model.decoder.layers for tensor in _projected(layer.encoder_attn, states)]
    return states[:, ::every], *cross


def _next_token(model: WhisperForConditionalGeneration, tokens, position_ids, bias, *caches):
    decoder = model.model.decoder
    past, cross = caches[: len(caches) // 2], caches[len(caches) // 2 :]
    states = decoder.embed_tokens(tokens) + functional.embedding(position_ids, decoder.embed_positions.weight)
    present = []
    for index, layer in enumerate(decoder.layers):
        normed = layer.self_attn_layer_norm(states)
        new = _projected(layer.self_attn, normed)
        key, value = (torch.cat(pair, 2) for pair in zip(past[2 * index : 2 * index + 2], new))
        states = states + _attended(layer.self_attn, normed, key, value, bias)
        normed = layer.encoder_attn_layer_norm(states)
        states = states + _attended(layer.encoder_attn, normed, *cross[2 * index : 2 * index + 2])
        states = _fed_forward(layer, states)
        present += [key, value]
    return model.proj_out(last_position(decoder.layer_norm(states))), *present


def _prompt(every: int, model: PreTrainedModel, features: torch.Tensor, tokens: torch.Tensor) -> Prompt:
    encoded = model.model.encoder(features)
    given = {"encoder_outputs": encoded}
    return Prompt(given | {"decoder_input_ids": tokens}, given, [encoded.last_hidden_state[:, ::every]])


def _init(name: str, shape: list[int]) -> dict:
    if len(shape) == 3:
        # A GELU halves the power.
        return {"normal": fan_in(shape, 2)}
    if ".decoder." in name and name.endswith("self_attn.out_proj.weight"):
        # The tokens so far count more than the audio, of which every query sees almost the same.
        return {"normal": fan_in(shape, 4)}
    return transformer_init(name, shape)


def entry_of(name: str, config: WhisperConfig, source: str, seed: int = 1) -> Generative:
    layers, heads, vocabulary = config.decoder_layers, config.decoder_attention_heads, config.vocab_size
    size, places = config.d_model // heads, config.max_source_positions
    every = -(-places // SAMPLE)
    state = Port("encoder_state", "f32", ["batch", -(-places // every), config.d_model])
    features = Port("input_features", "f32", ["batch", config.num_mel_bins, 2 * places])
    past = cache_ports("past", layers, heads, "past", size)
    cross = cache_ports("cross", layers, heads, places, size)
    return Generative(
        name=name,
        family="whisper",
        modality="audio",
        source=f"transformers 5.23.0, WhisperForConditionalGeneration; {source}",
        license="Apache-2.0",
        inputs=[features, Port("decoder_input_ids", "i64", ["batch", PROMPT], below=vocabulary)],
        build=lambda: WhisperForConditionalGeneration._from_config(config, attn_implementation="eager"),
        prompt=partial(_prompt, every),
        parts=[
            Part("encoder", [features], [state, *cross], partial(_encode, every)),
            Part(
                "decoder",
                [*decoder_ports("decoder_input_ids", vocabulary, config.max_target_positions, past), *cross],
                [
                    Port("logits", "f32", ["batch", vocabulary]),
                    *cache_ports("present", layers, heads, "total", size),
                ],
                _next_token,
            ),
        ],
        init=_init,
        tokens="decoder_input_ids",
        encoded=[state],
        seed=seed,
    )


WHISPER_MINI = entry_of(
    "whisper-mini",
    WhisperConfig(
        vocab_size=1000,
        d_model=96,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=384,
        decoder_layers=2,
        decoder_attention_heads=4,
        decoder_ffn_dim=384,
        max_source_positions=150,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    ),
    "2 layers of width 96, 3 seconds of sound",
    seed=5,
)
WHISPER_TINY = entry_of("whisper-tiny", WhisperConfig(), "configuration of openai/whisper-tiny")
