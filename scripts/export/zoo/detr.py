"""DETR: objects in an image of fixed size, found by a ResNet, an encoder and a decoder of object queries.

The traced module has no pixel mask, since no pixel is padding, and stores the position table as its rows and columns.
"""

import re

import torch
from torch import nn
from torch.nn import functional
from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig
from transformers.models.detr.modeling_detr import DetrFrozenBatchNorm2d

from entry import Entry, Port
from published import Published
from transformer_init import transformer_init
from zoo.resnet import StemPool, resnet_init

# The backbone makes one token from 32 by 32 pixels.
STRIDE = 32


class FrozenNorm(nn.Module):
    """DetrFrozenBatchNorm2d as a batch norm operator."""

    def __init__(self, norm: DetrFrozenBatchNorm2d):
        super().__init__()
        for name, buffer in norm.named_buffers():
            self.register_buffer(name, buffer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=1e-5)


def _detections(model: DetrForObjectDetection, pixels: torch.Tensor):
    output = model(pixels)
    return output.logits, output.pred_boxes


def _exportable_detections(rows: torch.Tensor, columns: torch.Tensor):
    """The forward pass for the rows, [1, width / 2, height, 1], and columns of the position table."""

    def detections(model: DetrForObjectDetection, pixels: torch.Tensor):
        detr = model.model
        features = detr.backbone.model(pixels).feature_maps[-1]
        height, width = features.shape[2:]
        table = torch.cat([rows.expand(-1, -1, -1, width), columns.expand(-1, -1, height, -1)], 1)
        places = table.flatten(2).transpose(1, 2)
        encoded = detr.encoder(
            inputs_embeds=detr.input_projection(features).flatten(2).transpose(1, 2),
            spatial_position_embeddings=places,
        ).last_hidden_state
        queries = detr.query_position_embeddings.weight
        states = detr.decoder(
            inputs_embeds=encoded.new_zeros(encoded.shape[0], *queries.shape),
            encoder_hidden_states=encoded,
            spatial_position_embeddings=places,
            object_queries_position_embeddings=queries[None],
        ).last_hidden_state
        return model.class_labels_classifier(states), model.bbox_predictor(states).sigmoid()

    return detections


def _entry(name: str, config: DetrConfig, height: int, width: int, source: str) -> Entry:
    def exportable() -> Published:
        # The backbone has no attention, so this implementation is never used.
        attention = {"": "sdpa", "backbone_config": "eager"}
        model = DetrForObjectDetection._from_config(config, attn_implementation=attention)
        backbone = model.model.backbone.model
        backbone.embedder.pooler = StemPool()
        for module in list(backbone.modules()):
            for child, norm in module.named_children():
                if isinstance(norm, DetrFrozenBatchNorm2d):
                    setattr(module, child, FrozenNorm(norm))
        shape = torch.Size([1, config.d_model, height // STRIDE, width // STRIDE])
        table = model.model.position_embedding(shape, torch.device("cpu"), torch.float32)
        rows, columns = table[..., :1].chunk(2, 1)[0], table[:, :, :1].chunk(2, 1)[1]
        return Published(model, _exportable_detections(rows.clone(), columns.clone()))

    return Entry(
        name=name,
        family="detr",
        modality="image",
        source=f"transformers 5.23.0, DetrForObjectDetection; {source}",
        license="Apache-2.0",
        inputs=[Port("pixel_values", "f32", ["batch", 3, height, width])],
        outputs=[
            Port("logits", "f32", ["batch", config.num_queries, config.num_labels + 1]),
            Port("pred_boxes", "f32", ["batch", config.num_queries, 4]),
        ],
        original=lambda: Published(
            DetrForObjectDetection._from_config(config, attn_implementation="eager"), _detections
        ),
        exportable=exportable,
        init=_init,
    )


def _init(name: str, shape: list[int]) -> dict:
    """Initialises the backbone like torchvision's ResNet, by its names there."""
    if ".conv_encoder." not in name:
        return transformer_init(name, shape)
    name = name.replace("embedder.embedder.", "layer.0.").replace("shortcut.", "downsample.")
    stage = name.partition(".stages.")[2]
    name = re.sub(r"layer\.(\d)\.convolution", lambda match: f"conv{int(match[1]) + 1}", name)
    name = re.sub(r"layer\.(\d)\.normalization", lambda match: f"bn{int(match[1]) + 1}", name)
    name = name.replace("downsample.convolution", "downsample.0").replace("downsample.normalization", "downsample.1")
    return resnet_init(name if stage else name.rsplit("model.", 1)[1], shape)


DETR_SMALL = _entry(
    "detr-small",
    DetrConfig(
        backbone_config=ResNetConfig(
            embedding_size=32, hidden_sizes=[64, 96, 128, 192], depths=[1, 1, 1, 1], out_features=["stage4"]
        ),
        d_model=96,
        encoder_layers=2,
        encoder_ffn_dim=256,
        encoder_attention_heads=4,
        decoder_layers=2,
        decoder_ffn_dim=256,
        decoder_attention_heads=4,
        num_queries=20,
        num_labels=20,
    ),
    192,
    256,
    "a ResNet of 4 blocks, 2 layers of width 96",
)
DETR_R50 = _entry(
    "detr-r50",
    DetrConfig(backbone_config=ResNetConfig(out_features=["stage4"]), num_labels=91),
    480,
    640,
    "configuration of facebook/detr-resnet-50",
)
