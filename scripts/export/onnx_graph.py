"""An ONNX graph whose weights lie in `weights.safetensors`.

Weights keep their state-dict names and values: nothing is folded into them, transposed or merged. The rest of the graph
is made small: arithmetic on constants is done here, and names of intermediate values are short. Nothing depends on the
machine that made the graph.
"""

import io
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import shapes
import torch
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import nn

from entry import Port
from layout import Layout

OPSET = 16
WEIGHTS_FILE = "weights.safetensors"


def export(
    name: str,
    model: nn.Module,
    inputs: list[Port],
    outputs: list[Port],
    layout: Layout,
    weights: Path,
    example: tuple[torch.Tensor, ...],
    others: list[tuple[torch.Tensor, ...]],
) -> onnx.ModelProto:
    """Exports `model`, which is in eval mode, with its buffers turned into parameters. `weights` is its file of weights.

    `others` are inputs with other batch sizes and lengths than `example`.
    """
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            example,
            buffer,
            dynamo=False,
            opset_version=OPSET,
            do_constant_folding=False,
            # All weights stay in their file, and equal ones are not merged.
            export_params=False,
            keep_initializers_as_inputs=True,
            # Any other mode folds batch norms into convolutions.
            training=torch.onnx.TrainingMode.PRESERVE,
            input_names=[port.name for port in inputs],
            output_names=[port.name for port in outputs],
            dynamic_axes={
                port.name: {axis: size for axis, size in enumerate(port.shape) if isinstance(size, str)}
                for port in inputs + outputs
            },
        )
    proto = onnx.load_from_string(buffer.getvalue())
    _point_at_weights(proto.graph, layout)
    _fold_constants(proto.graph, layout)
    _drop_expand_guards(proto.graph)
    _drop_dead_nodes(proto.graph)
    names = [port.name for port in inputs]
    feeds = [dict(zip(names, (value.numpy() for value in feed))) for feed in (example, *others)]
    shapes.settle(proto, weights.parent, feeds)
    _fold_constants(proto.graph, layout)
    _drop_multiplications_by_one(proto.graph)
    _drop_dead_nodes(proto.graph)
    tidy(proto, name, inputs, outputs, ("pytorch", torch.__version__.split("+")[0]))
    return proto


def with_weights(proto: onnx.ModelProto, weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    """The same graph with its weights inside."""
    filled = onnx.ModelProto()
    filled.CopyFrom(proto)
    for tensor in filled.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name], tensor.name))
    return filled


def tidy(
    proto: onnx.ModelProto, name: str, inputs: list[Port], outputs: list[Port], producer: tuple[str, str]
) -> None:
    """Makes the graph small and independent of the machine that made it."""
    _shorten_names(proto.graph)
    _strip(proto, name, inputs, outputs, producer)


def weights_of(proto: onnx.ModelProto) -> list[str]:
    """The names of the weights that the graph uses, in the order of their file."""
    external = onnx.TensorProto.EXTERNAL
    return [tensor.name for tensor in proto.graph.initializer if tensor.data_location == external]


def _fold_constants(graph: onnx.GraphProto, layout: Layout) -> None:
    """Evaluates every node that depends on embedded constants only; results that are still needed become initializers.

    A node that makes a table from much smaller ones is kept.
    """
    constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer if t.name not in layout.shapes}
    kept = []
    for node in graph.node:
        if not all(name in constants for name in node.input if name):
            kept.append(node)
            continue
        operands = {name: constants[name] for name in node.input if name}
        values = ReferenceEvaluator(_single(node)).run(None, operands)
        if node.op_type != "Constant" and _bytes(values) > max(shapes.LARGE, 2 * _bytes(operands.values())):
            kept.append(node)
            continue
        constants.update(zip(node.output, values))
    _replace(graph.node, kept)

    # One initializer per value: each decomposed layer norm brings the same 2 and epsilon.
    seen: dict[tuple, str] = {}
    embedded = []
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name not in constants:
                continue
            value = np.asarray(constants[name])
            key = (value.dtype.str, value.shape, value.tobytes())
            if key not in seen:
                seen[key] = f"const_{len(seen)}"
                embedded.append(numpy_helper.from_array(value, seen[key]))
            node.input[index] = seen[key]
    weights = [t for t in graph.initializer if t.name in layout.shapes]
    _replace(graph.initializer, weights + embedded)


def _bytes(arrays) -> int:
    return sum(np.asarray(array).nbytes for array in arrays)


