"""ModernBERT: rotary positions, gated units, and attention to a window of tokens in two of three layers."""

import torch
from torch import nn
from transformers import ModernBertConfig, ModernBertModel

from entry import Entry, Port
from published import Published
from transformer_init import fan_in, transformer_init


# Positions of the longest text that is measured, [1, positions].
PLACES = torch.arange(1024, dtype=torch.float32)[None]


def _mean(model: ModernBertModel, tokens: torch.Tensor) -> torch.Tensor:
    """The mean of the states of all tokens, [batch, width]."""
    return model(tokens).last_hidden_state.mean(1)


class Rotation(nn.Module):
    """ModernBertRotaryEmbedding without a device in its trace."""

    def __init__(self, rotation: nn.Module):
        super().__init__()
        self._of_layers = {kind: getattr(rotation, f"{kind}_inv_freq") for kind in rotation.layer_types}

    def forward(self, _states, positions: torch.Tensor, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
        angles = positions[:, :, None] * self._of_layers[kind]
        angles = torch.cat([angles, angles], 2)
        return angles.cos(), angles.sin()


def _exportable(model: ModernBertModel, tokens: torch.Tensor) -> torch.Tensor:
    # Texts have no padding, so only the distance decides which tokens see each other.
    places = PLACES[:, : tokens.shape[1]]
    distance = (places[:, :, None] - places[:, None, :]).abs()
    near = (distance - model.config.sliding_window).clamp(min=0, max=1) * -1e9
    masks = {"full_attention": None, "sliding_attention": near[:, None]}
    return model(tokens, attention_mask=masks, position_ids=places).last_hidden_state.mean(1)


def _init(name: str, shape: list[int]) -> dict:
    if name.endswith("Wqkv.weight"):
        return {"normal": fan_in(shape, 3)}
    if "tok_embeddings" in name:
        return {"normal": 0.5}
    return transformer_init(name, shape)


def _entry(name: str, config: ModernBertConfig, source: str, sequence_lengths: list[int]) -> Entry:
    def model() -> ModernBertModel:
        return ModernBertModel._from_config(config, attn_implementation="eager")

    def exportable() -> Published:
        rewritten = model()
        rewritten.rotary_emb = Rotation(rewritten.rotary_emb)
        return Published(rewritten, _exportable)

    return Entry(
        name=name,
        family="modernbert",
        modality="text",
        source=f"transformers 5.23.0, ModernBertModel; {source}",
        license="Apache-2.0",
        inputs=[Port("input_ids", "i64", ["batch", "sequence"], below=config.vocab_size)],
        outputs=[Port("mean_state", "f32", ["batch", config.hidden_size])],
        original=lambda: Published(model(), _mean),
        exportable=exportable,
        init=_init,
        sequence_lengths=sequence_lengths,
    )


MODERNBERT_SMALL = _entry(
    "modernbert-small",
    ModernBertConfig(
        vocab_size=1000,
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=144,
        local_attention=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        cls_token_id=1,
        sep_token_id=2,
    ),
    "3 layers of width 96",
    [32],
)
MODERNBERT_BASE = _entry(
    "modernbert-base", ModernBertConfig(), "configuration of answerdotai/ModernBERT-base", [32, 256]
)
