"""Networks, and faults that are seeded into them, for `scripts/fault-experiment`."""

import copy
import dataclasses
import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

SAMPLES = 8
PREPARED = pathlib.Path(".prepared")


@dataclasses.dataclass
class Network:
    """A right network with inputs of eight samples and its outputs for them."""

    name: str
    model: onnx.ModelProto
    inputs: dict
    outputs: list = None

    def __post_init__(self):
        self.output_names = [output.name for output in self.model.graph.output]
        self.outputs = run(self.model, self.inputs)
        assert all(np.isfinite(output).all() for output in self.outputs), self.name


def run(model, inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def network(name):
    """A packaged network by its name, or one of `MADE`."""
    if name in MADE:
        return MADE[name](name)
    path = next((PREPARED / name).rglob("model.onnx"))
    model = onnx.load(path)
    random = np.random.default_rng(1)
    inputs = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        # Texts of 32 tokens, a quarter of a second of sound.
        length = 4000 if kind.elem_type == TensorProto.FLOAT else 32
        shape = [SAMPLES] + [size.dim_value if size.HasField("dim_value") else length for size in kind.shape.dim[1:]]
        if kind.elem_type == TensorProto.FLOAT:
            inputs[value.name] = random.normal(size=shape).astype(np.float32)
        elif "mask" in value.name:
            inputs[value.name] = np.ones(shape, np.int64)
        elif "type" in value.name:
            inputs[value.name] = np.zeros(shape, np.int64)
        else:
            inputs[value.name] = random.integers(0, 100, shape).astype(np.int64)
    return Network(name, model, inputs)


def made(name, nodes, weights, shape, outputs, opset=17):
    """A network of these nodes, whose input is `x` with this shape of a sample."""
    batch = lambda sizes: ["batch", *sizes]
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, batch(shape))],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, batch(sizes)) for output, sizes in outputs],
        [numpy_helper.from_array(np.asarray(value), key) for key, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model)
    x = np.random.default_rng(2).normal(size=(SAMPLES, *shape)).astype(np.float32)
    return Network(name, model, {"x": x})


def floats(seed, *shape, scale=None):
    scale = (2.0 / max(1, int(np.prod(shape[1:])))) ** 0.5 if scale is None else scale
    return (scale * np.random.default_rng(seed).normal(size=shape)).astype(np.float32)


