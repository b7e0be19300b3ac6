"""Exports a network to files: graph, archive, list of weights, and reference. All are checked against PyTorch."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
import torch
from safetensors.numpy import load_file
from torch import nn

import check
import description
import onnx_graph
import package
import torchscript
from entry import Entry
from layout import Layout
from published import Published

SEED = 1
MOST_RECORDED = 100 << 10
"""Most bytes of an output in the reference, unless one sample has more. All outputs have the same number of samples."""
Feed = dict[str, np.ndarray]


@dataclass(frozen=True)
class Network:
    files: dict[str, str | bytes]
    """The files of models/zoo/NAME except model.toml."""
    layout: Layout
    graph: onnx.ModelProto
    parameters: int
    tolerance: str
    row: dict
    """The network's row of the table."""


def layout_of(original: nn.Module) -> Layout:
    return Layout({n: list(t.shape) for n, t in original.state_dict().items() if not n.endswith("num_batches_tracked")})


def export(
    entry: Entry,
    name: str,
    original: nn.Module,
    exportable: Callable[[], nn.Module],
    weights: dict[str, np.ndarray],
    inputs: list[Feed],
    recorded: Feed,
) -> Network:
    """Traces the module that `exportable` builds, which must have the outputs of `original` in eval mode.

    The reference has the first of `inputs`, or, if the entry has lengths, the first one per length. It also contains
    `recorded`.
    """
    layout = layout_of(original)
    parameters = sum(parameter.numel() for parameter in original.parameters() if parameter.requires_grad)
    _load(original, weights)
    expected = [check.eager(original, feed) for feed in inputs]
    reference = dict(recorded)
    count = max(1, min(MOST_RECORDED // value[0].nbytes for outputs in expected for value in outputs))
    for length, outputs in zip(entry.sequence_lengths or [None], expected):
        suffix = f".seq{length}" if length else ""
        kept = [_recorded(value[:count]) for value in outputs]
        reference |= {f"output.{port.name}{suffix}": value for port, value in zip(entry.outputs, kept)}

    # Building a module can change how all others compute, so the outputs of the original come first.
    model = exportable().eval()
    _load(model, weights)
    for feed, outputs in zip(inputs, expected):
        for actual, output in zip(check.eager(model, feed), outputs):
            error = check.relative_error(actual, output)
            assert error <= 1e-5, f"{name}: the rewritten module differs by {error:.1e}"
    torchscript.buffers_to_parameters(model)
    example, *others = (
        tuple(torch.from_numpy(value[:batch]) for value in feed.values())
        for feed, batch in [(inputs[0], 2), (inputs[0], 3), *((feed, 2) for feed in inputs[1:])]
    )

    with package.weights_file(layout, weights) as file:
        read = load_file(file.path)
        assert all(np.array_equal(read[tensor], weights[tensor]) for tensor in layout.shapes)
        graph = onnx_graph.export(name, model, entry.inputs, entry.outputs, layout, file.path, example, others)
        assert onnx_graph.weights_of(graph) == list(layout.shapes), "weights that the exporter dropped"
        archive = torchscript.export(model, example, others)
        path = file.path.with_name("model.onnx")
        onnx.save(graph, path)
        onnx_error = check.largest_error(check.onnx_runner(path), inputs, expected)
    torchscript_error = check.largest_error(check.torchscript_runner(archive, weights), inputs, expected)

    files = {
        "weights.toml": description.weights_toml(entry, layout, SEED, file.sha256),
        "model.onnx": graph.SerializeToString(deterministic=True),
        "model.pt": archive,
        "reference.safetensors": package.reference_file(reference),
        **({"config.json": original.config_json()} if isinstance(original, Published) else {}),
    }
    errors = (onnx_error, torchscript_error)
    spread = f"{min(value.std(0).mean() / value.std() for value in expected[0]):.2f}"
    row = package.row(name, parameters, files, errors, [graph], spread=spread)
    return Network(files, layout, graph, parameters, package.tolerance(max(errors)), row)


def _recorded(value: np.ndarray) -> np.ndarray:
    """Drops 6 of the 23 mantissa bits if a sample is larger than `MOST_RECORDED`, so that it packs better. The error is
    at most 4e-6."""
    if value[0].nbytes <= MOST_RECORDED or value.dtype != np.float32:
        return value
    return ((value.view(np.uint32) + np.uint32(32)) & ~np.uint32(63)).view(np.float32)


def _load(model: nn.Module, weights: dict[str, np.ndarray]) -> None:
    missing, unexpected = model.load_state_dict({n: torch.from_numpy(w) for n, w in weights.items()}, strict=False)
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    assert not missing and not unexpected, (missing, unexpected)
