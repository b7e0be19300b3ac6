"""Exports a model of one graph."""

from collections import Counter

import numpy as np
import onnx
import torch
from safetensors.numpy import load_file

import calibration
import check
import description
import onnx_graph
import package
import seeded
import torchscript
import train_digits
from entry import Entry
from layout import Layout
from published import Published

SEED = 1


def export(entry: Entry) -> dict:
    """Writes the model's files and returns its row of the table."""
    original = entry.original().eval()
    parameters = sum(parameter.numel() for parameter in original.parameters() if parameter.requires_grad)
    layout = Layout(
        {n: list(t.shape) for n, t in original.state_dict().items() if not n.endswith("num_batches_tracked")}
    )
    tried = package.tried_lengths(entry.sequence_lengths)
    inputs = [{p.name: seeded.samples(p, 0, package.SAMPLES, length) for p in entry.inputs} for length in tried]
    reference, extra = {}, dict(entry.extra)
    if entry.init:
        weights = {n: seeded.tensor(SEED, n, shape, entry.init(n, shape)) for n, shape in layout.shapes.items()}
    else:
        trained = train_digits.train(original)
        weights, extra["trained"] = trained.tensors, trained.note
        pictures = {"input": trained.pictures[: package.SAMPLES]}
        inputs.insert(0, pictures)
        reference = {"input.input": pictures["input"], "label": trained.labels[: package.SAMPLES]}
    _load(original, weights)

    expected = [_eager(original, feed) for feed in inputs]
    for length, outputs in zip(entry.sequence_lengths or [None], expected):
        suffix = f".seq{length}" if length else ""
        reference |= {f"output.{port.name}{suffix}": value for port, value in zip(entry.outputs, outputs)}

    model = entry.exportable().eval()
    _load(model, weights)
    for feed, outputs in zip(inputs, expected):
        for actual, output in zip(_eager(model, feed), outputs):
            error = check.relative_error(actual, output)
            assert error <= 1e-5, f"{entry.name}: the rewritten module differs by {error:.1e}"
    torchscript.buffers_to_parameters(model)
    example, *others = (
        tuple(torch.from_numpy(value[:batch]) for value in feed.values())
        for feed, batch in [(inputs[0], 2), (inputs[0], 3), *((feed, 2) for feed in inputs[1:])]
    )

    with package.weights_file(layout, weights) as file:
        read = load_file(file.path)
        assert all(np.array_equal(read[name], weights[name]) for name in layout.shapes)
        graph = onnx_graph.export(
            entry.name, model, entry.inputs, entry.outputs, layout, file.path, example, others
        )
        assert onnx_graph.weights_of(graph) == list(layout.shapes), "weights that the exporter dropped"
        archive = torchscript.export(model, example, others)
        path = file.path.with_name("model.onnx")
        onnx.save(graph, path)
        onnx_error = check.largest_error(check.onnx_runner(path), inputs, expected)
    torchscript_error = check.largest_error(check.torchscript_runner(archive, weights), inputs, expected)
    tolerance = package.tolerance(max(onnx_error, torchscript_error))

    sizes = package.write(
        entry.name,
        {
            "model.toml": description.model_toml(entry, parameters, tolerance, extra),
            "weights.toml": description.weights_toml(entry, layout, SEED, file.sha256),
            "model.onnx": graph.SerializeToString(deterministic=True),
            "model.pt": archive,
            "reference.safetensors": package.reference_file(reference),
            **({"config.json": original.config_json()} if isinstance(original, Published) else {}),
        },
    )
    if entry.quantized:
        calibration.write(entry)
    if not entry.init:
        (package.MODELS / "trained").mkdir(exist_ok=True)
        layout.write(package.MODELS / "trained" / f"{entry.name}.safetensors", weights)
    return {
        "model": entry.name,
        "parameters": parameters,
        "onnx bytes": sizes["onnx"],
        "pt bytes": sizes["pt"],
        "reference bytes": sizes["safetensors"],
        "ORT error": f"{onnx_error:.1e}",
        "TorchScript error": f"{torchscript_error:.1e}",
        "spread": f"{min(value.std(0).mean() / value.std() for value in expected[0]):.2f}",
        "operators": Counter(node.op_type for node in graph.graph.node),
    }


def _load(model: torch.nn.Module, weights: dict[str, np.ndarray]) -> None:
    missing, unexpected = model.load_state_dict({n: torch.from_numpy(w) for n, w in weights.items()}, strict=False)
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    assert not missing and not unexpected, (missing, unexpected)


def _eager(model: torch.nn.Module, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    with torch.no_grad():
        output = model(*(torch.from_numpy(value) for value in feed.values()))
    # A view, such as a diagonal, would be stored with the memory that it skips.
    return [value.contiguous().numpy() for value in (output if isinstance(output, tuple) else (output,))]
