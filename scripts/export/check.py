"""Runs the written files as a backend would and compares them with PyTorch.

The ONNX graph is read from disk beside a weights file; the TorchScript archive is loaded and its weights are set by
name. Quantised files have their weights inside.
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
# Computes the graph's outputs from its inputs, which have names and are in the graph's order.
Runner = Callable[[dict[str, np.ndarray]], list[np.ndarray]]


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference divided by the largest finite number. Equal infinities do not differ, nor do two NaNs."""
    assert actual.shape == expected.shape, f"a shape of {actual.shape} and not {expected.shape}"
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=0)) or 1.0
    is_other = (actual != expected) & ~(np.isnan(actual) & np.isnan(expected))
    error = float(np.abs(actual[is_other] - expected[is_other]).max(initial=0)) / scale
    # `max` would ignore NaN.
    return math.inf if math.isnan(error) else error


def eager(model: nn.Module, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """PyTorch's outputs."""
    with torch.no_grad():
        output = model(*(torch.from_numpy(value) for value in feed.values()))
    # A view, such as a diagonal, would be stored with all the memory that it spans.
    return [value.contiguous().numpy() for value in (output if isinstance(output, tuple) else (output,))]


def onnx_runner(graph: Path | bytes) -> Runner:
    """Runs a graph on ONNX Runtime. The weights lie beside `graph` or in it."""
    model = graph if isinstance(graph, bytes) else str(graph)
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)


def torchscript_runner(archive: bytes, weights: dict[str, np.ndarray]) -> Runner:
    """Runs an archive, whose parameters must be exactly `weights`."""
    module = torch.jit.load(io.BytesIO(archive))
    parameters = dict(module.named_parameters())
    assert parameters.keys() == weights.keys(), parameters.keys() ^ weights.keys()
    for name, parameter in parameters.items():
        parameter.data = torch.from_numpy(weights[name])
    return lambda feed: eager(module, feed)


def largest_error(run: Runner, inputs: list[dict[str, np.ndarray]], expected: list[list[np.ndarray]]) -> float:
    """The largest error over all batch sizes and sets of inputs. A batch is the first samples of its set."""
    worst = 0.0
    for feed, outputs in zip(inputs, expected):
        for batch in BATCHES:
            actual = run({name: value[:batch] for name, value in feed.items()})
            worst = max(worst, *(relative_error(a, e[:batch]) for a, e in zip(actual, outputs)))
    return worst
