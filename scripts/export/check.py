"""Runs the written files as a backend would and compares them with PyTorch.

The ONNX graph is read from disk beside a weights file; the TorchScript archive is loaded and given its weights by name.
Those that are quantised have their weights inside.
"""

import io
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from torch import nn

BATCHES = (1, 2, 8)
# From inputs, by name and in the order of the graph, to its outputs.
Runner = Callable[[dict[str, np.ndarray]], list[np.ndarray]]


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference over the largest finite number. Equal infinities do not differ, nor does what is no number in both."""
    assert actual.shape == expected.shape, f"a shape of {actual.shape} and not {expected.shape}"
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=0)) or 1.0
    is_other = (actual != expected) & ~(np.isnan(actual) & np.isnan(expected))
    error = float(np.abs(actual[is_other] - expected[is_other]).max(initial=0)) / scale
    # `max` would leave out what is no number.
    return math.inf if math.isnan(error) else error


def eager(model: nn.Module, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What PyTorch gives."""
    with torch.no_grad():
        output = model(*(torch.from_numpy(value) for value in feed.values()))
    # A view, such as a diagonal, would be stored with the memory that it skips.
    return [value.contiguous().numpy() for value in (output if isinstance(output, tuple) else (output,))]


def onnx_runner(graph: Path | bytes) -> Runner:
    """ONNX Runtime; `graph` lies beside its weights, or has them inside."""
    model = graph if isinstance(graph, bytes) else str(graph)
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)


def torchscript_runner(archive: bytes, weights: dict[str, np.ndarray]) -> Runner:
    """The archive, whose parameters must be exactly `weights`."""
    module = torch.jit.load(io.BytesIO(archive))
    parameters = dict(module.named_parameters())
    assert parameters.keys() == weights.keys(), parameters.keys() ^ weights.keys()
    for name, parameter in parameters.items():
        parameter.data = torch.from_numpy(weights[name])
    return lambda feed: eager(module, feed)


def largest_error(run: Runner, inputs: list[dict[str, np.ndarray]], expected: list[list[np.ndarray]]) -> float:
    """Every batch size over every set of inputs; a batch is the first samples of its set."""
    worst = 0.0
    for feed, outputs in zip(inputs, expected):
        for batch in BATCHES:
            actual = run({name: value[:batch] for name, value in feed.items()})
            worst = max(worst, *(relative_error(a, e[:batch]) for a, e in zip(actual, outputs)))
    return worst