def detector(name):
    """Boxes in pixels and scores in one output, as YOLO has, after convolutions with pads, pools, a resize and a pad."""
    node = helper.make_node
    nodes = [
        node("Pad", ["x", "pads"], ["padded"], mode="constant"),
        node("Conv", ["padded", "w1", "b1"], ["c1"], kernel_shape=[3, 3], pads=[0, 0, 0, 0], strides=[1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "wd", "bd"], ["c2"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=16),
        node("Sigmoid", ["c2"], ["s2"]),
        node("Mul", ["c2", "s2"], ["r2"]),
        node("MaxPool", ["r2"], ["p2"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("AveragePool", ["p2"], ["a2"], kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1]),
        node("Resize", ["a2", "", "scales"], ["u2"], mode="linear", coordinate_transformation_mode="half_pixel"),
        node("Concat", ["u2", "r1"], ["k"], axis=1),
        node("Conv", ["k", "w3", "b3"], ["c3"], kernel_shape=[1, 1]),
        node("BatchNormalization", ["c3", "g", "beta", "mean", "var"], ["n3"], epsilon=1e-5),
        node("LeakyRelu", ["n3"], ["r3"], alpha=0.1),
        node("MaxPool", ["r3"], ["p3"], kernel_shape=[4, 4], strides=[4, 4]),
        node("Conv", ["p3", "wb"], ["boxes_raw"], kernel_shape=[1, 1]),
        node("Conv", ["p3", "wc", "bc"], ["scores_raw"], kernel_shape=[1, 1]),
        node("Sigmoid", ["scores_raw"], ["scores"]),
        node("Sigmoid", ["boxes_raw"], ["boxes_part"]),
        node("Mul", ["boxes_part", "pixels"], ["boxes"]),
        node("Concat", ["boxes", "scores"], ["both"], axis=1),
        node("Reshape", ["both", "flat"], ["y"]),
    ]
    weights = {
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
        "w1": floats(1, 16, 3, 3, 3), "b1": floats(2, 16, scale=0.1), "wd": floats(3, 16, 1, 3, 3), "bd": floats(4, 16, scale=0.1),
        "scales": np.array([1, 1, 2, 2], np.float32), "w3": floats(5, 24, 32, 1, 1), "b3": floats(6, 24, scale=0.1),
        "g": 1 + floats(7, 24, scale=0.2), "beta": floats(8, 24, scale=0.2), "mean": floats(9, 24, scale=0.2), "var": 0.5 + np.abs(floats(10, 24, scale=0.3)),
        "wb": floats(11, 4, 24, 1, 1), "wc": floats(12, 20, 24, 1, 1), "bc": floats(13, 20, scale=0.1) - 3, "pixels": np.array(320, np.float32),
        "flat": np.array([0, 24, -1], np.int64),
    }
    return made(name, nodes, weights, [3, 32, 32], [("y", [24, 64])])


def masked(name):
    """Self-attention with a causal mask of the least f32 in the output, and log-probabilities."""
    node = helper.make_node
    mask = np.triu(np.full((16, 16), np.finfo(np.float32).min, np.float32), 1)
    nodes = [
        node("MatMul", ["x", "wq"], ["q"]),
        node("MatMul", ["x", "wk"], ["k"]),
        node("MatMul", ["x", "wv"], ["v"]),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["qk"]),
        node("Div", ["qk", "root"], ["scaled"]),
        node("Add", ["scaled", "mask"], ["scores"]),
        node("Softmax", ["scores"], ["part"], axis=-1),
        node("MatMul", ["part", "v"], ["mixed"]),
        node("Add", ["mixed", "x"], ["sum"]),
        node("LayerNormalization", ["sum", "g", "b"], ["normal"], axis=-1, epsilon=1e-5),
        node("MatMul", ["normal", "w1"], ["h"]),
        node("Erf", ["h"], ["e"]),
        node("Mul", ["h", "e"], ["a"]),
        node("MatMul", ["a", "w2"], ["h2"]),
        node("Add", ["h2", "normal"], ["sum2"]),
        node("MatMul", ["sum2", "wo"], ["logits"]),
        node("LogSoftmax", ["logits"], ["y"], axis=-1),
    ]
    weights = {
        **{key: floats(place, 32, 32, scale=0.2) for place, key in enumerate(["wq", "wk", "wv"])},
        "root": np.array(32**0.5, np.float32), "mask": mask, "g": 1 + floats(5, 32, scale=0.1), "b": floats(6, 32, scale=0.1),
        "w1": floats(7, 32, 64, scale=0.2), "w2": floats(8, 64, 32, scale=0.15), "wo": floats(9, 32, 50, scale=0.2),
    }
    return made(name, nodes, weights, [16, 32], [("scores", [16, 16]), ("y", [16, 50])])


def recurrent(name):
    """An LSTM and a GRU over 40 steps."""
    node = helper.make_node
    nodes = [
        node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
        node("LSTM", ["steps", "w", "r", "b"], ["hidden", "last", ""], hidden_size=24, direction="bidirectional"),
        node("Transpose", ["hidden"], ["joined"], perm=[0, 2, 1, 3]),
        node("Reshape", ["joined", "flat"], ["both"]),
        node("GRU", ["both", "wg", "rg", "bg"], ["", "state"], hidden_size=16, linear_before_reset=1),
        node("Squeeze", ["state", "zero"], ["s"]),
        node("Gemm", ["s", "wo", "bo"], ["z"], transB=1),
        node("Tanh", ["z"], ["y"]),
    ]
    weights = {
        "w": floats(1, 2, 96, 12, scale=0.4), "r": floats(2, 2, 96, 24, scale=0.3), "b": floats(3, 2, 192, scale=0.2),
        "flat": np.array([0, 0, 48], np.int64), "wg": floats(4, 1, 48, 48, scale=0.3), "rg": floats(5, 1, 48, 16, scale=0.3),
        "bg": floats(6, 1, 96, scale=0.2), "zero": np.array([0], np.int64), "wo": floats(7, 10, 16, scale=0.4), "bo": floats(8, 10, scale=0.2),
    }
    return made(name, nodes, weights, [40, 12], [("y", [10])])


def cancelling(name):
    """Normalises by a variance that is the mean of squares less the square of the mean: rounding is amplified a thousandfold."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Add", ["h", "far"], ["a"]),
        node("ReduceMean", ["a"], ["mean"], axes=[1], keepdims=1),
        node("Mul", ["a", "a"], ["aa"]),
        node("ReduceMean", ["aa"], ["square"], axes=[1], keepdims=1),
        node("Mul", ["mean", "mean"], ["mm"]),
        node("Sub", ["square", "mm"], ["var"]),
        node("Add", ["var", "eps"], ["ve"]),
        node("Sqrt", ["ve"], ["deviation"]),
        node("Sub", ["a", "mean"], ["centred"]),
        node("Div", ["centred", "deviation"], ["normal"]),
        node("MatMul", ["normal", "w2"], ["y"]),
    ]
    weights = {"w": floats(1, 20, 64, scale=0.3), "far": np.array(40, np.float32), "eps": np.array(1e-5, np.float32), "w2": floats(2, 64, 12, scale=0.2)}
    return made(name, nodes, weights, [20], [("y", [12])])


MADE = {"detector": detector, "masked": masked, "recurrent": recurrent, "cancelling": cancelling}


def write(folder, network, faulty=None):
    """Writes the network or its faulty form with the right outputs beside it, and returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"net-{folder.name}.onnx"
    onnx.save(faulty or network.model, file)
    named = dict(zip(network.output_names, network.outputs))
    np.savez(file.with_suffix(".npz"), **network.inputs, **named)
    return file


# Faults. Each takes a copy of the model and a place, and changes it there; without a place, it says how many of them there are.

KINDS = {}
NORMS = ["LayerNormalization", "BatchNormalization", "InstanceNormalization"]


def kind(function):
    KINDS[function.__name__.replace("_", "-")] = function
    return function


class Graph:
    """A copy of a model with what faults need."""

    def __init__(self, model):
        self.model = copy.deepcopy(model)
        self.graph = self.model.graph
        self.constants = {it.name: it for it in self.graph.initializer}
        for node in self.graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self.constants[node.output[0]] = node.attribute[0].t

    def nodes(self, *types):
        return [node for node in self.graph.node if node.op_type in types]

    def value(self, name):
        constant = self.constants.get(name)
        return None if constant is None else numpy_helper.to_array(constant).copy()

    def put(self, name, value):
        """Gives the constant of this name another value."""
        constant = self.constants[name]
        constant.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value), name))

    def weights(self):
        """Names of constants of products and convolutions, in the order of the nodes."""
        names = [name for node in self.nodes("Conv", "Gemm", "MatMul", "ConvTranspose", "LSTM", "GRU") for name in node.input[:2]]
        names = [name for name in names if name in self.constants and self.constants[name].data_type == TensorProto.FLOAT]
        return [name for name in dict.fromkeys(names) if np.prod(self.constants[name].dims) > 16]

    def biases(self):
        names = [node.input[2] for node in self.nodes("Conv", "Gemm") if len(node.input) > 2]
        names += [name for node in self.nodes("Add") for name in node.input]
        return [name for name in dict.fromkeys(names) if name in self.constants and len(self.constants[name].dims) == 1]

    def operands(self, *types, place=None):
        """Names of constants that nodes of these types read, in the order of the nodes: all, or those at one place."""
        read = [name for node in self.nodes(*types) for name in (node.input if place is None else node.input[place : place + 1])]
        return [name for name in read if name in self.constants]

    def insert(self, after, op):
        """Puts nodes behind the value, for all who read it."""
        new = f"{after}_changed"
        for node in self.graph.node:
            for place, read in enumerate(node.input):
                if read == after:
                    node.input[place] = new
        at = next(place for place, node in enumerate(self.graph.node) if after in node.output) + 1
        for offset, node in enumerate(op(after, new)):
            self.graph.node.insert(at + offset, node)

    def add(self, name, value):
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))


