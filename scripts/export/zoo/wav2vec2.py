"""wav2vec 2.0 with a CTC head: audio at 16 kHz to logits of letters, 50 per second."""

import torch
from torch import nn
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC
from transformers.modeling_outputs import BaseModelOutput

from entry import Entry, Port
from published import Published
from transformer_init import fan_in, transformer_init


class ChannelNorm(nn.Module):
    """nn.GroupNorm with one group per channel, [batch, channels, time], written out.

    It exports to InstanceNormalization, which not every backend has.
    """

    def __init__(self, norm: nn.GroupNorm):
        super().__init__()
        assert norm.num_groups == norm.num_channels
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x - x.mean(2, keepdim=True)
        x = x / ((x * x).mean(2, keepdim=True) + self.eps).sqrt()
        return x * self.weight[:, None] + self.bias[:, None]


class DirectionNorm(nn.Module):
    """The weight norm of the positional convolution: length and direction of each tap, without a norm operator."""

    def forward(self, length: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        return direction * (length / (direction * direction).sum((0, 1), keepdim=True).sqrt())


def _encoder(encoder: nn.Module):
    """The encoder without a mask. A trace of the original would contain the device."""

    def forward(states: torch.Tensor, **_options) -> BaseModelOutput:
        states = encoder.layer_norm(states + encoder.pos_conv_embed(states))
        for layer in encoder.layers:
            states = layer(states)
        return BaseModelOutput(last_hidden_state=states)

    return forward


def _logits(model, sound):
    return model(sound).logits


def entry_of(name: str, config: Wav2Vec2Config, source: str, sequence_lengths: list[int]) -> Entry:
    def build(model: Wav2Vec2ForCTC) -> Published:
        # The embedding of masked frames is for training only.
        return Published(model, _logits, unused=("wav2vec2.masked_spec_embed",))

    def exportable() -> Published:
        model = Wav2Vec2ForCTC._from_config(config, attn_implementation="sdpa")
        first = model.wav2vec2.feature_extractor.conv_layers[0]
        first.layer_norm = ChannelNorm(first.layer_norm)
        model.wav2vec2.encoder.pos_conv_embed.conv.parametrizations.weight[0] = DirectionNorm()
        model.wav2vec2.encoder.forward = _encoder(model.wav2vec2.encoder)
        return build(model)

    return Entry(
        name=name,
        family="wav2vec2",
        modality="audio",
        source=f"transformers 5.23.0, Wav2Vec2ForCTC; {source}",
        license="Apache-2.0",
        inputs=[Port("input_values", "f32", ["batch", "sequence"])],
        outputs=[Port("logits", "f32", ["batch", "frames", config.vocab_size])],
        original=lambda: build(Wav2Vec2ForCTC._from_config(config, attn_implementation="eager")),
        exportable=exportable,
        init=_init,
        sequence_lengths=sequence_lengths,
    )


def _init(name: str, shape: list[int]) -> dict:
    if name.endswith("weight.original0"):
        # The norm of each tap, over all pairs of channels in its group.
        return {"uniform": [1.0, 3.0]}
    if ".conv_layers." in name and len(shape) == 3:
        # A GELU halves the power.
        return {"normal": fan_in(shape, 2)}
    return transformer_init(name, shape)


WAV2VEC2_SMALL = entry_of(
    "wav2vec2-small",
    Wav2Vec2Config(
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=384,
        conv_dim=(48,) * 7,
        num_conv_pos_embeddings=32,
        num_conv_pos_embedding_groups=4,
    ),
    "3 layers of width 96",
    [4000],
)
WAV2VEC2_BASE = entry_of(
    "wav2vec2-base", Wav2Vec2Config(), "configuration of facebook/wav2vec2-base-960h", [16000]
)
