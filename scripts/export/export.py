"""Makes models/zoo, models/trained and models/quantized: `python scripts/export/export.py [--check] [NAME ...]`.

For maintainers, with the versions of requirements.txt; users get the files from the repository. Run twice on one
machine, it writes the same bytes. What each file is:

    model.toml               inputs, outputs, source and licence
    weights.toml             name, shape and initialisation of each tensor, in the order of weights.safetensors
    model.onnx               graph; weights are external data at their offsets in weights.safetensors
    model.pt                 TorchScript archive; weights are set by name
    config.json              the configuration of a model of transformers, for runtimes with modules of their own
    calibration.toml         ranges of values for static quantisation, of the entries that are `quantized`
    reference.safetensors    `output.NAME`: what PyTorch gives for the eight samples of the input pool, or
                             for the first of them where outputs are large, in f32;
                             `output.NAME.seqLENGTH` for each length where the model has a sequence dimension

A generative model has PART.onnx and PART.pt for each of its parts, over the same weights. Its reference is by phase:

    output.encoder.NAME      what the parts before the decoding one give, or a sample of it
    output.prefill.token     the likeliest first token, and output.prefill.logits: every n-th of its logits
    output.decode.tokens     those of 16 steps after it, and output.decode.logits: those of the last

weights.safetensors is not kept: `inferbench prepare` makes it from the seed. A trained model's weights are kept in
models/trained, and its reference is of eight held-out samples, in the same file as `input.NAME` and `label`. It may
have variants; with NAME that of the model:

    zoo/NAME/VARIANT/                   the files above but model.toml, of a network with weights of its own
    trained/NAME.VARIANT.safetensors    its weights
    quantized/NAME.VARIANT.onnx, .pt    one that ONNX Runtime or PyTorch quantised, with its weights inside
    trained/NAME-held-out.safetensors   the samples by which all of them are evaluated, as `input.NAME` and `label`

The table printed at the end gives the largest error relative to the largest value, over batches 1, 2 and 8 and all
lengths, and the spread of the outputs: their deviation between samples over their deviation as a whole, of the output
for which it is the smallest. Near 0, a model would give the same answer whatever its input. For generative models it
also has the smallest lead of a chosen token over the second, relative to the largest logit, and the variety: different
tokens over all tokens, of the sample with the fewest. The errors of a quantised variant are those to the original.
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
    """Writes one model's files and returns its row of the table, and those of its variants."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    entry = ENTRIES[name]
    return [generative.export(entry)] if isinstance(entry, Generative) else whole.export(entry)


def committed(names: list[str]) -> dict[Path, bytes]:
    """The present content of the models' files, with those of their variants."""
    paths = [path for name in names for path in (package.MODELS / "zoo" / name).rglob("*")]
    for folder in ("trained", "quantized"):
        paths += [path for name in names for path in (package.MODELS / folder).glob(f"{name}[.-]*")]
    return {path: path.read_bytes() for path in sorted(paths) if path.is_file()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(ENTRIES)}; all when left out")
    parser.add_argument("--check", action="store_true", help="fail if a file is not what it was before")
    arguments = parser.parse_args()
    names = arguments.names or list(ENTRIES)
    if unknown := [name for name in names if name not in ENTRIES]:
        parser.error(f"unknown model {', '.join(unknown)}")
    before = committed(names)
    # A process each: TorchScript numbers its types over all that a process has traced.
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
        sys.exit(f"not what was there before: {', '.join(changed)}" if changed else None)


if __name__ == "__main__":
    main()
