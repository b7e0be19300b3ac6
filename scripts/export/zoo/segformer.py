"""SegFormer: a transformer over overlapping patches, whose features of four sizes are resized and joined."""

from torch import nn
from transformers import SegformerConfig, SegformerForSemanticSegmentation

from convolution_init import convolution_init
from entry import Entry, Port
from published import Published
from transformer_init import transformer_init


def _init(name: str, shape: list[int]) -> dict:
    # The head has convolutions and a batch norm.
    return (convolution_init if "decode_head" in name else transformer_init)(name, shape)


def _entry(name: str, config: SegformerConfig, size: int, source: str) -> Entry:
    def build(attention: str) -> nn.Module:
        model = SegformerForSemanticSegmentation._from_config(config, attn_implementation=attention)
        return Published(model, lambda model, pixels: model(pixels).logits)

    return Entry(
        name=name,
        family="segformer",
        modality="image",
        source=f"transformers 5.23.0, SegformerForSemanticSegmentation; {source}",
        license="Apache-2.0",
        inputs=[Port("pixel_values", "f32", ["batch", 3, size, size])],
        outputs=[Port("logits", "f32", ["batch", config.num_labels, size // 4, size // 4])],
        original=lambda: build("eager"),
        exportable=lambda: build("eager"),
        init=_init,
    )


SEGFORMER_SMALL = _entry(
    "segformer-small",
    SegformerConfig(
        depths=[1, 1, 1, 1],
        hidden_sizes=[16, 32, 48, 64],
        num_attention_heads=[1, 2, 3, 4],
        decoder_hidden_size=48,
        num_labels=8,
    ),
    64,
    "4 layers of width 16 to 64",
)
SEGFORMER_B0 = _entry(
    "segformer-b0", SegformerConfig(num_labels=19), 512, "configuration of nvidia/segformer-b0-finetuned-cityscapes-512-1024"
)
