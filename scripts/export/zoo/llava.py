"""LLaVA and LLaVA-NeXT: an image's patches become the first tokens of a text.

LLaVA-NeXT sees the whole image and a grid of 2 by 2 crops at twice the resolution; the grid is fixed here.
"""

from functools import partial

import torch
from torch.nn import functional
from transformers import (
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    PreTrainedModel,
)

from attention import attend, decoder_ports, merge_heads, split_heads
from entry import SAMPLES, Generative, Part, Port, Prompt
from transformer_init import fan_in, transformer_init
from zoo.causal_lm import QWEN2_05B_CONFIG, decode, past_ports, rope

GRID = 2
# If the reference's image features have more bytes than this, only `SAMPLE` per image are compared, evenly spaced.
LARGE = 1 << 20
SAMPLE = 8


def _patches(model: PreTrainedModel, pixels: torch.Tensor) -> torch.Tensor:
    """[pictures, 3, size, size] to the projected states of the patches, [pictures, patches, width].

    They are the states before the last layer of the vision tower, without the class token.
    """
    tower = model.model.vision_tower
    states = tower.pre_layrnorm(tower.embeddings(pixels))
    for layer in tower.encoder.layers[:-1]:
        attention, normed = layer.self_attn, layer.layer_norm1(states)
        queries, keys, values = (
            split_heads(project(normed), attention.num_heads)
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        states = states + attention.out_proj(merge_heads(attend(queries * attention.scale, keys, values)))
        states = states + layer.mlp(layer.layer_norm2(states))
    projector = model.model.multi_modal_projector
    return projector.linear_2(functional.gelu(projector.linear_1(states[:, 1:])))


def _grid(order: torch.Tensor, model: LlavaNextForConditionalGeneration, pixels: torch.Tensor) -> torch.Tensor:
    """`order` has the indices of the patches of all crops; the index after the last patch is the end of a line."""
    patches = _patches(model, pixels.flatten(0, 1))
    patches = patches.reshape(pixels.shape[0], -1, patches.shape[2])
    end = model.model.image_newline.expand(pixels.shape[0], 1, -1)
    return torch.cat([patches, end], 1).index_select(1, order)


def _grid_order(side: int) -> torch.Tensor:
    """The order of patches: the whole image, then the lines of the grid, each with its end. `side` is in patches."""
    crops = torch.arange((1 + GRID**2) * side**2).view(1 + GRID**2, side, side)
    grid = crops[1:].view(GRID, GRID, side, side).transpose(1, 2).reshape(GRID * side, GRID * side)
    end = torch.full([GRID * side, 1], crops.numel())
    return torch.cat([crops[0].flatten(), torch.cat([grid, end], 1).flatten()])


def _sampled(features, every: int):
    """The part that computes image features with `features`, and a sample of them if `every` is more than 1."""

    def vision(model: PreTrainedModel, pixels: torch.Tensor):
        every_feature = features(model, pixels)
        return (every_feature, every_feature[:, ::every]) if every > 1 else every_feature

    return vision


def _next_token(model: PreTrainedModel, features, tokens, position_ids, bias, *past):
    decoder = model.model.language_model
    states = torch.cat([features, decoder.embed_tokens(tokens)], 1)
    state, present = decode(decoder, states, position_ids, bias, past)
    return model.lm_head(state), *present


def _prompt(every: int, model: PreTrainedModel, pixels: torch.Tensor, tokens: torch.Tensor) -> Prompt:
    # In LLaVA, the image is a single crop.
    config, sizes = model.config, {}
    if pixels.dim() == 5:
        sizes = {"image_sizes": torch.tensor(config.image_grid_pinpoints * len(pixels))}
    image = model.get_image_features(pixels, **sizes, return_dict=True)
    features = torch.stack(list(image.pooler_output))
    places = tokens.new_full(features.shape[:2], config.image_token_id)
    given = {"input_ids": torch.cat([places, tokens], 1), "mm_encoder_outputs": {"image": image}}
    return Prompt(given | {"logits_to_keep": 1}, encoded=[features[:, ::every]])


def _init(name: str, shape: list[int], layers: int, contrast: float) -> dict:
    """`layers` are those of the vision tower.

    The common component of all patches is kept small: otherwise a text would mainly attend to it, and every image would
    give the same few tokens. Attention over very many patches is close to a mean, which hardly depends on the image, so
    `contrast` makes the features larger.
    """
    if name == "image_newline":
        return {"normal": 0.5 * contrast}
    if not name.startswith(("vision_tower.", "multi_modal_projector.")):
        return transformer_init(name, shape)
    if name.endswith((".bias", "position_embedding.weight")):
        return {"normal": 0.02 if len(shape) == 1 else 0.1}
    if name.endswith(("out_proj.weight", "fc2.weight")):
        return {"normal": fan_in(shape, 1 / (2 * layers))}
    # For small values, a GELU is nearly linear, so its outputs have a mean near 0.
    gains = {"multi_modal_projector.linear_1.weight": 0.04, "multi_modal_projector.linear_2.weight": 50 * contrast}
    return {"normal": fan_in(shape, gains[name])} if name in gains else transformer_init(name, shape)


def _entry(
    name: str,
    config: LlavaConfig | LlavaNextConfig,
    source: str,
    sequence_lengths: list[int],
    seed: int = 1,
    contrast: float = 1.0,
) -> Generative:
    vision, text = config.vision_config, config.text_config
    side, size, width = vision.image_size // vision.patch_size, vision.image_size, text.hidden_size
    if isinstance(config, LlavaNextConfig):
        model_class, pixels = LlavaNextForConditionalGeneration, [1 + GRID**2, 3, size, size]
        order = _grid_order(side)
        features, places = partial(_grid, order), len(order)
    else:
        model_class, pixels, features, places = LlavaForConditionalGeneration, [3, size, size], _patches, side**2
    every = places // SAMPLE if places * width * 4 * SAMPLES > LARGE else 1
    image = Port("image_features", "f32", ["batch", places, width])
    sample = Port("image_sample", "f32", ["batch", -(-places // every), width])
    pictures = Port("pixel_values", "f32", ["batch", *pixels])
    past = past_ports(text, "past", "past")
    decoder = decoder_ports("input_ids", text.vocab_size, text.max_position_embeddings, past)
    return Generative(
        name=name,
        family=config.model_type,
        modality="multimodal",
        source=f"transformers 5.23.0, {model_class.__name__}; {source}",
        license="Apache-2.0",
        inputs=[pictures, Port("input_ids", "i64", ["batch", "sequence"], below=config.image_token_id)],
        build=lambda: model_class._from_config(config, attn_implementation="eager"),
        prompt=partial(_prompt, every),
        parts=[
            Part("vision", [pictures], [image, sample] if every > 1 else [image], _sampled(features, every)),
            Part(
                "lm",
                [Port("image_features", "f32", ["batch", "image", width]), *decoder],
                [Port("logits", "f32", ["batch", text.vocab_size]), *past_ports(text, "present", "total")],
                _next_token,
            ),
        ],
        init=lambda name, shape: _init(name, shape, vision.num_hidden_layers, contrast),
        prefix_positions=places,
        once=("image_features",),
        encoded=[sample if every > 1 else image],
        # The layers after the states that are used.
        idle=(
            f"vision_tower.vision_model.encoder.layers.{vision.num_hidden_layers - 1}.",
            "vision_tower.vision_model.post_layernorm.",
        ),
        prefixes=(("vision_tower.", "vision_tower.vision_model."),),
        sequence_lengths=sequence_lengths,
        seed=seed,
    )


_SMALL = {
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "image_size": 64,
        "patch_size": 16,
    },
    "text_config": {
        "model_type": "qwen2",
        "vocab_size": 1000,
        "hidden_size": 96,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "rope_parameters": rope(1000000.0),
        "tie_word_embeddings": True,
    },
    "image_token_index": 999,
    "tie_word_embeddings": True,
}
_SMALL_SOURCE = "3 layers of width 64 for pictures, 2 of width 96 for texts"
_KEY = {
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "image_size": 224,
        "patch_size": 14,
        "projection_dim": 768,
    },
    "text_config": {"model_type": "qwen2", **QWEN2_05B_CONFIG},
    "image_token_index": 151646,
    "tie_word_embeddings": True,
}
_KEY_SOURCE = "configurations of openai/clip-vit-large-patch14 and Qwen/Qwen2-0.5B"


def _next_config(config: dict) -> LlavaNextConfig:
    side = GRID * config["vision_config"]["image_size"]
    return LlavaNextConfig(**config, image_grid_pinpoints=[[side, side]])


LLAVA_SMALL = _entry("llava-small", LlavaConfig(**_SMALL), _SMALL_SOURCE, [32])
LLAVA_NEXT_SMALL = _entry("llava-next-small", _next_config(_SMALL), _SMALL_SOURCE, [32], seed=4)
LLAVA_05B = _entry("llava-0.5b", LlavaConfig(**_KEY), _KEY_SOURCE, [32])
LLAVA_NEXT_05B = _entry("llava-next-0.5b", _next_config(_KEY), _KEY_SOURCE, [32], seed=5, contrast=10.0)