def _single(node: onnx.NodeProto) -> onnx.ModelProto:
    def ports(names):
        return [helper.make_value_info(name, onnx.TypeProto()) for name in names if name]

    graph = helper.make_graph([node], "constant", ports(node.input), ports(node.output))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])


def _drop_expand_guards(graph: onnx.GraphProto) -> None:
    """Replaces Expand(x, Where(shape == -1, 1, shape)) by Expand(x, shape) with 1 for -1: sizes are never -1."""
    producer = {name: node for node in graph.node for name in node.output}
    literals = [t for t in graph.initializer if t.data_type == onnx.TensorProto.INT64]
    kept = {t.name for t in literals if np.array_equal(numpy_helper.to_array(t), [-1])}
    one = numpy_helper.from_array(np.array([1], dtype=np.int64), "one")
    for node in graph.node:
        guard = producer.get(node.input[1]) if node.op_type == "Expand" else None
        if guard is None or guard.op_type != "Where":
            continue
        shape = producer[guard.input[2]]
        while shape.op_type == "Reshape":
            shape = producer[shape.input[0]]
        # The shape of another value has no -1.
        if shape.op_type != "Shape":
            assert shape.op_type == "Concat", shape.op_type
            _replace(shape.input, ["one" if name in kept else name for name in shape.input])
        node.input[1] = shape.output[0]
    graph.initializer.append(one)


def _drop_multiplications_by_one(graph: onnx.GraphProto) -> None:
    """Removes multiplications by 1. Attention with scaled queries has two, one of them over all keys."""
    ones = {t.name for t in graph.initializer if not t.dims and t.raw_data == np.float32(1).tobytes()}
    kept, same = [], {}
    for node in graph.node:
        _replace(node.input, [same.get(name, name) for name in node.input])
        if node.op_type == "Mul" and node.input[1] in ones:
            same[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    _replace(graph.node, kept)


def _drop_dead_nodes(graph: onnx.GraphProto) -> None:
    needed = {port.name for port in graph.output}
    kept = []
    for node in reversed(graph.node):
        if any(name in needed for name in node.output):
            needed.update(node.input)
            kept.append(node)
    _replace(graph.node, kept[::-1])
    _replace(graph.initializer, [t for t in graph.initializer if t.name in needed])


def _shorten_names(graph: onnx.GraphProto) -> None:
    """Numbers nodes within their operator, and names values after their node: a graph's size is mostly names."""
    fixed = {port.name for port in [*graph.input, *graph.output]} | {t.name for t in graph.initializer}
    new: dict[str, str] = {}
    count: Counter = Counter()
    for node in graph.node:
        node.name = f"{node.op_type}_{count[node.op_type]}"
        count[node.op_type] += 1
        for index, name in enumerate(node.input):
            node.input[index] = new.get(name, name)
        for index, name in enumerate(node.output):
            if name not in fixed:
                new[name] = node.name if index == 0 else f"{node.name}_{index}"
                node.output[index] = new[name]


def _strip(
    proto: onnx.ModelProto, name: str, inputs: list[Port], outputs: list[Port], producer: tuple[str, str]
) -> None:
    """Drops all traces of where and how the file was made. Inputs and outputs get the shapes of `model.toml`, with
    `open_sizes` dynamic."""
    graph = proto.graph
    proto.producer_name, proto.producer_version = producer
    graph.name = name
    graph.ClearField("value_info")
    for part in (proto, graph, *graph.node):
        part.ClearField("doc_string")
        part.ClearField("metadata_props")
    for values, ports in ((graph.input, inputs), (graph.output, outputs)):
        assert [value.name for value in values] == [port.name for port in ports]
        elements = {"f32": onnx.TensorProto.FLOAT, "i64": onnx.TensorProto.INT64}
        _replace(values, [helper.make_tensor_value_info(p.name, elements[p.dtype], p.graph_shape) for p in ports])


def _point_at_weights(graph: onnx.GraphProto, layout: Layout) -> None:
    """Turns the inputs that are weights into initializers, in the order of their file."""
    given = {port.name: port for port in graph.input}
    weights = [name for name in layout.shapes if name in given]
    _replace(graph.input, [port for name, port in given.items() if name not in layout.shapes])
    for name in weights:
        shape = layout.shapes[name]
        assert [axis.dim_value for axis in given[name].type.tensor_type.shape.dim] == shape, name
        tensor = graph.initializer.add(name=name, data_type=onnx.TensorProto.FLOAT, dims=shape)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        offset, length = layout.external(name)
        for key, value in (("location", WEIGHTS_FILE), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))


def _replace(field, items) -> None:
    items = list(items)
    del field[:]
    field.extend(items)
