"""Exports a generative model: a graph and an archive for each part, which share one weights file."""

from dataclasses import dataclass

import numpy as np
import onnx
import torch

import check
import description
import generation
import onnx_graph
import package
import seeded
import torchscript
from entry import Generative, Part, Port
from layout import Layout
from published import Published

# Smallest lead of a chosen token over the second, relative to the largest logit. Rounding errors are far smaller.
LEAD = 1e-4
# Smallest fraction of a sample's tokens that are distinct.
VARIETY = 0.2
# Most logits per row in the reference; of a larger vocabulary, it has every n-th logit.
LOGITS = 1024
# Sizes of the inputs with which a part is traced (the first) and the trace is checked. No set has the same size twice.
_EXAMPLES = (
    {"batch": 2, "tokens": 3, "past": 5, "image": 4, "sequence": 7},
    {"batch": 3, "tokens": 6, "past": 0, "image": 2, "sequence": 9},
    {"batch": 2, "tokens": 1, "past": 11, "image": 0, "sequence": 8},
)


@dataclass(frozen=True)
class Exported:
    files: dict[str, str | bytes]
    """The files of models/zoo/NAME."""
    layout: Layout
    weights: dict[str, np.ndarray]
    row: dict
    """The model's row of the table."""


def export(entry: Generative) -> dict:
    """Writes the model's files and returns its row of the table."""
    exported = export_files(entry)
    package.write(entry.name, exported.files)
    return exported.row


def export_files(entry: Generative, extra: dict | None = None) -> Exported:
    """Exports a model with seeded weights, or with those of the built model if the entry has no `init`. `extra` are
    keys of model.toml."""
    model = entry.build().eval()
    published = Published(model, None, prefixes=entry.prefixes)
    parameters = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    layout = Layout({name: list(tensor.shape) for name, tensor in published.named_parameters()})
    if entry.init:
        weights = {n: seeded.tensor(entry.seed, n, shape, entry.init(n, shape)) for n, shape in layout.shapes.items()}
    else:
        weights = {name: parameter.detach().numpy() for name, parameter in published.named_parameters()}
    _load(published, weights)

    lengths = entry.sequence_lengths or [None]
    inputs = [
        {p.name: seeded.samples(p, 0, package.SAMPLES if length in lengths else 2, length) for p in entry.inputs}
        for length in package.tried_lengths(entry.sequence_lengths)
    ]
    expected, leads = zip(*(generation.reference(entry, model, feed) for feed in inputs))
    references = list(zip(lengths, expected, leads))
    outputs = {}
    for length, generated, _ in references:
        outputs |= _outputs(entry, generated, length)
    lead = min(lead for *_, lead in references)
    variety = min(_variety(generated) for _, generated, _ in references)
    if entry.init:
        assert lead >= LEAD, f"{entry.name}: a choice between tokens is close, {lead:.1e}; take another seed"
        assert variety >= VARIETY, f"{entry.name}: two samples are the same, or one has hardly more than one token"

    graphs, archives = {}, {}
    with package.weights_file(layout, weights) as file:
        for part in entry.parts:
            example, *others = (_example(part, sizes) for sizes in _EXAMPLES)
            whole = Published(model, part.call, prefixes=entry.prefixes)
            graph = onnx_graph.export(
                f"{entry.name}.{part.name}", whole, part.inputs, part.outputs, layout, file.path, example, others
            )
            unused = tuple(layout.shapes.keys() - set(onnx_graph.weights_of(graph)))
            partial = Published(model, part.call, unused, entry.prefixes)
            archives[part.name] = torchscript.export(partial, example, others)
            _load(published, weights)
            onnx.save(graph, file.path.with_name(f"{part.name}.onnx"))
            graphs[part.name] = graph
        used = {part: onnx_graph.weights_of(graph) for part, graph in graphs.items()}
        unused = layout.shapes.keys() - set().union(*used.values())
        assert all(name.startswith(entry.idle) for name in unused), f"weights that no part has: {sorted(unused)}"
        runners = {part: check.onnx_runner(file.path.with_name(f"{part}.onnx")) for part in graphs}
        onnx_error = _error(entry, runners, inputs, expected)
    runners = {
        part: check.torchscript_runner(archive, {name: weights[name] for name in used[part]})
        for part, archive in archives.items()
    }
    errors = (onnx_error, _error(entry, runners, inputs, expected))

    files = {
        "model.toml": description.generative_toml(entry, parameters, package.tolerance(max(errors)), extra or {}),
        "weights.toml": description.weights_toml(entry, layout, entry.seed, file.sha256),
        **{f"{part}.onnx": graph.SerializeToString(deterministic=True) for part, graph in graphs.items()},
        **{f"{part}.pt": archive for part, archive in archives.items()},
        "reference.safetensors": package.reference_file(outputs),
        "config.json": published.config_json(),
    }
    logits = expected[0].logits
    spread = f"{logits.std(0).mean() / logits.std():.2f}"
    more = {"spread": spread, "lead": f"{lead:.1e}", "variety": f"{variety:.2f}"}
    return Exported(files, layout, weights, package.row(entry.name, parameters, files, errors, graphs.values(), **more))


def _load(published: Published, weights: dict[str, np.ndarray]) -> None:
    """Sets the weights without a copy, because the largest model's fill a quarter of a small machine's memory."""
    for name, parameter in published.named_parameters():
        parameter.requires_grad_(False)
        parameter.data = torch.from_numpy(weights[name])


def _outputs(entry: Generative, generated: generation.Generated, length: int | None) -> dict[str, np.ndarray]:
    every = -(-generated.logits.shape[1] // LOGITS)
    outputs = {f"encoder.{port.name}": value for port, value in zip(entry.encoded, generated.encoded)}
    outputs |= {
        "prefill.token": generated.token,
        "prefill.logits": generated.logits[:, ::every],
        "decode.tokens": generated.tokens,
        "decode.logits": generated.last_logits[:, ::every],
    }
    suffix = f".seq{length}" if length else ""
    return {f"output.{name}{suffix}": np.ascontiguousarray(value) for name, value in outputs.items()}


def _variety(generated: generation.Generated) -> float:
    """The fraction of tokens that are distinct, for the sample with the fewest; 0 if two samples are the same."""
    rows = np.concatenate([generated.token[:, None], generated.tokens], 1)
    if len(np.unique(rows, axis=0)) < len(rows):
        return 0.0
    return min(len(np.unique(row)) for row in rows) / rows.shape[1]


def _error(entry: Generative, runners: dict[str, check.Runner], inputs, expected) -> float:
    """The largest error over all batch sizes and inputs. The tokens must be those of the reference."""
    return max(
        generation.error(
            generation.by_parts(entry, runners, {name: value[:batch] for name, value in feed.items()}), generated
        )
        for feed, generated in zip(inputs, expected)
        for batch in check.BATCHES
        if batch <= len(generated.token)
    )


def _example(part: Part, sizes: dict[str, int]) -> tuple[torch.Tensor, ...]:
    image = sizes["image"] if any("image" in port.shape for port in part.inputs) else 0
    positions = image + sizes["tokens"]
    sizes = sizes | {"positions": positions, "queries": positions, "keys": sizes["past"] + positions}
    generator = torch.Generator().manual_seed(0)

    def value(port: Port) -> torch.Tensor:
        shape = [sizes.get(size, size) for size in port.shape]
        if port.dtype == "i64":
            return torch.randint(port.below, shape, generator=generator)
        return torch.randn(shape, generator=generator)

    return tuple(value(port) for port in part.inputs)
