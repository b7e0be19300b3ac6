"""digits: a small convolutional network that is really trained, on 8x8 images of handwritten digits.

Input: [batch, 1, 8, 8] with values 0..1. Output: 10 classes.

    Conv2d(1, 16, 3, padding 1), ReLU, MaxPool2d(2)     [batch, 16, 4, 4]
    Conv2d(16, 32, 3, padding 1), ReLU, MaxPool2d(2)    [batch, 32, 2, 2]
    Flatten, Linear(128, 64), ReLU, Linear(64, 10)      [batch, 10]

Its variants are the same network with fewer weights, or with weights of 8 bits.
"""

import importlib
import re
from functools import partial
from pathlib import Path

import torch
from torch import nn

from entry import Entry, Port, QuantizedVariant, TrainedVariant


def _by(module: str, name: str):
    """A function whose module is imported when it is called. Running the network does not need its packages."""
    return lambda *given: getattr(importlib.import_module(module), name)(*given)


ONNXRUNTIME = re.search(r"onnxruntime==(\S+)", (Path(__file__).parent.parent / "requirements.txt").read_text())[1]


def _network(conv1: int = 16, conv2: int = 32, fc1: int = 64) -> nn.Module:
    model = nn.Sequential()
    model.add_module("conv1", nn.Conv2d(1, conv1, 3, padding=1))
    model.add_module("relu1", nn.ReLU())
    model.add_module("pool1", nn.MaxPool2d(2))
    model.add_module("conv2", nn.Conv2d(conv1, conv2, 3, padding=1))
    model.add_module("relu2", nn.ReLU())
    model.add_module("pool2", nn.MaxPool2d(2))
    model.add_module("flatten", nn.Flatten())
    model.add_module("fc1", nn.Linear(4 * conv2, fc1))
    model.add_module("relu3", nn.ReLU())
    model.add_module("fc2", nn.Linear(fc1, 10))
    return model


DIGITS = Entry(
    name="digits",
    family="cnn",
    modality="image",
    source="inferbench, scripts/export/zoo/digits.py; scikit-learn 1.9.1, sklearn.datasets.load_digits",
    # The network is this project's. It was trained on the UCI repository's optical recognition of handwritten digits.
    license="(MIT OR Apache-2.0) AND CC-BY-4.0",
    inputs=[Port("input", "f32", ["batch", 1, 8, 8])],
    outputs=[Port("logits", "f32", ["batch", 10])],
    original=_network,
    exportable=_network,
    init=None,
    extra={
        "weights": "../../trained/digits.safetensors",
        "classes": 10,
        "data_source": "recorded:../../trained/digits-held-out.safetensors",
    },
    variants=[
        TrainedVariant(
            "pruned-unstructured",
            _network,
            _by("prune_digits", "unstructured"),
            "70 % of the weights 0 by magnitude, fine-tuned",
        ),
        TrainedVariant(
            "pruned-structured",
            partial(_network, 8, 16, 32),
            _by("prune_digits", "structured"),
            "half of the channels and neurons removed, those with the smallest weights, fine-tuned",
        ),
        TrainedVariant(
            "distilled",
            partial(_network, 6, 12, 24),
            _by("distil_digits", "distil"),
            "a smaller network, trained with the original's outputs and the labels",
        ),
        QuantizedVariant(
            "int8-dynamic",
            "onnx",
            _by("quantize_digits", "onnx_dynamic"),
            f"ONNX Runtime {ONNXRUNTIME}, quantize_dynamic",
        ),
        QuantizedVariant(
            "int8-static",
            "onnx",
            _by("quantize_digits", "onnx_static"),
            f"ONNX Runtime {ONNXRUNTIME}, quantize_static, one scale per channel, "
            "calibrated on training pictures",
        ),
        QuantizedVariant(
            "int8-torch",
            "torchscript",
            _by("quantize_digits", "torch_static"),
            f"PyTorch {torch.__version__.split('+')[0]}, torch.ao.quantization, static, one scale per channel, "
            "calibrated on training pictures",
        ),
    ],
)
