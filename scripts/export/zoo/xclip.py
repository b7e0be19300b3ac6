"""X-CLIP: embeds a short video and a text in one space, with the text prompted by the video.

A sample is a pair of both. transformers prompts each text with each video of the batch; the traced module computes only
the pairs, which are the diagonal.
"""

from transformers import XCLIPConfig, XCLIPModel

from entry import Entry, Port
from published import Published
from transformer_init import transformer_init
from zoo.clip import normalized, text_ports, text_state


def _pair(model: XCLIPModel, tokens, mask, pixels):
    output = model(input_ids=tokens, attention_mask=mask, pixel_values=pixels)
    text = output.text_embeds.diagonal(dim1=0, dim2=1).transpose(0, 1)
    return output.logits_per_video.diagonal(), output.video_embeds, text


def _exportable_pair(model: XCLIPModel, tokens, mask, pixels):
    frames, width = model.config.vision_config.num_frames, model.config.projection_dim
    seen = model.vision_model(pixels.flatten(0, 1))
    video = model.mit(model.visual_projection(seen.pooler_output).reshape(-1, frames, width)).pooler_output
    patches = model.prompts_visual_layernorm(seen.last_hidden_state[:, 1:]) @ model.prompts_visual_projection
    patches = patches.reshape(-1, frames, model.vision_model.embeddings.num_patches, width).mean(1)
    text = model.text_projection(text_state(model.text_model, tokens, mask))[:, None]
    text = text + model.prompts_generator(text, patches)
    video, text = normalized(video), normalized(text[:, 0])
    return (video * text).sum(1) * model.logit_scale.exp(), video, text


def _entry(name: str, config: XCLIPConfig, source: str, sequence_lengths: list[int]) -> Entry:
    vision, width = config.vision_config, config.projection_dim
    return Entry(
        name=name,
        family="xclip",
        modality="multimodal",
        source=f"transformers 5.23.0, XCLIPModel; {source}",
        license="Apache-2.0",
        inputs=[
            *text_ports(config.text_config.vocab_size),
            Port("pixel_values", "f32", ["batch", vision.num_frames, 3, vision.image_size, vision.image_size]),
        ],
        outputs=[
            Port("logits", "f32", ["batch"]),
            Port("video_embeds", "f32", ["batch", width]),
            Port("text_embeds", "f32", ["batch", width]),
        ],
        original=lambda: Published(XCLIPModel._from_config(config, attn_implementation="eager"), _pair),
        exportable=lambda: Published(XCLIPModel._from_config(config, attn_implementation="sdpa"), _exportable_pair),
        init=_init,
        sequence_lengths=sequence_lengths,
    )


def _init(name: str, shape: list[int]) -> dict:
    if name == "prompts_generator.alpha":
        # The scale of the prompt; training starts with 0.1.
        return {"uniform": [0.05, 0.15]}
    return transformer_init(name, shape)


XCLIP_SMALL = _entry(
    "xclip-small",
    XCLIPConfig(
        projection_dim=64,
        prompt_layers=1,
        prompt_num_attention_heads=4,
        text_config={
            "vocab_size": 1000,
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 256,
            "bos_token_id": 998,
            "eos_token_id": 999,
        },
        vision_config={
            "hidden_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 384,
            "mit_hidden_size": 64,
            "mit_intermediate_size": 256,
            "mit_num_attention_heads": 4,
            "image_size": 64,
            "patch_size": 16,
            "num_frames": 4,
        },
    ),
    "2 layers of width 64 for texts and of 96 for videos",
    [32],
)
XCLIP_B32 = _entry("xclip-b32", XCLIPConfig(), "configuration of microsoft/xclip-base-patch32", [32, 77])
