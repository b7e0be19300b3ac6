"""Makes models/zoo, models/trained and models/quantized: `python scripts/export/export.py [--check] [NAME ...]`.

For maintainers, with the versions of requirements.txt; users get the files from the repository. On the same machine, it
always writes the same bytes. These are the files:

    model.toml               inputs, outputs, source and licence
    weights.toml             name, shape and initialisation of each tensor, in the order of weights.safetensors
    model.onnx               graph; weights are external data at their offsets in weights.safetensors
    model.pt                 TorchScript archive; weights are set by name
    config.json              the configuration of a model of transformers, for runtimes with modules of their own
    calibration.toml         ranges of values for static quantisation, of the entries that are `quantized`
    reference.safetensors    `output.NAME`: PyTorch's outputs in f32 for the eight samples of the input pool, or for
                             the first of them if outputs are large; `output.NAME.seqLENGTH` for each length if the
                             model has a sequence dimension

A generative model has PART.onnx and PART.pt for each of its parts, which share the weights. Its reference has phases:

    output.encoder.NAME      the outputs of the parts before the decoder, or a sample of them
    output.prefill.token     the likeliest first token; output.prefill.logits has every n-th of its logits
    output.decode.tokens     the tokens of the next 16 steps; output.decode.logits has logits of the last one

weights.safetensors is not kept: `inferbench prepare` makes it from the seed. A trained model's weights are kept in
models/trained. Its reference has eight held-out samples, with `input.NAME` and `label` in the same file. It may have
variants:

    zoo/NAME/VARIANT/                   the files above but model.toml, of a network with weights of its own
    trained/NAME.VARIANT.safetensors    its weights
    quantized/NAME.VARIANT.onnx, .pt    one that ONNX Runtime or PyTorch quantised, with its weights inside
    trained/NAME-held-out.safetensors   the samples on which all variants are evaluated, as `input.NAME` and `label`

The table printed at the end has the largest error relative to the largest value, over batch sizes 1, 2 and 8 and all
lengths. It also has the spread: an output's deviation between samples divided by its deviation as a whole, for the
output with the smallest spread. With a spread near 0, a model would give the same answer whatever its input. For
generative models, the table has the smallest lead of a chosen token over the second one, relative to the largest logit.
It also has the variety: the fraction of tokens that are distinct, for the sample with the fewest. The errors of a
quantised variant are relative to the original.
"""

import argparse
import multiprocessing
import sys
from pathlib import Path

import torch

import generative
import package
import whole
from entry import Generative
from zoo import ENTRIES


def export(name: str) -> list[dict]:
    """Writes one model's files. Returns the rows of the model and of its variants for the table."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    entry = ENTRIES[name]
    return [generative.export(entry)] if isinstance(entry, Generative) else whole.export(entry)


def committed(names: list[str]) -> dict[Path, bytes]:
    """The current content of the files of models and their variants."""
    paths = [path for name in names for path in (package.MODELS / "zoo" / name).rglob("*")]
    for folder in ("trained", "quantized"):
        paths += [path for name in names for path in (package.MODELS / folder).glob(f"{name}[.-]*")]
    return {path: path.read_bytes() for path in sorted(paths) if path.is_file()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(ENTRIES)}; all when left out")
    parser.add_argument("--check", action="store_true", help="fail if a file has changed")
    arguments = parser.parse_args()
    names = arguments.names or list(ENTRIES)
    if unknown := [name for name in names if name not in ENTRIES]:
        parser.error(f"unknown model {', '.join(unknown)}")
    before = committed(names)
    # Each model has its own process, because TorchScript numbers its types across all traces of a process.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        rows = [row for exported in pool.map(export, names, chunksize=1) for row in exported]
    columns = [column for column in max(rows, key=len) if column != "operators"]
    widths = {c: max(len(c), *(len(str(row.get(c, ""))) for row in rows)) for c in columns}
    for row in [dict(zip(columns, columns)), *rows]:
        print("  ".join(str(row.get(c, "")).rjust(widths[c]) for c in columns))
    for row in (row for row in rows if "operators" in row):
        print(f"{row['model']}: " + ", ".join(f"{op} {n}" for op, n in sorted(row["operators"].items())))
    if arguments.check:
        after = committed(names)
        changed = sorted(str(path) for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        sys.exit(f"changed files: {', '.join(changed)}" if changed else None)


if __name__ == "__main__":
    main()