def seeded(network, name):
    """The faulty forms of a network: the first and the last place where the kind of fault applies. Yields the place, the model
    and by how much the outputs change, as a part of what samples differ by."""
    count = KINDS[name](Graph(network.model), None)
    for place in sorted({0, count - 1}) if count else []:
        graph = Graph(network.model)
        KINDS[name](graph, place)
        try:
            outputs = run(graph.model, network.inputs)
        except Exception:  # shapes that do not fit: a runtime refuses it
            continue
        if any(one.shape != other.shape for one, other in zip(outputs, network.outputs)):
            continue
        effect = max(change(one, other) for one, other in zip(outputs, network.outputs))
        # Below this it is the rounding of another order.
        if effect > 1e-5:
            yield place, graph.model, effect


def change(values, right):
    usual = np.abs(right) < 1e6
    if not np.isfinite(values).all():
        return np.inf
    spread = np.std(np.where(usual, right, 0), axis=0)
    error = np.where(usual, values - right, 0)
    return float(np.sqrt(np.mean(error**2)) / max(np.sqrt(np.mean(spread**2)), 1e-30))


def at(items, place, act):
    """The number of places, or the act on one of them."""
    items = list(items)
    if place is None:
        return len(items)
    act(items[place])


def constant_fault(name, names_of, change_of):
    """`change_of` gives another value for one of these constants, and None if it cannot."""

    def fault(graph, place):
        usable = [it for it in names_of(graph) if change_of(graph.value(it)) is not None]
        return at(usable, place, lambda it: graph.put(it, change_of(graph.value(it)).astype(graph.value(it).dtype)))

    KINDS[name] = fault


