"""Replaces what a traced graph computes from the sizes of its own values.

A trace asks every value for its shape and computes other shapes from the answers, most of which are the same for every
input. So the graph is run with several batch sizes and lengths. Results that do not change become constants. A target
shape in which only the batch and the length change is written with 0 (as before) and -1 (the rest). This also removes
operators that some runtimes lack.
"""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

# Bytes; the nodes that make a larger table are kept.
LARGE = 16 << 10


def settle(proto: onnx.ModelProto, folder: Path, feeds: list[dict[str, np.ndarray]]) -> None:
    """`feeds` must differ in batch size, and in length if there is one; the weights lie in `folder`."""
    graph = proto.graph
    constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer if t.data_type == onnx.TensorProto.INT64}
    sizes = _computed_from_shapes(graph)
    reshapes = [node for node in graph.node if node.op_type == "Reshape" and node.input[1] in sizes]
    sums = [
        node
        for node in graph.node
        if node.op_type == "ReduceSum" and len(node.input) > 1 and np.any(constants.get(node.input[1], 0) < 0)
    ]
    runs = _run(proto, folder, sorted(sizes), sorted({node.input[0] for node in reshapes + sums}), feeds)

    settled = []
    for name in sorted(sizes):
        first, *rest = (values[name] for values, _ in runs)
        if first.nbytes <= LARGE and all(np.array_equal(first, value) for value in rest):
            settled.append(numpy_helper.from_array(np.asarray(first), f"settled_{len(settled)}"))
            _rename(graph, name, settled[-1].name)
    for node in reshapes:
        if node.input[1] not in sizes:
            continue
        target = _pattern([v[node.input[1]] for v, _ in runs], [s[node.input[0]] for _, s in runs])
        if target is not None:
            settled.append(numpy_helper.from_array(target, f"settled_{len(settled)}"))
            node.input[1] = settled[-1].name
    for node in sums:
        # candle does not support negative axes.
        rank = len(runs[0][1][node.input[0]])
        settled.append(numpy_helper.from_array(constants[node.input[1]] % rank, f"settled_{len(settled)}"))
        node.input[1] = settled[-1].name
    graph.initializer.extend(settled)


def _computed_from_shapes(graph: onnx.GraphProto) -> set[str]:
    known, sizes = {t.name for t in graph.initializer}, set()
    for node in graph.node:
        if node.op_type == "Shape" or all(name in known or name in sizes for name in node.input if name):
            sizes.update(node.output)
    # A node with only constant inputs is kept because its result is large.
    shapes = {name for node in graph.node if node.op_type == "Shape" for name in node.output}
    for node in graph.node:
        if any(name in shapes for name in node.input):
            shapes.update(node.output)
    return sizes & shapes


def _run(proto, folder: Path, values: list[str], shaped: list[str], feeds) -> list[tuple[dict, dict]]:
    """The `values`, and the shapes of the values `shaped`, for each of `feeds`."""
    if not values and not shaped:
        return []
    probe = onnx.ModelProto()
    probe.CopyFrom(proto)
    del probe.graph.output[:]
    for index, name in enumerate(shaped):
        probe.graph.node.append(helper.make_node("Shape", [name], [f"shape_of_{index}"]))
    names = values + [f"shape_of_{index}" for index in range(len(shaped))]
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    path = folder / "probe.onnx"
    onnx.save(probe, path)
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    runs = []
    for feed in feeds:
        results = session.run(names, feed)
        runs.append((dict(zip(values, results)), dict(zip(shaped, results[len(values) :]))))
    return runs


def _pattern(targets: list[np.ndarray], before: list[np.ndarray]) -> np.ndarray | None:
    """A target shape that holds for all runs, or `None`."""
    targets = [np.where(t == -1, -np.prod(b) // np.prod(t), t) for t, b in zip(targets, before)]
    pattern, changing = targets[0].copy(), [i for i in range(len(targets[0])) if len({int(t[i]) for t in targets}) > 1]
    rest = changing
    if len(changing) > 1:
        kept = [i for i in changing if all(i < len(b) and b[i] == t[i] for t, b in zip(targets, before))]
        pattern[kept] = 0
        rest = [i for i in changing if i not in kept]
    if len(rest) > 1:
        return None
    pattern[rest] = -1
    return pattern


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name == old:
                node.input[index] = new
