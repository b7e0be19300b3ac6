"""Makes models/zoo and models/trained: `python scripts/export/export.py [NAME ...]`.

For maintainers, with the versions of requirements.txt; users get the files from the repository. Run twice on one
machine, it writes the same bytes. What each file is:

    model.toml               inputs, outputs, source and licence
    weights.toml             name, shape and initialisation of each tensor, in the order of weights.safetensors
    model.onnx               graph; weights are external data at their offsets in weights.safetensors
    model.pt                 TorchScript archive; weights are set by name
    reference.safetensors    `output.NAME`: what PyTorch gives for samples 0..7 of the input pool, in f32;
                             `output.NAME.seqLENGTH` for each length where the model has a sequence dimension

weights.safetensors is not kept: `inferbench prepare` makes it from the seed. A trained model's weights are kept in
models/trained, and its reference is of eight held-out samples, in the same file as `input.NAME` and `label`.

The table printed at the end gives the largest error relative to the largest value, over batches 1, 2 and 8 and all
lengths, and the spread of the outputs: their deviation between samples over their deviation as a whole, of the output
for which it is the smallest. Near 0, a model would give the same answer whatever its input.
"""

import argparse
import hashlib
import multiprocessing
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import torch
from safetensors.numpy import load_file, save

import check
import description
import onnx_graph
import seeded
import torchscript
import train_digits
from layout import Layout
from zoo import ENTRIES

MODELS = Path(__file__).resolve().parents[2] / "models"
SEED = 1
SAMPLES = 8


def export(name: str) -> dict:
    """Writes one model's files and returns its row of the table."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    entry = ENTRIES[name]
    original = entry.original().eval()
    parameters = sum(parameter.numel() for parameter in original.parameters() if parameter.requires_grad)
    layout = Layout(
        {n: list(t.shape) for n, t in original.state_dict().items() if not n.endswith("num_batches_tracked")}
    )
    lengths = entry.sequence_lengths or [None]
    # One length more, so that no graph works for the reference's only.
    tried = [*lengths, 2 * lengths[0] // 3] if entry.sequence_lengths else lengths
    inputs = [{p.name: seeded.samples(p, 0, SAMPLES, length) for p in entry.inputs} for length in tried]
    reference, extra = {}, dict(entry.extra)
    if entry.init:
        weights = {n: seeded.tensor(SEED, n, shape, entry.init(n, shape)) for n, shape in layout.shapes.items()}
    else:
        trained = train_digits.train(original)
        weights, extra["trained"] = trained.tensors, trained.note
        pictures = {"input": trained.pictures[:SAMPLES]}
        inputs.insert(0, pictures)
        reference = {"input.input": pictures["input"], "label": trained.labels[:SAMPLES]}
    _load(original, weights)

    expected = [_eager(original, feed) for feed in inputs]
    for length, outputs in zip(lengths, expected):
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
    archive = torchscript.export(model, example, others)
    graph = onnx_graph.export(model, entry, layout, example, others)

    with tempfile.TemporaryDirectory() as folder:
        weights_file = Path(folder, onnx_graph.WEIGHTS_FILE)
        layout.write(weights_file, weights)
        weights_sha256 = hashlib.sha256(weights_file.read_bytes()).hexdigest()
        read = load_file(Path(folder, onnx_graph.WEIGHTS_FILE))
        assert all(np.array_equal(read[name], weights[name]) for name in layout.shapes)
        onnx.save(graph, Path(folder, "model.onnx"))
        onnx_error = check.onnx_error(Path(folder, "model.onnx"), inputs, expected)
    torchscript_error = check.torchscript_error(archive, weights, inputs, expected)
    tolerance = "1e-4" if max(onnx_error, torchscript_error) < 1e-5 else "1e-3"

    target = MODELS / "zoo" / entry.name
    target.mkdir(parents=True, exist_ok=True)
    (target / "model.toml").write_text(description.model_toml(entry, parameters, tolerance, extra))
    (target / "weights.toml").write_text(description.weights_toml(entry, layout, SEED, weights_sha256))
    (target / "model.onnx").write_bytes(graph.SerializeToString(deterministic=True))
    (target / "model.pt").write_bytes(archive)
    made_by = {"made_by": f"PyTorch {torch.__version__.split('+')[0]}"}
    (target / "reference.safetensors").write_bytes(save(reference, made_by))
    if not entry.init:
        (MODELS / "trained").mkdir(exist_ok=True)
        layout.write(MODELS / "trained" / f"{entry.name}.safetensors", weights)
    return {
        "model": entry.name,
        "parameters": parameters,
        **{f"{kind} bytes": (target / file).stat().st_size for kind, file in _FILES.items()},
        "ORT error": f"{onnx_error:.1e}",
        "TorchScript error": f"{torchscript_error:.1e}",
        "spread": f"{min(value.std(0).mean() / value.std() for value in expected[0]):.2f}",
        "operators": Counter(node.op_type for node in graph.graph.node),
    }


_FILES = {"onnx": "model.onnx", "pt": "model.pt", "reference": "reference.safetensors"}


def _load(model: torch.nn.Module, weights: dict[str, np.ndarray]) -> None:
    missing, unexpected = model.load_state_dict({n: torch.from_numpy(w) for n, w in weights.items()}, strict=False)
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    assert not missing and not unexpected, (missing, unexpected)


def _eager(model: torch.nn.Module, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    with torch.no_grad():
        output = model(*(torch.from_numpy(value) for value in feed.values()))
    # A view, such as a diagonal, would be stored with the memory that it skips.
    return [value.contiguous().numpy() for value in (output if isinstance(output, tuple) else (output,))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(ENTRIES)}; all when left out")
    names = parser.parse_args().names or list(ENTRIES)
    if unknown := [name for name in names if name not in ENTRIES]:
        parser.error(f"unknown model {', '.join(unknown)}")
    # A process each: TorchScript numbers its types over all that a process has traced.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        rows = pool.map(export, names, chunksize=1)
    columns = [column for column in rows[0] if column != "operators"]
    widths = {c: max(len(c), *(len(str(row[c])) for row in rows)) for c in columns}
    for row in [dict(zip(columns, columns)), *rows]:
        print("  ".join(str(row[c]).rjust(widths[c]) for c in columns))
    for row in rows:
        print(f"{row['model']}: " + ", ".join(f"{op} {n}" for op, n in sorted(row["operators"].items())))


if __name__ == "__main__":
    main()
