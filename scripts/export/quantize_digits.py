"""Quantises the trained digits network to 8 bits, with the tools of the runtimes that compute it.

x86 without VNNI adds two products of u8 and i8 in 16 bits, which saturates if both factors use all bits. Each file
therefore uses one bit less, or has two unsigned factors, so that all processors give the same answers.
"""

import io
import tempfile
import warnings
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import onnx
import torch
from onnxruntime import quantization as onnx_quantization
from torch import nn
from torch.ao import quantization as torch_quantization

import torchscript
import train_digits

ENGINE = "x86"


def onnx_dynamic(_: nn.Module, graph: onnx.ModelProto) -> bytes:
    """Weights of 8 bits; the range of activations is found in each call.

    Weights are u8, because ONNX Runtime's ConvInteger takes nearly three times as long with i8.
    """

    def quantize(model: onnx.ModelProto, path: Path) -> None:
        onnx_quantization.quantize_dynamic(model, path, weight_type=onnx_quantization.QuantType.QUInt8)

    return _written(graph, quantize)


def onnx_static(_: nn.Module, graph: onnx.ModelProto) -> bytes:
    """i8 weights of 7 bits with one scale per channel, and u8 activations with a fixed range.

    ONNX Runtime recommends this for x86 without VNNI. With VNNI, i8 activations are as fast, and u8 weights take 1.4
    times as long.
    """

    def quantize(model: onnx.ModelProto, path: Path) -> None:
        onnx_quantization.quantize_static(
            model,
            path,
            _TrainingPictures(),
            quant_format=onnx_quantization.QuantFormat.QDQ,
            per_channel=True,
            reduce_range=True,
            activation_type=onnx_quantization.QuantType.QUInt8,
            weight_type=onnx_quantization.QuantType.QInt8,
        )

    return _written(graph, quantize)


def torch_static(original: nn.Module, _: onnx.ModelProto) -> bytes:
    """i8 weights with one scale per channel, and activations of 7 bits with a fixed range.

    The archive is frozen: it has the code of one function, and constants. A runtime packs the weights for its engine.
    """
    torch.backends.quantized.engine = ENGINE
    # Some quantised operators have no algorithm that PyTorch declares deterministic.
    torch.use_deterministic_algorithms(False)
    pictures = torch.from_numpy(train_digits.split().pictures)
    layers = deepcopy(original).eval()
    torch_quantization.fuse_modules(layers, [["conv1", "relu1"], ["conv2", "relu2"], ["fc1", "relu3"]], inplace=True)
    model = nn.Sequential(torch_quantization.QuantStub(), layers, torch_quantization.DeQuantStub()).eval()
    model.qconfig = torch_quantization.get_default_qconfig(ENGINE)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch_quantization.prepare(model, inplace=True)
        model(pictures)
        torch_quantization.convert(model, inplace=True)
        traced = torch.jit.trace(model, pictures[:2], check_inputs=[pictures[:3]])
        frozen = torch.jit.freeze(traced)
    buffer = io.BytesIO()
    torch.jit.save(frozen, buffer)
    return torchscript.repack(buffer)


class _TrainingPictures(onnx_quantization.CalibrationDataReader):
    """All training images, in one batch."""

    def __init__(self):
        self._feeds = iter([{"input": train_digits.split().pictures}])

    def get_next(self) -> dict | None:
        return next(self._feeds, None)


def _written(graph: onnx.ModelProto, quantize: Callable[[onnx.ModelProto, Path], None]) -> bytes:
    """Gives ONNX Runtime's tools a copy of the graph, which they change, and reads the file that they write."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        quantize(deepcopy(graph), path)
        return path.read_bytes()
