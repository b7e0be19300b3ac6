"""CLIP: embeds an image and a text in one space.

A sample is a pair of both. The similarity is that of the pair, the diagonal of the matrix that transformers returns.
"""

import torch
from torch import nn
from transformers import CLIPConfig, CLIPModel

import text_masks
from entry import Entry, Port
from published import Published
from transformer_init import transformer_init


def text_state(text_model: nn.Module, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The pooled state of CLIP's text model, [batch, width]; X-CLIP has the same."""
    embeddings = text_model.embeddings
    states = text_model.encoder(
        inputs_embeds=embeddings(tokens),
        attention_mask=text_masks.causal(mask, embeddings.position_ids[0]),
        is_causal=False,
    ).last_hidden_state
    return text_masks.last_token(text_model.final_layer_norm(states), tokens)


def normalized(embeds: torch.Tensor) -> torch.Tensor:
    """[batch, width] to unit length, with the axis counted from the front and no norm operator."""
    return embeds / (embeds * embeds).sum(1, keepdim=True).sqrt()


def text_ports(vocabulary: int) -> list[Port]:
    return [
        Port("input_ids", "i64", ["batch", "sequence"], below=vocabulary),
        Port("attention_mask", "i64", ["batch", "sequence"], constant=1),
    ]


def _pair(model: CLIPModel, tokens, mask, pixels):
    output = model(input_ids=tokens, attention_mask=mask, pixel_values=pixels)
    return output.logits_per_image.diagonal(), output.image_embeds, output.text_embeds


def _exportable_pair(model: CLIPModel, tokens, mask, pixels):
    image = normalized(model.visual_projection(model.vision_model(pixels).pooler_output))
    text = normalized(model.text_projection(text_state(model.text_model, tokens, mask)))
    return (image * text).sum(1) * model.logit_scale.exp(), image, text


def entry_of(name: str, config: CLIPConfig, source: str, sequence_lengths: list[int]) -> Entry:
    size, width = config.vision_config.image_size, config.projection_dim
    return Entry(
        name=name,
        family="clip",
        modality="multimodal",
        source=f"transformers 5.23.0, CLIPModel; {source}",
        license="Apache-2.0",
        inputs=[*text_ports(config.text_config.vocab_size), Port("pixel_values", "f32", ["batch", 3, size, size])],
        outputs=[
            Port("logits", "f32", ["batch"]),
            Port("image_embeds", "f32", ["batch", width]),
            Port("text_embeds", "f32", ["batch", width]),
        ],
        original=lambda: Published(CLIPModel._from_config(config, attn_implementation="eager"), _pair),
        exportable=lambda: Published(CLIPModel._from_config(config, attn_implementation="sdpa"), _exportable_pair),
        init=transformer_init,
        sequence_lengths=sequence_lengths,
    )


CLIP_SMALL = entry_of(
    "clip-small",
    CLIPConfig(
        projection_dim=64,
        text_config={
            "vocab_size": 1000,
            "hidden_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 384,
            "bos_token_id": 998,
            # The value in the published configurations; with it, the end of text is the token with the highest number.
            "eos_token_id": 2,
        },
        vision_config={
            "hidden_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 512,
            "image_size": 64,
            "patch_size": 16,
        },
    ),
    "2 layers of width 96 for texts and of 128 for pictures",
    [32],
)
CLIP_B32 = entry_of(
    "clip-b32",
    CLIPConfig(text_config={"bos_token_id": 0, "eos_token_id": 2}),
    "configuration of openai/clip-vit-base-patch32",
    [32, 77],
)
