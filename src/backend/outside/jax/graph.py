"""A model's ONNX graph as a function that JAX traces.

Values that depend only on weights are computed once, when the graph is read. BatchNormalization is folded into the
convolution before it, and kernels are stored as `[…, inputs, outputs]`. Large weights are arguments of the function: as
constants, they would make the compiled program slow to compile, and slower to run.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from jax import lax
from onnx import helper, numpy_helper, version_converter

from frames import Refused
from operators import OPERATORS, convolution, dtype_of

# A weight of more bytes is an argument.
LARGE = 1024
# A value that is computed once may be larger than its inputs by this factor.
GROWTH = 4
# Before this operator set, Softmax and others had another meaning.
OLDEST_OPSET = 13


@dataclass
class Node:
    operator: str
    name: str
    inputs: list
    outputs: list
    attributes: dict = field(default_factory=dict)

    def __str__(self):
        return f"{self.operator} (node {self.name!r})" if self.name else self.operator


def is_known(value):
    return value is None or isinstance(value, (np.ndarray, np.generic))


def newer(model, opset):
    try:
        return version_converter.convert_version(model, OLDEST_OPSET)
    except Exception as why:
        reason = str(why).strip().splitlines()[:1]
        message = f"the graph is of operator set {opset}, and onnx does not convert it to {OLDEST_OPSET}: {''.join(reason)}"
        raise Refused("unsupported", message) from why


class Graph:
    def __init__(self, path):
        self.path = Path(path)
        model = onnx.load(path, load_external_data=False)
        opsets = {opset.domain: opset.version for opset in model.opset_import}
        opset = opsets.get("", opsets.get("ai.onnx", OLDEST_OPSET))
        if opset < OLDEST_OPSET:
            model = newer(model, opset)
        if opset < 11:
            # The modes of Resize in these operator sets, which the converter does not add.
            meant = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "simple"}
            for node in model.graph.node:
                if node.op_type == "Resize":
                    node.attribute.extend(helper.make_attribute(name, value) for name, value in meant.items())
        self.nodes = [self._node(node) for node in model.graph.node]
        unknown = sorted({node.operator for node in self.nodes} - OPERATORS.keys() - {"Constant"})
        if unknown:
            raise Refused("unsupported", f"no operator {', '.join(unknown)} here")
        self.known, self._maps = {}, {}
        for tensor in model.graph.initializer:
            self.known[tensor.name] = self._array(tensor)
        self.inputs = [value.name for value in model.graph.input if value.name not in self.known]
        self.outputs = [value.name for value in model.graph.output]
        self._fold_normalizations()
        self._compute_ahead()
        self._turn_kernels()
        needed = {name for node in self.nodes for name in node.inputs} | set(self.outputs)
        self.known = {name: value for name, value in self.known.items() if name in needed}
        is_argument = lambda value: value.nbytes > LARGE and jnp.issubdtype(value.dtype, jnp.floating)
        self.weight_names = [name for name, value in self.known.items() if is_argument(value)]
        # The caller puts these weights on the device.
        self.weights = [self.known.pop(name) for name in self.weight_names]
        self._maps.clear()

    def _node(self, node):
        if any(attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for attribute in node.attribute):
            raise Refused("unsupported", f"no operator {node.op_type} with graphs inside here")
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        operator = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        if operator == "Split":
            # Before operator set 18, only the number of outputs gives the number of equal parts.
            attributes.setdefault("num_outputs", len(node.output))
        return Node(operator, node.name, list(node.input), list(node.output), attributes)

    def _array(self, tensor):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            return numpy_helper.to_array(tensor).astype(dtype_of(tensor.data_type), copy=False)
        place = {entry.key: entry.value for entry in tensor.external_data}
        file = place["location"]
        if Path(file).is_absolute() or ".." in Path(file).parts:
            # inferbench itself does not read, hash or count a file outside of the folder.
            raise Refused("failed", f"the values of {tensor.name} are outside the folder of the graph, in {file}")
        if file not in self._maps:
            self._maps[file] = np.memmap(self.path.parent / file, np.uint8, "r")
        dtype, begin = dtype_of(tensor.data_type), int(place.get("offset", 0))
        count = int(np.prod(tensor.dims, dtype=np.int64))
        return self._maps[file][begin : begin + count * dtype.itemsize].view(dtype).reshape(tuple(tensor.dims))

    def _fold_normalizations(self):
        uses = Counter(name for node in self.nodes for name in node.inputs) + Counter(self.outputs)
        made_by = {node.outputs[0]: node for node in self.nodes}
        for node in [node for node in self.nodes if node.operator == "BatchNormalization"]:
            before = made_by.get(node.inputs[0])
            if before is None or before.operator != "Conv" or uses[node.inputs[0]] != 1 or node.attributes.get("training_mode", 0):
                continue
            names = [*before.inputs[1:], *node.inputs[1:]]
            if any(name not in self.known for name in names if name):
                continue
            scale, bias, mean, variance = (self.known[name].astype(np.float64) for name in node.inputs[1:5])
            kernel = self.known[before.inputs[1]]
            own_bias = self.known[before.inputs[2]] if len(before.inputs) > 2 and before.inputs[2] else 0.0
            factor = scale / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
            folded = {
                f"{node.outputs[0]}/kernel": kernel * factor.reshape((-1,) + (1,) * (kernel.ndim - 1)),
                f"{node.outputs[0]}/bias": (own_bias - mean) * factor + bias,
            }
            self.known.update({name: value.astype(kernel.dtype) for name, value in folded.items()})
            before.inputs, before.outputs = [before.inputs[0], *folded], node.outputs
            made_by[node.outputs[0]] = before
            self.nodes.remove(node)

    def _compute_ahead(self):
        left = []
        for node in self.nodes:
            if node.operator == "Constant":
                self.known[node.outputs[0]] = self._constant(node)
                continue
            given = [self.known.get(name) for name in node.inputs]
            if all(name == "" or name in self.known for name in node.inputs):
                results = self._apply(node, np, given)
                bytes_before = sum(value.nbytes for value in given if value is not None)
                if sum(np.asarray(result).nbytes for result in results) <= GROWTH * bytes_before + LARGE**2:
                    self.known.update((name, np.asarray(result)) for name, result in zip(node.outputs, results))
                    continue
            left.append(node)
        self.nodes = left

    @staticmethod
    def _constant(node):
        ((kind, value),) = node.attributes.items()
        if kind == "value":
            return numpy_helper.to_array(value)
        return np.asarray(value, np.float32 if "float" in kind else np.int64)

    def _turn_kernels(self):
        for node in self.nodes:
            if node.operator == "Conv" and node.inputs[1] in self.known:
                name = f"{node.inputs[1]}/turned"
                if name not in self.known:
                    self.known[name] = np.ascontiguousarray(np.moveaxis(self.known[node.inputs[1]], (0, 1), (-1, -2)))
                node.inputs[1], node.operator = name, "turned Conv"

    @staticmethod
    def _apply(node, xp, inputs):
        try:
            if node.operator == "turned Conv":
                result = convolution(xp, node.attributes, *inputs, is_last=True)
            else:
                result = OPERATORS[node.operator](xp, node.attributes, *inputs)
        except Refused as why:
            raise Refused(why.status, f"{node}: {why}") from None
        except MemoryError:
            raise
        except NotImplementedError as why:
            raise Refused("unsupported", f"{node}: {why}") from why
        except Exception as why:
            raise Refused("failed", f"{node}: {str(why).splitlines()[0] if str(why) else type(why).__name__}") from why
        return result if isinstance(result, tuple) else (result,)

    def appends(self, caches):
        """Whether the graph only appends to these inputs, `{name: axis}`."""
        for node in self.nodes:
            for place, name in enumerate(node.inputs):
                if name in caches and not self._appends(node, place, caches[name]):
                    return False
        return True

    @staticmethod
    def _appends(node, place, axis):
        # A negative axis counts from the last of a cache's four dimensions.
        return node.operator == "Concat" and place == 0 and len(node.inputs) == 2 and node.attributes["axis"] in (axis, axis - 4)

    def __call__(self, weights, inputs, caches=(), position=None):
        """The outputs by name. With a `position`, values are written there into `caches` instead of being appended."""
        values = {**self.known, **dict(zip(self.weight_names, weights)), **inputs}
        for number, node in enumerate(self.nodes):
            if lacking := [name for name in node.inputs if name and name not in values]:
                raise Refused("unsupported", f"{node}: nothing here computes its input {lacking[0]!r}")
            given = [values[name] if name else None for name in node.inputs]
            with jax.named_scope(f"onnx{number}"):
                results = self._computed(node, given, caches, position)
            for name, result in zip(node.outputs, results):
                values[name] = np.asarray(result) if isinstance(result, np.generic) else result
        if lacking := [name for name in self.outputs if name not in values]:
            raise Refused("unsupported", f"nothing here computes the output {lacking[0]!r}")
        return {name: values[name] for name in self.outputs}

    def _computed(self, node, given, caches, position):
        if position is not None and node.operator == "Concat" and node.inputs[0] in caches:
            cache, new = given
            return (lax.dynamic_update_slice_in_dim(cache, new, position, caches[node.inputs[0]]),)
        return self._apply(node, np if all(map(is_known, given)) else jnp, given)
