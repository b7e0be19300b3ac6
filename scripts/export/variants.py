"""Exports the variants of a trained model.

A trained variant has a folder in models/zoo/NAME and weights in models/trained, in the form of the original. A
quantised variant is a file for one runtime in models/quantized, with the weights inside.
"""

from collections import Counter
from dataclasses import dataclass

import onnx
import onnxruntime
from torch import nn

import check
import network
import onnx_graph
import package
import train_digits
from entry import Entry, QuantizedVariant, TrainedVariant
from network import Feed, Network

# Fraction of the held-out images. A lower accuracy shows that training went wrong. One image is 0.22 %, so small
# differences between variants mean nothing.
LEAST_ACCURACY = 0.965
# The largest error of a quantised variant to the original, relative to the largest logit.
LARGEST_ERROR = 0.05


@dataclass(frozen=True)
class Made:
    table: dict
    """The table `[[variants]]` in model.toml."""
    row: dict
    """The variant's row of the printed table."""


def export(
    entry: Entry,
    variant: TrainedVariant | QuantizedVariant,
    original: nn.Module,
    exported: Network,
    inputs: list[Feed],
    recorded: Feed,
) -> Made:
    """Writes the files of one variant of `original`, which was exported as `exported`."""
    if isinstance(variant, TrainedVariant):
        return _trained(entry, variant, original, inputs, recorded)
    return _quantized(entry, variant, original, exported, inputs)


def _trained(
    entry: Entry, variant: TrainedVariant, original: nn.Module, inputs: list[Feed], recorded: Feed
) -> Made:
    name = f"{entry.name}.{variant.name}"
    model = variant.build()
    variant.train(model, original)
    (logits,) = check.eager(model, {"input": train_digits.split().held_out_pictures})
    weights = train_digits.tensors(model)
    exported = network.export(entry, name, model.eval(), variant.build, weights, inputs, recorded)
    package.write(f"{entry.name}/{variant.name}", exported.files)
    package.write_trained(f"{name}.safetensors", exported.layout, weights)
    table = {
        "name": variant.name,
        "folder": variant.name,
        "weights": f"../../trained/{name}.safetensors",
        "parameters": exported.parameters,
        "tolerance": exported.tolerance,
        "made": _made(name, variant.made, train_digits.right(logits)),
    }
    return Made(table, exported.row)


def _quantized(
    entry: Entry, variant: QuantizedVariant, original: nn.Module, exported: Network, inputs: list[Feed]
) -> Made:
    name = f"{entry.name}.{variant.name}"
    graph = onnx_graph.with_weights(exported.graph, train_digits.tensors(original))
    content = variant.quantize(original, graph)
    if variant.runtime == "onnx":
        model = onnx.load_from_string(content)
        onnx_graph.tidy(model, name, entry.inputs, entry.outputs, ("onnxruntime", onnxruntime.__version__))
        content = model.SerializeToString(deterministic=True)
        run, kind, error = check.onnx_runner(content), "onnx", "ORT error"
        operators = {"operators": Counter(node.op_type for node in model.graph.node)}
    else:
        run, kind, error, operators = check.torchscript_runner(content, {}), "pt", "TorchScript error", {}
    # Only images: the range of activations was fixed with images, and seeded inputs have values beyond it.
    pictures = inputs[:1]
    largest = check.largest_error(run, pictures, [check.eager(original, feed) for feed in pictures])
    assert largest <= LARGEST_ERROR, f"{name}: differs from the original by {largest:.1e}"
    (logits,) = run({"input": train_digits.split().held_out_pictures})
    file = f"{name}.{kind}"
    package.write_quantized(file, content)
    table = {
        "name": variant.name,
        "dtype": "i8",
        variant.runtime: f"../../quantized/{file}",
        "made": _made(name, variant.made, train_digits.right(logits)),
    }
    return Made(table, {"model": name, f"{kind} bytes": len(content), error: f"{largest:.1e}", **operators})


def _made(name: str, made: str, right: int) -> str:
    accuracy = right / train_digits.HELD_OUT
    assert accuracy >= LEAST_ACCURACY, f"{name}: accuracy {accuracy:.4f}"
    return f"{made}; {right} of {train_digits.HELD_OUT} held-out pictures right, {100 * accuracy:.1f} %"
