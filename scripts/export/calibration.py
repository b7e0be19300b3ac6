"""Measures the ranges of the values in a graph.

Static quantisation rounds an activation to 256 steps between its smallest and largest value. ONNX Runtime measures
these once, on samples that are not in a reference.
"""

import tomllib
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import package
import seeded
from entry import Entry
from layout import Layout

FIRST, SAMPLES = package.SAMPLES, 32
_BATCH = 4
# Operators that can turn eight-bit integers into eight-bit integers.
_SAME = ("BatchNormalization", "Relu", "Clip", "MaxPool", "Pad", "Reshape", "Transpose", "Flatten")


def measured_values(graph: onnx.GraphProto) -> list[str]:
    """The inputs of products with constant weights, and the values after convolutions that can stay integers."""
    constant = {tensor.name for tensor in graph.initializer}
    constant |= {n.output[0] for n in graph.node if n.op_type == "Transpose" and n.input[0] in constant}
    activations, integers = [], []
    for node in graph.node:
        computed = [name for name in node.input if name and name not in constant]
        if node.op_type in ("Conv", "Gemm", "MatMul") and node.input[1] in constant and node.input[0] not in constant:
            activations.append(node.input[0])
            integers += node.output if node.op_type == "Conv" else []
        elif node.op_type in _SAME and node.input[0] in integers:
            integers.append(node.output[0])
        elif node.op_type == "Add" and len(computed) == 2 and all(name in integers for name in computed):
            integers.append(node.output[0])
    return list(dict.fromkeys(activations + integers))


def ranges(graph: Path, feeds: list[dict[str, np.ndarray]]) -> dict[str, tuple[float, float]]:
    """The smallest and the largest number of each value; `graph` lies beside its weights."""
    proto = onnx.load(graph, load_external_data=False)
    names = measured_values(proto.graph)
    given = {port.name for port in proto.graph.input}
    present = {port.name for port in proto.graph.output} | given
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in present)
    watched = graph.with_name("watched.onnx")
    onnx.save(proto, watched)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(watched), options, providers=["CPUExecutionProvider"])
    found = {name: (np.inf, -np.inf) for name in names}
    computed = [name for name in names if name not in given]
    for feed in feeds:
        values = feed | dict(zip(computed, session.run(computed, feed)))
        for name, (least, most) in found.items():
            found[name] = min(least, values[name].min()), max(most, values[name].max())
    return {name: (float(least), float(most)) for name, (least, most) in found.items()}


def write(entry: Entry) -> None:
    """Writes models/zoo/NAME/calibration.toml from the graph and the list of weights that lie there."""
    folder = package.MODELS / "zoo" / entry.name
    description = tomllib.loads((folder / "weights.toml").read_text())
    shapes = {tensor["name"]: tensor["shape"] for tensor in description["tensors"]}
    seed = description["seed"]
    weights = {name: seeded.tensor(seed, name, shape, entry.init(name, shape)) for name, shape in shapes.items()}
    with package.weights_file(Layout(shapes), weights) as file:
        assert file.sha256 == description["sha256"], f"{entry.name}: other weights than those of weights.toml"
        graph = file.path.with_name("model.onnx")
        graph.write_bytes((folder / "model.onnx").read_bytes())
        found = ranges(graph, _feeds(entry))
    text = "# The smallest and the largest number of each value that is rounded to eight bits,\n"
    text += f"# over seed-derived samples {FIRST}..{FIRST + SAMPLES} of the input pool.\n"
    text += f"samples = {SAMPLES}\n\n[ranges]\n"
    text += "".join(f'"{name}" = [{_number(least)}, {_number(most)}]\n' for name, (least, most) in found.items())
    package.write(entry.name, {"calibration.toml": text})


def _number(value: float) -> str:
    text = f"{value:#.6g}"
    # With six digits before the point, none is left after it, but TOML needs one.
    return text + "0" if text.endswith(".") else text


def _feeds(entry: Entry) -> list[dict[str, np.ndarray]]:
    return [
        {port.name: seeded.samples(port, first, _BATCH, length) for port in entry.inputs}
        for length in entry.sequence_lengths or [None]
        for first in range(FIRST, FIRST + SAMPLES, _BATCH)
    ]
