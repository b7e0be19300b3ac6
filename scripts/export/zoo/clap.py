"""CLAP: embeds audio and text in one space.

The audio is a log-mel spectrogram of ten seconds, folded into a square for a Swin transformer. A sample is a pair of
audio and text, and the similarities are those of the pair. The traced module keeps values that do not depend on the
input as small tables: the taps of the bicubic interpolation in time, and the regions of shifted windows.
"""

import torch
from torch import nn
from torch.nn import functional
from transformers import ClapConfig, ClapModel

import text_masks
from entry import Entry, Port
from published import Published
from transformer_init import transformer_init
from zoo.clip import normalized, text_ports


class TimeStretch:
    """Bicubic interpolation of [batch, 1, time, mels] from `frames` to `width` time steps: four taps each."""

    def __init__(self, frames: int, width: int):
        unit = torch.eye(frames)[None, None]
        matrix = functional.interpolate(unit, (width, frames), mode="bicubic", align_corners=True)[0, 0]
        index = matrix.abs().topk(4).indices.sort().values
        self.taps = [(index[:, tap].clone(), matrix.gather(1, index)[:, tap, None].clone()) for tap in range(4)]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return sum(x.index_select(2, index) * weight for index, weight in self.taps)


class ShiftMask:
    """Added to the scores of shifted windows: -100 between positions that are not neighbours, [windows, n, n]."""

    def __init__(self, mask: torch.Tensor, window: int):
        # The number of a region is its first position.
        self.region = (mask == 0).to(torch.float32).argmax(2).to(torch.float32)
        self.window = window

    def __call__(self, height: int, width: int, **_kind) -> torch.Tensor:
        # The size is taken from the input, or the exporter would store the mask, which has a megabyte.
        region = self.region.reshape(height // self.window * (width // self.window), self.window**2)
        return (region[:, :, None] != region[:, None, :]).to(torch.float32) * -100.0


class TimeMean(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(2)


def _exportable_audio(encoder: nn.Module, frames: int) -> None:
    """Rewrites the Swin transformer in place."""
    ratio, size, mels = encoder.freq_ratio, encoder.spec_size, encoder.config.num_mel_bins
    assert mels * ratio == size
    stretch = TimeStretch(frames, size * ratio)

    def fold(x: torch.Tensor) -> torch.Tensor:
        """[batch, 1, frames, mels] to [batch, 1, size, size]."""
        x = stretch(x).reshape(-1, ratio, size, mels)
        return x.transpose(2, 3).reshape(-1, 1, size, size)

    encoder.reshape_mel2img = fold
    encoder.avgpool = TimeMean()
    for stage, resolution in zip(encoder.layers, encoder.input_resolutions):
        for block in stage.blocks:
            block.set_shift_and_window_size(resolution)
            assert all(side % block.window_size == 0 for side in resolution)
            mask = block.get_attn_mask(*resolution, torch.float32, torch.device("cpu"))
            block.get_attn_mask = (lambda *_size, **_kind: None) if mask is None else ShiftMask(mask, block.window_size)
            block.set_shift_and_window_size = lambda _resolution: None
            block.maybe_pad = lambda states, _height, _width: (states, (0,) * 6)


def _pair(model: ClapModel, tokens, mask, sound):
    output = model(input_ids=tokens, attention_mask=mask, input_features=sound)
    return (
        output.logits_per_audio.diagonal(),
        output.logits_per_text.diagonal(),
        output.audio_embeds,
        output.text_embeds,
    )


def _exportable_pair(model: ClapModel, tokens, mask, sound):
    audio = normalized(model.audio_projection(model.audio_model.audio_encoder(sound).pooler_output))
    states = model.text_model(
        input_ids=tokens,
        attention_mask=text_masks.padding(mask),
        position_ids=text_masks.positions(tokens, model.config.text_config.pad_token_id),
        token_type_ids=tokens.new_zeros(1, 1),
    )
    text = normalized(model.text_projection(states.pooler_output))
    similarity = (audio * text).sum(1)
    return similarity * model.logit_scale_a.exp(), similarity * model.logit_scale_t.exp(), audio, text


def _entry(name: str, config: ClapConfig, frames: int, source: str, sequence_lengths: list[int]) -> Entry:
    def original() -> Published:
        return Published(ClapModel._from_config(config, attn_implementation="eager"), _pair)

    def exportable() -> Published:
        model = ClapModel._from_config(config, attn_implementation="eager")
        _exportable_audio(model.audio_model.audio_encoder, frames)
        return Published(model, _exportable_pair)

    return Entry(
        name=name,
        family="clap",
        modality="multimodal",
        source=f"transformers 5.23.0, ClapModel; {source}",
        license="Apache-2.0",
        inputs=[
            *text_ports(config.text_config.vocab_size),
            Port("input_features", "f32", ["batch", 1, frames, config.audio_config.num_mel_bins]),
        ],
        outputs=[
            Port("logits_per_audio", "f32", ["batch"]),
            Port("logits_per_text", "f32", ["batch"]),
            Port("audio_embeds", "f32", ["batch", config.projection_dim]),
            Port("text_embeds", "f32", ["batch", config.projection_dim]),
        ],
        original=original,
        exportable=exportable,
        init=_init,
        sequence_lengths=sequence_lengths,
    )


def _init(name: str, shape: list[int]) -> dict:
    if name.endswith("running_mean"):
        return {"normal": 0.1}
    if name.endswith("running_var"):
        return {"uniform": [0.5, 1.5]}
    return transformer_init(name, shape)


CLAP_SMALL = _entry(
    "clap-small",
    ClapConfig(
        projection_dim=64,
        text_config={
            "vocab_size": 1000,
            "hidden_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 384,
            "max_position_embeddings": 130,
            "projection_dim": 64,
        },
        audio_config={
            "spec_size": 64,
            "num_mel_bins": 16,
            "window_size": 4,
            "patch_embeds_hidden_size": 32,
            "depths": [2, 2, 2],
            "num_attention_heads": [2, 4, 8],
            "hidden_size": 128,
            "projection_dim": 64,
        },
    ),
    250,
    "2 layers of width 96 for texts, 6 of width 32 to 128 for sounds",
    [32],
)
CLAP = _entry(
    "clap",
    ClapConfig(audio_config={"enable_fusion": False}),
    1001,
    "configuration of laion/clap-htsat-unfused",
    [32, 128],
)