def weight_fault(name, change_of):
    constant_fault(name, Graph.weights, change_of)


def bias_fault(name, change_of):
    constant_fault(name, Graph.biases, change_of)


def with_index(value, act):
    act(value)
    return value


def to_bf16(value):
    return ((value.astype(np.float32).view(np.uint32) + 0x8000) & 0xFFFF0000).view(np.float32)


def first_half(value, factor):
    value[: value.shape[0] // 2] *= factor
    return value


weight_fault("weight-times-1.002", lambda w: w * 1.002)
weight_fault("weight-times-1.01", lambda w: w * 1.01)
weight_fault("weight-times-1.1", lambda w: w * 1.1)
weight_fault("half-of-weight-times-1.01", lambda w: first_half(w, 1.01))
weight_fault("channel-of-weight-zero", lambda w: with_index(w, lambda w: w.__setitem__(w.shape[0] // 2, 0)))
weight_fault("channel-of-weight-negative", lambda w: with_index(w, lambda w: w.__setitem__(0, -w[0])))
weight_fault("weight-shifted-by-a-channel", lambda w: np.roll(w, 1, axis=0))
weight_fault("weight-shifted-along-last-axis", lambda w: np.roll(w, 1, axis=-1) if w.shape[-1] > 1 else None)
weight_fault("weight-transposed", lambda w: w.T.copy() if w.ndim == 2 and w.shape[0] == w.shape[1] else None)
weight_fault("kernel-transposed", lambda w: np.swapaxes(w, -1, -2).copy() if w.ndim == 4 and w.shape[-1] == w.shape[-2] > 1 else None)
weight_fault("kernel-flipped", lambda w: w[..., ::-1].copy() if w.ndim >= 3 and w.shape[-1] > 1 else None)
weight_fault("weight-in-f16", lambda w: w.astype(np.float16).astype(np.float32))
weight_fault("weight-in-bf16", to_bf16)
weight_fault("weight-in-8-bits", lambda w: np.round(w / np.abs(w).max() * 127) / 127 * np.abs(w).max())
weight_fault("weight-in-4-bits", lambda w: np.round(w / np.abs(w).max() * 7) / 7 * np.abs(w).max())
weight_fault("one-number-of-weight-negative", lambda w: with_index(w, lambda w: w.reshape(-1).__setitem__(np.abs(w).argmax(), -w.reshape(-1)[np.abs(w).argmax()])))
weight_fault("weight-of-absolute-values", np.abs)
weight_fault("weight-pruned-by-half", lambda w: np.where(np.abs(w) < np.median(np.abs(w)), 0, w))
bias_fault("bias-zero", lambda b: b * 0)
bias_fault("bias-negative", lambda b: -b)
bias_fault("bias-shifted-by-one", lambda b: np.roll(b, 1))
bias_fault("bias-times-1.01", lambda b: b * 1.01)


@kind
def weights_of_two_layers_swapped(graph, place):
    weights = graph.weights()
    pairs = [(a, b) for a, b in zip(weights, weights[1:]) if graph.value(a).shape == graph.value(b).shape]

    def act(pair):
        a, b = map(graph.value, pair)
        graph.put(pair[0], b), graph.put(pair[1], a)

    return at(pairs, place, act)


def attribute_fault(name, types, change_of):
    """`change_of` changes a node's attributes, and returns False if it cannot."""

    def fault(graph, place):
        usable = [node for node in graph.nodes(*types) if change_of(copy.deepcopy(node)) is not False]
        return at(usable, place, change_of)

    KINDS[name] = fault


def attribute(node, name):
    return next((it for it in node.attribute if it.name == name), None)


def set_attribute(node, name, value):
    old = attribute(node, name)
    if old is not None:
        node.attribute.remove(old)
    node.attribute.append(helper.make_attribute(name, value))


def reverse(names):
    names[:] = list(names)[::-1]


def moved_pads(node):
    pads = attribute(node, "pads")
    if pads is None or not any(pads.ints):
        return False
    half = len(pads.ints) // 2
    if list(pads.ints[:half]) != list(pads.ints[half:]):
        return False
    set_attribute(node, "pads", [it - 1 for it in pads.ints[:half]] + [it + 1 for it in pads.ints[half:]])


def dilated(node):
    kernel, pads = attribute(node, "kernel_shape"), attribute(node, "pads")
    if kernel is None or max(kernel.ints) < 3 or pads is None:
        return False
    set_attribute(node, "dilations", [2] * len(kernel.ints))
    extra = [(k - 1) for k in kernel.ints]
    low = [p + e // 2 for p, e in zip(pads.ints, extra)]
    high = [p + e - e // 2 for p, e in zip(pads.ints[len(extra) :], extra)]
    set_attribute(node, "pads", low + high)


attribute_fault("pad-off-by-one", ["Conv", "MaxPool", "AveragePool"], moved_pads)
attribute_fault("dilation-2", ["Conv"], dilated)
attribute_fault("pool-average-for-max", ["MaxPool"], lambda node: setattr(node, "op_type", "AveragePool") or [node.attribute.remove(it) for it in list(node.attribute) if it.name in ("storage_order", "dilations")] and None)
attribute_fault("pool-max-for-average", ["AveragePool"], lambda node: setattr(node, "op_type", "MaxPool") or [node.attribute.remove(it) for it in list(node.attribute) if it.name == "count_include_pad"] and None)
attribute_fault("count-include-pad", ["AveragePool"], lambda node: set_attribute(node, "count_include_pad", 1) if attribute(node, "count_include_pad") is None else False)
attribute_fault("global-max-for-average", ["GlobalAveragePool"], lambda node: setattr(node, "op_type", "GlobalMaxPool"))
attribute_fault("epsilon-1e-3", NORMS, lambda node: set_attribute(node, "epsilon", 1e-3))
attribute_fault("epsilon-1e-12", NORMS, lambda node: set_attribute(node, "epsilon", 1e-12))
attribute_fault("softmax-other-axis", ["Softmax", "LogSoftmax"], lambda node: set_attribute(node, "axis", -2))
attribute_fault("leaky-relu-slope", ["LeakyRelu"], lambda node: set_attribute(node, "alpha", 0.01))
attribute_fault("resize-nearest-for-linear", ["Resize"], lambda node: set_attribute(node, "mode", "nearest"))
attribute_fault("resize-asymmetric", ["Resize"], lambda node: set_attribute(node, "coordinate_transformation_mode", "asymmetric"))
attribute_fault("pad-reflects", ["Pad"], lambda node: set_attribute(node, "mode", "reflect"))
attribute_fault("recurrence-not-linear-before-reset", ["GRU"], lambda node: set_attribute(node, "linear_before_reset", 0))
attribute_fault("recurrence-reversed", ["GRU"], lambda node: set_attribute(node, "direction", "reverse"))
attribute_fault("recurrence-clipped", ["LSTM", "GRU"], lambda node: set_attribute(node, "clip", 0.5))
attribute_fault("recurrence-relu-for-tanh", ["GRU"], lambda node: set_attribute(node, "activations", ["Sigmoid", "Relu"]))
attribute_fault("mean-for-max", ["ReduceMean"], lambda node: setattr(node, "op_type", "ReduceMax"))
attribute_fault("operands-of-sub-swapped", ["Sub"], lambda node: reverse(node.input))
attribute_fault("order-of-split-reversed", ["Split"], lambda node: reverse(node.output))


def operator_fault(name, types, other, **attributes):
    def change_of(node):
        node.op_type = other
        del node.attribute[:]
        for key, value in attributes.items():
            set_attribute(node, key, value)

    attribute_fault(name, types, change_of)


operator_fault("leaky-for-relu", ["Relu"], "LeakyRelu", alpha=0.01)
operator_fault("identity-for-relu", ["Relu"], "Identity")
operator_fault("elu-for-relu", ["Relu"], "Elu", alpha=1.0)
operator_fault("hard-sigmoid-for-sigmoid", ["Sigmoid"], "HardSigmoid", alpha=0.2, beta=0.5)
operator_fault("tanh-for-erf", ["Erf"], "Tanh")
operator_fault("softsign-for-tanh", ["Tanh"], "Softsign")
operator_fault("sub-for-add", ["Add"], "Sub")
operator_fault("max-for-add", ["Add"], "Max")
operator_fault("mul-for-div", ["Div"], "Mul")


@kind
def erf_by_tanh(graph, place):
    """GELU by the approximation with tanh, as some runtimes compute it."""

    def act(node):
        graph.add("two_over_root_pi", np.float32(1.1283791670955126))
        node.op_type = "Tanh"
        before = node.input[0]
        node.input[0] = before + "_scaled"
        index = list(graph.graph.node).index(node)
        graph.graph.node.insert(index, helper.make_node("Mul", [before, "two_over_root_pi"], [before + "_scaled"]))

    return at(graph.nodes("Erf"), place, act)


@kind
def residual_dropped(graph, place):
    adds = [node for node in graph.nodes("Add") if not any(name in graph.constants for name in node.input)]

    def act(node):
        del node.input[1]
        node.op_type = "Identity"

    return at(adds, place, act)


def scalar_fault(name, types, factor):
    is_scalar = lambda value: value.size == 1 and value.dtype == np.float32
    constant_fault(name, lambda graph: dict.fromkeys(graph.operands(*types)), lambda it: it * np.float32(factor) if is_scalar(it) else None)


scalar_fault("constant-times-1.01", ["Mul", "Div", "Pow"], 1.01)
scalar_fault("constant-times-1.1", ["Mul", "Div"], 1.1)
scalar_fault("constant-of-add-times-100", ["Add"], 100)
constant_fault("mask-dropped", lambda graph: graph.operands("Add"), lambda mask: mask * 0 if np.min(mask, initial=0) < -1e4 else None)
constant_fault("scale-of-norm-dropped", lambda graph: graph.operands(*NORMS, place=1), np.ones_like)
constant_fault("variance-of-norm-unbiased", lambda graph: graph.operands("BatchNormalization", place=4), lambda it: it * np.float32(1.01))
constant_fault("table-of-gather-shifted", lambda graph: graph.operands("Gather", place=0), lambda it: np.roll(it, 1, axis=0) if it.ndim == 2 else None)
constant_fault(
    "index-of-gather-off-by-one",
    lambda graph: [node.input[1] for node in graph.nodes("Gather") if node.input[1] in graph.constants and node.input[0] not in graph.constants],
    lambda index: index + 1,
)
constant_fault(
    "positions-shifted",
    lambda graph: dict.fromkeys(graph.operands("Add")),
    lambda it: np.roll(it, 1, axis=-2) if it.ndim >= 2 and it.shape[-2] > 1 else None,
)


@kind
def last_two_axes_of_transpose_swapped(graph, place):
    def act(node):
        perm = list(attribute(node, "perm").ints)
        set_attribute(node, "perm", [*perm[:-2], perm[-1], perm[-2]])

    return at([node for node in graph.nodes("Transpose") if len(attribute(node, "perm").ints) > 2], place, act)


@kind
def order_of_concat_reversed(graph, place):
    nodes = [node for node in graph.nodes("Concat") if not all(name in graph.constants for name in node.input)]
    return at(nodes, place, lambda node: reverse(node.input))


def middle_fault(name, make):
    """What a value in the middle becomes before others read it."""

    def fault(graph, place):
        values = [node.output[0] for node in graph.nodes("Conv", "MatMul", "Gemm", "LayerNormalization", "Relu", "Mul")]
        kept = {output.name for output in graph.graph.output}
        return at([it for it in values if it not in kept], place, lambda it: graph.insert(it, lambda a, b: make(graph, a, b)))

    KINDS[name] = fault


def as_type(kind_of):
    return lambda graph, a, b: [helper.make_node("Cast", [a], [b + "_low"], to=kind_of), helper.make_node("Cast", [b + "_low"], [b], to=TensorProto.FLOAT)]


def in_steps(step):
    def make(graph, a, b):
        graph.add(b + "_step", np.float32(step))
        return [
            helper.make_node("Mul", [a, b + "_step"], [b + "_many"]),
            helper.make_node("Round", [b + "_many"], [b + "_round"]),
            helper.make_node("Div", [b + "_round", b + "_step"], [b]),
        ]

    return make


def bounded(most):
    def make(graph, a, b):
        graph.add(b + "_low", np.float32(-most))
        graph.add(b + "_high", np.float32(most))
        return [helper.make_node("Clip", [a, b + "_low", b + "_high"], [b])]

    return make


middle_fault("activation-in-f16", as_type(TensorProto.FLOAT16))
middle_fault("activation-in-bf16", as_type(TensorProto.BFLOAT16))
middle_fault("activation-in-64ths", in_steps(64))
middle_fault("activation-in-8ths", in_steps(8))
middle_fault("activation-bounded-by-1", bounded(1.0))
middle_fault("activation-bounded-by-3", bounded(3.0))
