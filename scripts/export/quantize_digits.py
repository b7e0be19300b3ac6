"""Quantises the trained digits network to 8 bits, by the tools of the runtimes that compute it.

x86 without VNNI adds two products of u8 and i8 in 16 bits, which saturates where both have all their bits. Each file
leaves a bit out, or has both factors unsigned, so that no processor gives other answers than the rest.
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
    """Weights of 8 bits; the range of activations is that of each call.

    Weights are u8: ONNX Runtime's ConvInteger takes nearly three times as long with i8 ones.
    """

    def quantize(model: onnx.ModelProto, path: Path) -> None:
        onnx_quantization.quantize_dynamic(model, path, weight_type=onnx_quantization.QuantType.QUInt8)

    return _written(graph, quantize)


def onnx_static(_: nn.Module, graph: onnx.ModelProto) -> bytes:
    """i8 weights of 7 bits with one scale per channel, and u8 activations with a fixed range.

    That is ONNX Runtime's advice for x86 without VNNI. With VNNI, i8 activations are as fast, and u8 weights take 1.4
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

    The archive is frozen: code of one function, and its constants. A runtime packs the weights for its own engine.
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
    """All of them, in one batch."""

    def __init__(self):
        self._feeds = iter([{"input": train_digits.split().pictures}])

    def get_next(self) -> dict | None:
        return next(self._feeds, None)


def _written(graph: onnx.ModelProto, quantize: Callable[[onnx.ModelProto, Path], None]) -> bytes:
    """ONNX Runtime's tools write a file, and change the graph that they are given."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        quantize(deepcopy(graph), path)
        return path.read_bytes()
