"""ONNX's operators for arrays of NumPy or JAX.

An operator is a function of `xp`, the node's attributes, and the node's inputs; an omitted input is None. `xp` is NumPy
if all inputs are known before the trace, and jax.numpy otherwise. NumPy arrays, such as shapes, have known values
during a trace.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from onnx import TensorProto, helper, numpy_helper

from frames import Refused

OPERATORS = {}


def operator(*names):
    def register(function):
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return register


def elementwise(**functions):
    for name, function in functions.items():
        OPERATORS[name] = lambda xp, attributes, *inputs, function=function: getattr(xp, function)(*inputs)


elementwise(
    Add="add", Sub="subtract", Mul="multiply", MatMul="matmul", Equal="equal", Less="less", LessOrEqual="less_equal", Greater="greater",
    GreaterOrEqual="greater_equal", And="logical_and", Or="logical_or", Not="logical_not", Sqrt="sqrt", Exp="exp", Log="log", Sin="sin",
    Cos="cos", Tanh="tanh", Neg="negative", Abs="abs", Floor="floor", Ceil="ceil", Where="where", Reciprocal="reciprocal", Sign="sign",
    IsNaN="isnan",
)  # fmt: skip


def of_jax(**functions):
    for name, function in functions.items():
        OPERATORS[name] = lambda xp, attributes, x, function=function: function(x)


of_jax(Erf=lax.erf, Sigmoid=jax.nn.sigmoid, Relu=jax.nn.relu, Softplus=jax.nn.softplus, HardSwish=jax.nn.hard_swish)


def numbers(values):
    return [int(value) for value in np.atleast_1d(known(values))]


def known(value):
    """A value on which a shape depends, so it must be known before the trace."""
    if not isinstance(value, (np.ndarray, np.generic)):
        raise Refused("unsupported", "a shape depends on the values of a tensor, and XLA needs it before")
    return np.asarray(value)


def dtype_of(number):
    # onnx before 1.19 maps bf16 to f32.
    if number == TensorProto.BFLOAT16:
        return np.dtype(jnp.bfloat16)
    return np.dtype(helper.tensor_dtype_to_np_dtype(number))


@operator("Identity")
def identity(xp, attributes, x):
    return x


@operator("Dropout")
def dropout(xp, attributes, x, ratio=None, is_training=None):
    if is_training is not None and np.any(known(is_training)):
        raise Refused("unsupported", "it is in training mode and drops values by chance")
    return x


def reduced_pairwise(function):
    def apply(xp, attributes, *inputs):
        result = inputs[0]
        for other in inputs[1:]:
            result = getattr(xp, function)(result, other)
        return result

    return apply


OPERATORS.update(Min=reduced_pairwise("minimum"), Max=reduced_pairwise("maximum"), Sum=reduced_pairwise("add"))


@operator("Pow")
def power(xp, attributes, x, exponent):
    if isinstance(exponent, np.ndarray) and exponent.size == 1 and exponent.ndim <= x.ndim and float(exponent.reshape(())) == 2.0:
        return x * x
    if np.issubdtype(x.dtype, np.integer):
        return xp.power(x, exponent).astype(x.dtype)
    return xp.power(x, exponent.astype(x.dtype))


@operator("Div")
def divide(xp, attributes, x, y):
    if not np.issubdtype(x.dtype, np.integer):
        return xp.divide(x, y)
    # ONNX truncates, and Python rounds down.
    quotient = xp.sign(x) * xp.sign(y) * (xp.abs(x) // xp.abs(y))
    return quotient.astype(x.dtype)


@operator("Clip")
def clip(xp, attributes, x, least=None, most=None):
    least, most = attributes.get("min", least), attributes.get("max", most)
    x = x if least is None else xp.maximum(x, np.asarray(least, x.dtype) if isinstance(least, float) else least)
    return x if most is None else xp.minimum(x, np.asarray(most, x.dtype) if isinstance(most, float) else most)


@operator("LeakyRelu")
def leaky_relu(xp, attributes, x):
    return jax.nn.leaky_relu(x, attributes.get("alpha", 0.01))


@operator("HardSigmoid")
def hard_sigmoid(xp, attributes, x):
    return xp.clip(attributes.get("alpha", 0.2) * x + attributes.get("beta", 0.5), 0, 1).astype(x.dtype)


@operator("Gelu")
def gelu(xp, attributes, x):
    return jax.nn.gelu(x, approximate=attributes.get("approximate", b"none") == b"tanh")


@operator("Softmax")
def softmax(xp, attributes, x):
    return jax.nn.softmax(x, axis=attributes.get("axis", -1))


OPERATORS["LogSoftmax"] = lambda xp, attributes, x: jax.nn.log_softmax(x, axis=attributes.get("axis", -1))


@operator("Shape")
def shape(xp, attributes, x):
    return np.array(np.shape(x)[attributes.get("start", 0) : attributes.get("end")], np.int64)


@operator("Size")
def size(xp, attributes, x):
    return np.array(np.size(x), np.int64)


@operator("Cast")
def cast(xp, attributes, x):
    return x.astype(dtype_of(attributes["to"]))


@operator("Transpose")
def transpose(xp, attributes, x):
    return xp.transpose(x, attributes.get("perm"))


@operator("Reshape")
def reshape(xp, attributes, x, sizes):
    keeps = not attributes.get("allowzero", 0)
    return xp.reshape(x, [x.shape[place] if size == 0 and keeps else size for place, size in enumerate(numbers(sizes))])


@operator("Flatten")
def flatten(xp, attributes, x):
    axis = attributes.get("axis", 1)
    axis += x.ndim if axis < 0 else 0
    return xp.reshape(x, (int(np.prod(x.shape[:axis])), -1))


@operator("Unsqueeze")
def unsqueeze(xp, attributes, x, axes=None):
    return xp.expand_dims(x, tuple(attributes["axes"] if axes is None else numbers(axes)))


@operator("Squeeze")
def squeeze(xp, attributes, x, axes=None):
    axes = attributes.get("axes") if axes is None else numbers(axes)
    return xp.squeeze(x, None if axes is None else tuple(axes))


@operator("Gather")
def gather(xp, attributes, x, places):
    axis = attributes.get("axis", 0)
    if xp is np:
        return np.take(x, places, axis=axis)
    x = jnp.asarray(x)
    places = jnp.where(places < 0, places + x.shape[axis], places)
    return jnp.take(x, places, axis=axis, mode="clip")


@operator("GatherElements")
def gather_elements(xp, attributes, x, places):
    axis = attributes.get("axis", 0) % x.ndim
    # Along the other axes, there may be fewer indices than elements.
    x = x[tuple(slice(None) if place == axis else slice(size) for place, size in enumerate(np.shape(places)))]
    return xp.take_along_axis(x, places, axis=axis)


@operator("Concat")
def concat(xp, attributes, *inputs):
    return xp.concatenate(inputs, axis=attributes["axis"])


@operator("Split")
def split(xp, attributes, x, sizes=None):
    axis = attributes.get("axis", 0)
    sizes = attributes.get("split") if sizes is None else numbers(sizes)
    if sizes is None:
        count = attributes["num_outputs"]
        each = -(-x.shape[axis] // count)
        sizes = [min(each, x.shape[axis] - each * place) for place in range(count)]
    return tuple(xp.split(x, np.cumsum(sizes)[:-1].tolist(), axis=axis))


@operator("Slice")
def slice_of(xp, attributes, x, starts=None, ends=None, axes=None, steps=None):
    starts = attributes["starts"] if starts is None else numbers(starts)
    ends = attributes["ends"] if ends is None else numbers(ends)
    axes = attributes.get("axes", range(len(starts))) if axes is None else numbers(axes)
    steps = [1] * len(starts) if steps is None else numbers(steps)
    places = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps):
        # With a negative step, Python has no number for an end before the first element.
        is_open = step < 0 and end < -x.shape[axis]
        places[axis] = slice(start, None if is_open else end, step)
    return x[tuple(places)]


@operator("Expand")
def expand(xp, attributes, x, sizes):
    return xp.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(numbers(sizes))))


@operator("Tile")
def tile(xp, attributes, x, repeats):
    return xp.tile(x, tuple(numbers(repeats)))


@operator("ConstantOfShape")
def constant_of_shape(xp, attributes, sizes):
    value = numpy_helper.to_array(attributes["value"]) if "value" in attributes else np.zeros(1, np.float32)
    return np.full(tuple(numbers(sizes)) if np.size(sizes) else (), value[0])


@operator("Range")
def range_of(xp, attributes, start, limit, delta):
    return np.arange(known(start), known(limit), known(delta), dtype=known(start).dtype)


def reduction(function):
    def apply(xp, attributes, x, axes=None):
        axes = attributes.get("axes") if axes is None else numbers(axes)
        if not axes and attributes.get("noop_with_empty_axes", 0):
            return x
        result = getattr(xp, function)(x, axis=tuple(axes) if axes else None, keepdims=bool(attributes.get("keepdims", 1)))
        return result.astype(x.dtype)

    return apply


for name, function in dict(ReduceMean="mean", ReduceSum="sum", ReduceMax="max", ReduceMin="min", ReduceProd="prod").items():
    OPERATORS[name] = reduction(function)


@operator("CumSum")
def cumsum(xp, attributes, x, axis):
    axis, turn = numbers(axis)[0], (lambda x: xp.flip(x, axis)) if attributes.get("reverse", 0) else (lambda x: x)
    x = turn(x)
    sums = xp.cumsum(x, axis=axis).astype(x.dtype)
    if attributes.get("exclusive", 0):
        sums = xp.roll(sums, 1, axis)
        is_first = xp.arange(x.shape[axis]).reshape([-1 if place == axis % x.ndim else 1 for place in range(x.ndim)]) == 0
        sums = xp.where(is_first, np.zeros((), x.dtype), sums)
    return turn(sums)


@operator("ArgMax")
def argmax(xp, attributes, x):
    axis = attributes.get("axis", 0)
    if attributes.get("select_last_index", 0):
        raise Refused("unsupported", "ArgMax that selects the last index")
    return xp.argmax(x, axis=axis, keepdims=bool(attributes.get("keepdims", 1))).astype(np.int64)


@operator("Gemm")
def gemm(xp, attributes, x, weights, bias=None):
    x = x.T if attributes.get("transA") else x
    weights = weights.T if attributes.get("transB") else weights
    alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
    result = xp.matmul(x, weights)
    result = result if alpha == 1.0 else result * np.asarray(alpha, result.dtype)
    if bias is None:
        return result
    return result + (bias if beta == 1.0 else bias * np.asarray(beta, result.dtype))


@operator("BatchNormalization")
def batch_normalization(xp, attributes, x, scale, bias, mean, variance):
    if attributes.get("training_mode", 0):
        raise Refused("unsupported", "it is in training mode")
    sizes = (1, -1) + (1,) * (x.ndim - 2)
    factor = scale / xp.sqrt(variance + np.asarray(attributes.get("epsilon", 1e-5), variance.dtype))
    return x * factor.reshape(sizes) + (bias - mean * factor).reshape(sizes)


@operator("LayerNormalization")
def layer_normalization(xp, attributes, x, scale, bias=None):
    axes = tuple(range(attributes.get("axis", -1) % x.ndim, x.ndim))
    wide = x.astype(np.float32)
    centred = wide - wide.mean(axes, keepdims=True)
    result = centred / xp.sqrt((centred * centred).mean(axes, keepdims=True) + np.float32(attributes.get("epsilon", 1e-5)))
    result = result.astype(x.dtype) * scale
    return result if bias is None else result + bias


def windows(attributes, x, kernel, dilations=None):
    """The strides and the padding of a convolution or a pool."""
    count = x.ndim - 2
    strides = attributes.get("strides", [1] * count)
    dilations = attributes.get("dilations", [1] * count)
    mode = attributes.get("auto_pad", b"NOTSET").decode()
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        padding = []
        for size, width, stride, dilation in zip(x.shape[2:], kernel, strides, dilations):
            whole = max(0, (-(-size // stride) - 1) * stride + (width - 1) * dilation + 1 - size)
            less, more = whole // 2, whole - whole // 2
            padding.append((less, more) if mode == "SAME_UPPER" else (more, less))
        return strides, padding, dilations
    pads = attributes.get("pads", [0] * 2 * count) if mode == "NOTSET" else [0] * 2 * count
    return strides, [(pads[place], pads[place + count]) for place in range(count)], dilations


@operator("Conv")
def convolution(xp, attributes, x, weights, bias=None, is_last=False):
    """If `is_last`, the kernels are `[…, inputs, outputs]`, which XLA's CPU code uses without transposing them."""
    count = x.ndim - 2
    places = "DHW"[-count:]
    kernel = weights.shape[:count] if is_last else weights.shape[2:]
    strides, padding, dilations = windows(attributes, x, kernel)
    order = ("NC" + places, places + "IO" if is_last else "OI" + places, "NC" + places)
    result = lax.conv_general_dilated(
        x, weights, strides, padding, rhs_dilation=dilations, feature_group_count=attributes.get("group", 1), dimension_numbers=order
    )
    return result if bias is None else result + bias.reshape((1, -1) + (1,) * count)


@operator("ConvTranspose")
def transposed_convolution(xp, attributes, x, weights, bias=None):
    count, groups, kernel = x.ndim - 2, attributes.get("group", 1), weights.shape[2:]
    strides, dilations = attributes.get("strides", [1] * count), attributes.get("dilations", [1] * count)
    more = attributes.get("output_padding", [0] * count)
    reach = [(width - 1) * dilation for width, dilation in zip(kernel, dilations)]
    # The size without padding.
    whole = [(size - 1) * stride + far + 1 + own for size, stride, far, own in zip(x.shape[2:], strides, reach, more)]
    mode = attributes.get("auto_pad", b"NOTSET").decode()
    sizes = attributes.get("output_shape")
    if sizes is None and mode.startswith("SAME"):
        sizes = [size * stride for size, stride in zip(x.shape[2:], strides)]
    if sizes is None:
        pads = attributes.get("pads", [0] * 2 * count) if mode == "NOTSET" else [0] * 2 * count
    else:
        removed = [size - wanted for size, wanted in zip(whole, sizes[-count:])]
        if min(removed) < 0:
            # ONNX requires this size, but ONNX Runtime's output is smaller.
            raise Refused("unsupported", "an output that is larger than the transposed convolution")
        less = [size // 2 if mode == "SAME_UPPER" else (size + 1) // 2 for size in removed]
        pads = less + [size - before for size, before in zip(removed, less)]
    padding = [(far - pads[place], far - pads[place + count] + more[place]) for place, far in enumerate(reach)]
    # The kernels of each group are transposed to [outputs, inputs] and flipped.
    inputs, outputs = weights.shape[0] // groups, weights.shape[1]
    turned = xp.swapaxes(weights.reshape((groups, inputs, outputs, *kernel)), 1, 2).reshape((groups * outputs, inputs, *kernel))
    turned = xp.flip(turned, tuple(range(2, 2 + count)))
    places = "DHW"[-count:]
    result = lax.conv_general_dilated(
        x, turned, (1,) * count, padding, lhs_dilation=strides, rhs_dilation=dilations, feature_group_count=groups,
        dimension_numbers=("NC" + places, "OI" + places, "NC" + places),
    )  # fmt: skip
    return result if bias is None else result + bias.reshape((1, -1) + (1,) * count)


def pooled(attributes, x, function, initial):
    if attributes.get("ceil_mode", 0):
        raise Refused("unsupported", "a pool with ceil_mode")
    kernel = attributes["kernel_shape"]
    strides, padding, dilations = windows(attributes, x, kernel)
    return lax.reduce_window(
        x, np.asarray(initial, x.dtype), function, (1, 1, *kernel), (1, 1, *strides), [(0, 0), (0, 0), *padding], window_dilation=(1, 1, *dilations)
    )


@operator("MaxPool")
def max_pool(xp, attributes, x):
    least = -np.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
    return pooled(attributes, x, lax.max, least)


@operator("AveragePool")
def average_pool(xp, attributes, x):
    kernel, sums = attributes["kernel_shape"], pooled(attributes, x, lax.add, 0)
    _, padding, _ = windows(attributes, x, kernel)
    if attributes.get("count_include_pad", 0) or not any(map(any, padding)):
        return sums / np.asarray(np.prod(kernel), x.dtype)
    return sums / pooled(attributes, jnp.ones((1, 1, *x.shape[2:]), x.dtype), lax.add, 0)


@operator("GlobalAveragePool")
def global_average_pool(xp, attributes, x):
    return x.mean(tuple(range(2, x.ndim)), keepdims=True).astype(x.dtype)


@operator("GlobalMaxPool")
def global_max_pool(xp, attributes, x):
    return x.max(tuple(range(2, x.ndim)), keepdims=True)


@operator("Pad")
def pad(xp, attributes, x, pads=None, value=None, axes=None):
    pads = attributes["pads"] if pads is None else numbers(pads)
    axes = range(x.ndim) if axes is None else numbers(axes)
    width = [(0, 0)] * x.ndim
    for place, axis in enumerate(axes):
        width[axis] = (pads[place], pads[place + len(pads) // 2])
    # Negative pads remove elements.
    x = x[tuple(slice(max(-before, 0), size - max(-after, 0)) for size, (before, after) in zip(x.shape, width))]
    width = [(max(before, 0), max(after, 0)) for before, after in width]
    mode = attributes.get("mode", b"constant").decode()
    if mode != "constant":
        return xp.pad(x, width, mode=mode)
    value = 0 if value is None else known(value).reshape(())
    return xp.pad(x, width, constant_values=value)


def resized_places(attributes, size, wanted, scale):
    """The coordinates of a resized axis's elements on the original axis, in f32 as in ONNX Runtime."""
    mode = attributes.get("coordinate_transformation_mode", b"half_pixel").decode()
    places, scale = np.arange(wanted, dtype=np.float32), np.float32(scale)
    if mode == "align_corners":
        return places * np.float32(size - 1) / np.float32(wanted - 1) if wanted > 1 else places * 0
    if mode == "asymmetric":
        return places / scale
    if mode == "pytorch_half_pixel" and wanted == 1:
        return places * 0
    if mode == "half_pixel_symmetric":
        offset = np.float32(size / 2 * (1 - wanted / (scale * size)))
        return offset + (places + np.float32(0.5)) / scale - np.float32(0.5)
    if mode not in ("half_pixel", "pytorch_half_pixel"):
        raise Refused("unsupported", f"Resize with the coordinates {mode}")
    return (places + np.float32(0.5)) / scale - np.float32(0.5)


def resized_taps(attributes, size, places):
    """The terms whose sum is the resized axis: pairs of indices on the original axis and their weights."""
    mode = attributes.get("mode", b"nearest").decode()
    if mode == "nearest":
        rounding = attributes.get("nearest_mode", b"round_prefer_floor").decode()
        if rounding == "simple":
            # The rounding of operator set 10.
            rounding = "ceil" if len(places) < size else "floor"
        nearest = {
            "round_prefer_floor": lambda: np.ceil(places - np.float32(0.5)), "floor": lambda: np.floor(places),
            "round_prefer_ceil": lambda: np.floor(places + np.float32(0.5)), "ceil": lambda: np.ceil(places),
        }[rounding]()  # fmt: skip
        return [(nearest, None)]
    if mode == "linear":
        places = np.clip(places, 0, size - 1)
        below = np.floor(places)
        return [(below, 1 - (places - below)), (below + 1, places - below)]
    a, below = attributes.get("cubic_coeff_a", -0.75), np.floor(places)
    taps = []
    for step in (-1, 0, 1, 2):
        far = np.abs(places - (below + step))
        inner, outer = ((a + 2) * far - (a + 3)) * far * far + 1, ((a * far - 5 * a) * far + 8 * a) * far - 4 * a
        taps.append((below + step, np.where(far <= 1, inner, np.where(far < 2, outer, 0))))
    if attributes.get("exclude_outside", 0):
        taps = [(rows, np.where((rows >= 0) & (rows < size), weights, 0)) for rows, weights in taps]
        whole = sum(weights for _, weights in taps)
        taps = [(rows, weights / whole) for rows, weights in taps]
    return taps


@operator("Resize")
def resize(xp, attributes, x, roi=None, scales=None, sizes=None):
    if attributes.get("antialias", 0) or attributes.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise Refused("unsupported", "Resize with antialias or keep_aspect_ratio_policy")
    if attributes.get("mode", b"nearest") != b"nearest" and not jnp.issubdtype(x.dtype, jnp.floating):
        raise Refused("unsupported", "Resize of whole numbers with interpolation")
    axes = attributes.get("axes", range(x.ndim))
    if sizes is None or not np.size(sizes):
        scales = known(scales).astype(np.float32).tolist()
        sizes = [int(np.float32(x.shape[axis]) * np.float32(scale)) for axis, scale in zip(axes, scales)]
    else:
        sizes = numbers(sizes)
        scales = [wanted / x.shape[axis] for axis, wanted in zip(axes, sizes)]
    for axis, wanted, scale in zip(axes, sizes, scales):
        axis %= x.ndim
        size = x.shape[axis]
        if wanted == size and scale == 1:
            continue
        total = None
        for rows, weights in resized_taps(attributes, size, resized_places(attributes, size, wanted, scale)):
            part = xp.take(x, np.clip(rows, 0, size - 1).astype(np.int32), axis=axis, mode="clip")
            if weights is not None:
                part = part * weights.astype(x.dtype).reshape([-1 if place == axis else 1 for place in range(x.ndim)])
            total = part if total is None else total + part
        x = total
    return x


@operator("ScatterElements")
def scatter_elements(xp, attributes, x, places, updates):
    axis = attributes.get("axis", 0) % x.ndim
    shape = np.shape(places)
    index = list(np.ogrid[tuple(slice(size) for size in shape)])
    index[axis] = jnp.where(places < 0, places + x.shape[axis], places)
    at = jnp.asarray(x).at[tuple(index)]
    reduction = attributes.get("reduction", b"none").decode()
    change = {"none": at.set, "add": at.add, "mul": at.multiply, "max": at.max, "min": at.min}[reduction]
    return change(updates)


@operator("LSTM")
def lstm(xp, attributes, x, weights, recurrence, bias=None, lengths=None, state=None, cell=None, peepholes=None):
    usual = [b"Sigmoid", b"Tanh", b"Tanh"]
    activations = attributes.get("activations", usual)
    others = [name for name in ("clip", "input_forget", "layout") if attributes.get(name)]
    if others or any(name.lower() != usual[place % 3].lower() for place, name in enumerate(activations)) or peepholes is not None:
        raise Refused("unsupported", f"LSTM with {', '.join(others) or 'peepholes or other activations'}")
    if lengths is not None and (not isinstance(lengths, np.ndarray) or (lengths != x.shape[0]).any()):
        raise Refused("unsupported", "LSTM of sequences whose lengths differ or are computed")
    direction = attributes.get("direction", b"forward").decode()
    is_backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    count, hidden = len(is_backward), recurrence.shape[-1]
    of_inputs = jnp.einsum("tbi,dgi->tdbg", x, weights)
    if bias is not None:
        of_inputs = of_inputs + (bias[:, : 4 * hidden] + bias[:, 4 * hidden :])[:, None]
    backward = np.array(is_backward)[:, None, None]
    turned = lambda values: jnp.where(backward, jnp.flip(values, 0), values) if any(is_backward) else values
    first = lambda given: jnp.zeros((count, x.shape[1], hidden), x.dtype) if given is None else jnp.asarray(given)

    def step(carried, of_input):
        state, cell = carried
        # ONNX's order is input, output, forget, cell.
        sums = jnp.split(of_input + jnp.einsum("dbh,dgh->dbg", state, recurrence), 4, -1)
        opened_in, opened_out, kept = map(jax.nn.sigmoid, sums[:3])
        cell = kept * cell + opened_in * jnp.tanh(sums[3])
        state = opened_out * jnp.tanh(cell)
        return (state, cell), state

    (state, cell), states = lax.scan(step, (first(state), first(cell)), turned(of_inputs))
    return turned(states), state, cell
