"""Makes the small models of this folder: `python make.py`, with the packages onnx 1.23 and torch 2.11."""

from pathlib import Path

import numpy
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

FOLDER = Path(__file__).parent


def weights(name, shape):
    values = numpy.sin(numpy.arange(1, 1 + numpy.prod(shape), dtype=numpy.float64)).astype(numpy.float32)
    return numpy_helper.from_array(values.reshape(shape), name)


def save(name, nodes, inputs, outputs, initializers):
    def tensors(specs):
        return [helper.make_tensor_value_info(*spec) for spec in specs]

    graph = helper.make_graph(nodes, name, tensors(inputs), tensors(outputs), initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    (FOLDER / f"{name}.onnx").write_bytes(model.SerializeToString())


FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
dense = helper.make_node("MatMul", ["x", "w"], ["z"])
tanh = helper.make_node("Tanh", ["z"], ["y"])

save(
    "two_inputs",
    [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("ReduceMean", ["rows"], ["mean"], axes=[1], keepdims=0),
        helper.make_node("Add", ["mean", "features"], ["x"]),
        dense,
        tanh,
    ],
    [("ids", INT64, ["N", 4]), ("features", FLOAT, ["N", 3])],
    [("y", FLOAT, ["N", 2])],
    [weights("table", (2, 3)), weights("w", (3, 2))],
)
save("fixed_batch", [dense, tanh], [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 2])], [weights("w", (3, 2))])
save(
    "open_length",
    [helper.make_node("ReduceMean", ["x"], ["z"], axes=[1], keepdims=0), tanh],
    [("x", FLOAT, ["N", "length", 3])],
    [("y", FLOAT, ["N", 3])],
    [],
)
# The values between grow with the length.
save(
    "sums",
    [helper.make_node("ReduceSum", ["x", "axis"], ["sum"], keepdims=0), helper.make_node("MatMul", ["sum", "w"], ["y"])],
    [("x", FLOAT, ["N", "length", 32])],
    [("y", FLOAT, ["N", 16])],
    [numpy_helper.from_array(numpy.array([1]), "axis"), weights("w", (32, 16))],
)
# As Keras and some of ONNX's tests call tensors: from 1 on, where the files of a reference count from 0.
save(
    "numbered",
    [helper.make_node("Tanh", ["input_1"], ["output_1"]), helper.make_node("Neg", ["input_2"], ["output_2"])],
    [("input_1", FLOAT, [2, 3]), ("input_2", FLOAT, [2, 3])],
    [("output_1", FLOAT, [2, 3]), ("output_2", FLOAT, [2, 3])],
    [],
)
HALF = TensorProto.FLOAT16
half_weights = numpy_helper.from_array(numpy_helper.to_array(weights("w", (3, 2))).astype(numpy.float16), "w")
save("half_inputs", [dense, tanh], [("x", HALF, ["N", 3])], [("y", HALF, ["N", 2])], [half_weights])
# Element types that few files have, as inputs and as outputs.
TYPES = {"i8": TensorProto.INT8, "i16": TensorProto.INT16, "u16": TensorProto.UINT16, "u32": TensorProto.UINT32,
         "u64": TensorProto.UINT64, "bf16": TensorProto.BFLOAT16}


def save_types(name, types):
    first, *others = types
    sums = []
    for of in others:
        before = sums[-1].output[0] if sums else f"{first}_full"
        sums.append(helper.make_node("Add", [before, f"{of}_full"], [f"{of}_sum"]))
    save(
        name,
        [
            *(helper.make_node("Identity", [of], [f"{of}_out"]) for of in types),
            *(helper.make_node("Cast", [of], [f"{of}_full"], to=FLOAT) for of in types),
            *sums,
            helper.make_node("Mul", [sums[-1].output[0], "scale"], ["y"]),
        ],
        [(of, TYPES[of], ["N", 3]) for of in types],
        [("y", FLOAT, ["N", 3]), *((f"{of}_out", TYPES[of], ["N", 3]) for of in types)],
        [numpy_helper.from_array(numpy.float32(0.001), "scale")],
    )


save_types("rare_types", TYPES)
save_types("wide_integers", ["i16", "u32"])
# The state after two steps, which begins at 0 in each call.
save(
    "recurrent",
    [helper.make_node("RNN", ["x", "w", "w"], ["", "y"], hidden_size=1)],
    [("x", FLOAT, [2, 1, 1])],
    [("y", FLOAT, [1, 1, 1])],
    [weights("w", (1, 1, 1))],
)
# Forms of operators that not every library has: padding by a constant, running sums, and axes that count from the end.
save(
    "rare_forms",
    [
        helper.make_node("Pad", ["x", "pads", "value"], ["padded"]),
        helper.make_node("CumSum", ["padded", "last"], ["sums"]),
        helper.make_node("IsNaN", ["sums"], ["is_nan"]),
        helper.make_node("Where", ["is_nan", "padded", "sums"], ["finite"]),
        helper.make_node("ReduceSum", ["finite", "last_of_list"], ["total"]),
        helper.make_node("Sub", ["finite", "total"], ["rest"]),
        helper.make_node("Flatten", ["rest"], ["y"], axis=-2),
    ],
    [("x", FLOAT, ["N", 2, 3])],
    [("y", FLOAT, ["N", 20])],
    [
        numpy_helper.from_array(numpy.array([0, 1, 0, 0, 1, 2]), "pads"),
        numpy_helper.from_array(numpy.float32(2.5), "value"),
        numpy_helper.from_array(numpy.int32(-1), "last"),
        numpy_helper.from_array(numpy.array([-1]), "last_of_list"),
    ],
)
# Pictures that grow, in forms that no packaged model has.
save(
    "growing_pictures",
    [
        helper.make_node("ConvTranspose", ["x", "w", "b"], ["grown"], group=2, strides=[2, 1], dilations=[1, 2],
                         pads=[1, 0, 0, 1], output_padding=[1, 0]),
        helper.make_node("Resize", ["grown", "", "scales"], ["larger"], mode="cubic",
                         coordinate_transformation_mode="pytorch_half_pixel"),
        helper.make_node("ScatterElements", ["larger", "places", "updates"], ["y"], axis=-1),
    ],
    [("x", FLOAT, [2, 4, 5, 6])],
    [("y", FLOAT, [2, 2, 16, 14])],
    [
        weights("w", (4, 1, 3, 2)),
        weights("b", (2,)),
        numpy_helper.from_array(numpy.array([1, 1, 1.5, 2], numpy.float32), "scales"),
        numpy_helper.from_array(numpy.array([[[[0, -1], [3, 2]]]]), "places"),
        weights("updates", (1, 1, 2, 2)),
    ],
)
# A bias of the sizes alone, added to a mask of the lowest number: as in T5.
LOWEST = numpy.finfo(numpy.float32).min
save(
    "masked_bias",
    [
        helper.make_node("Cast", ["mask"], ["ones"], to=FLOAT),
        helper.make_node("Sub", ["one", "ones"], ["inverted"]),
        helper.make_node("Mul", ["inverted", "lowest"], ["masked"]),
        helper.make_node("Shape", ["mask"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "second"], ["length"]),
        helper.make_node("Range", ["zero", "length", "second"], ["places"]),
        helper.make_node("Gather", ["table", "places"], ["bias"]),
        helper.make_node("Add", ["bias", "masked"], ["scores"]),
        helper.make_node("Add", ["x", "scores"], ["y"]),
    ],
    [("x", FLOAT, ["N", "length"]), ("mask", INT64, ["N", "length"])],
    [("y", FLOAT, ["N", "length"])],
    [
        weights("table", (200,)),
        numpy_helper.from_array(numpy.float32(1), "one"),
        numpy_helper.from_array(LOWEST, "lowest"),
        *(numpy_helper.from_array(numpy.int64(v), n) for v, n in [(0, "zero"), (1, "second")]),
    ],
)
# The answer to a batch of one is a number without dimensions.
save(
    "squeezes_batch",
    [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Squeeze", ["z"], ["y"])],
    [("x", FLOAT, ["N", 3])],
    [("y", FLOAT, [])],
    [weights("w", (3, 1))],
)
save(
    "ignores_input",
    [
        helper.make_node("Sub", ["x", "x"], ["zero"]),
        helper.make_node("Add", ["zero", "w"], ["y"]),
    ],
    [("x", FLOAT, ["N", 3])],
    [("y", FLOAT, ["N", 3])],
    [weights("w", (1, 3))],
)
save(
    "first_of_batch",
    [helper.make_node("Slice", ["x", "zero", "one", "zero"], ["first"]), helper.make_node("MatMul", ["first", "w"], ["z"]), tanh],
    [("x", FLOAT, ["N", 3])],
    [("y", FLOAT, [1, 2])],
    [weights("w", (3, 2)), *(numpy_helper.from_array(numpy.array([v]), n) for v, n in [(0, "zero"), (1, "one")])],
)

square = ["N", 1024, 1024]
product = helper.make_node("MatMul", ["a", "b"], ["y"])
save("product", [product], [("a", FLOAT, square), ("b", FLOAT, square)], [("y", FLOAT, square)], [])


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Linear(3, 2)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.sin(torch.arange(1.0, 1 + parameter.numel())).reshape(parameter.shape))

    def forward(self, x, scale):
        return torch.tanh(self.dense(x)) * scale


script = torch.jit.trace(Scaled().eval(), (torch.zeros(1, 3), torch.ones(1, 1)))
script.save(str(FOLDER / "scaled.pt"))

# What a device computes to show that it works: [1, -2, 3, -4] to [2, -2, 6, -4].
save(
    "../../../src/backend/ort/probe",
    [helper.make_node("Relu", ["x"], ["z"]), helper.make_node("Add", ["x", "z"], ["y"])],
    [("x", FLOAT, [1, 4])],
    [("y", FLOAT, [1, 4])],
    [],
)
# An operator that no accelerator has: with anything but the CPU, the graph has to fall back.
save(
    "falls_back",
    [
        dense,
        helper.make_node("TfIdfVectorizer", ["ids"], ["counts"], mode="TF", min_gram_length=1, max_gram_length=1,
                         max_skip_count=0, ngram_counts=[0], ngram_indexes=[0, 1], pool_int64s=[0, 1]),
        helper.make_node("Add", ["z", "counts"], ["y"]),
    ],
    [("x", FLOAT, ["N", 3]), ("ids", INT64, ["N", 4])],
    [("y", FLOAT, ["N", 2])],
    [weights("w", (3, 2))],
)


class LongKernel(torch.nn.Module):
    """Twenty products of 8192 × 8192: 22 TFLOP, which no GPU of today does in f32 within 0.1 s."""

    def forward(self, x):
        product = torch.full((8192, 8192), 1 / 8192.0, device=x.device, dtype=x.dtype)
        for _ in range(20):
            product = torch.mm(product, product)
        return x * product[0, 0] * 8192


torch.jit.script(LongKernel()).save(str(FOLDER / "long_kernel.pt"))


def save_decoder(name, nodes, inputs, outputs, width=4):
    """Logits over 11 tokens from rows of `width` numbers; lengths are named as optimum names them."""
    lengths = {"b": "batch_size", "s": "sequence_length", "e": "encoder_sequence_length", "p": "past_sequence_length",
               "t": "past_sequence_length + sequence_length", "o": "encoder_sequence_length_out"}

    def sized(specs):
        return [(of, kind, [lengths.get(size, size) for size in shape]) for of, kind, shape in specs]

    constants = [("last", [1]), ("both", [1, 2])]
    constants = [numpy_helper.from_array(numpy.array(values), of) for of, values in constants]
    tables = [weights("tokens", (11, width)), weights("positions", (60, width)), weights("w", (width, 11))]
    used = [tensor for tensor in tables + constants if f'"{tensor.name}"' in str(nodes)]
    save(name, nodes, sized(inputs), sized(outputs), used)


def text(ids, rows):
    return [helper.make_node("Gather", ["tokens", ids], [rows])]


def with_mean_over_cache(name, of_x, has_positions, width):
    """A decoder whose logits are of `x`, which these nodes make, and the mean over the cache."""
    save_decoder(
        name,
        [
            *of_x,
            helper.make_node("Unsqueeze", ["x", "last"], ["key"]),
            helper.make_node("Tanh", ["key"], ["value"]),
            helper.make_node("Concat", ["past_key_values.0.key", "key"], ["present.0.key"], axis=2),
            helper.make_node("Concat", ["past_key_values.0.value", "value"], ["present.0.value"], axis=2),
            helper.make_node("Add", ["present.0.key", "present.0.value"], ["sums"]),
            helper.make_node("ReduceSum", ["sums", "both"], ["sum"], keepdims=0),
            helper.make_node("Cast", ["attention_mask"], ["ones"], to=FLOAT),
            helper.make_node("ReduceSum", ["ones", "last"], ["seen"]),
            helper.make_node("Div", ["sum", "seen"], ["mean"]),
            helper.make_node("Unsqueeze", ["mean", "last"], ["means"]),
            helper.make_node("Add", ["x", "means"], ["state"]),
            helper.make_node("MatMul", ["state", "w"], ["logits"]),
        ],
        [
            ("input_ids", INT64, ["b", "s"]),
            ("attention_mask", INT64, ["b", "t"]),
            *([("position_ids", INT64, ["b", "s"])] if has_positions else []),
            ("past_key_values.0.key", FLOAT, ["b", 1, "p", width]),
            ("past_key_values.0.value", FLOAT, ["b", 1, "p", width]),
        ],
        [
            ("logits", FLOAT, ["b", "s", 11]),
            ("present.0.key", FLOAT, ["b", 1, "t", width]),
            ("present.0.value", FLOAT, ["b", 1, "t", width]),
        ],
        width,
    )


places = helper.make_node("Gather", ["positions", "position_ids"], ["places"])
with_mean_over_cache(
    "decoder", [*text("input_ids", "rows"), places, helper.make_node("Add", ["rows", "places"], ["x"])], True, 4
)
# The same without positions, with rows that blocks of 128 fit.
with_mean_over_cache("wide_decoder", text("input_ids", "x"), False, 128)

# An encoder and its decoder in optimum's three files: without a cache, with one, and both in one file.
save_decoder(
    "encoder_model",
    [
        *text("input_ids", "rows"),
        helper.make_node("Cast", ["attention_mask"], ["ones"], to=FLOAT),
        helper.make_node("ReduceMean", ["ones"], ["kept"]),
        helper.make_node("Mul", ["rows", "kept"], ["last_hidden_state"]),
    ],
    [("input_ids", INT64, ["b", "e"]), ("attention_mask", INT64, ["b", "e"])],
    [("last_hidden_state", FLOAT, ["b", "e", 4])],
)

of_decoder = [("past_key_values.0.decoder.key", FLOAT, ["b", 1, "p", 4])]
of_encoder = [("past_key_values.0.encoder.key", FLOAT, ["b", 1, "o", 4])]
to_decoder = [("input_ids", INT64, ["b", "s"]), ("encoder_attention_mask", INT64, ["b", "e"])]
states = [("encoder_hidden_states", FLOAT, ["b", "e", 4])]
logits = [("logits", FLOAT, ["b", 1, 11]), ("present.0.decoder.key", FLOAT, ["b", 1, "t", 4])]
cross = [("present.0.encoder.key", FLOAT, ["b", 1, "o", 4])]


def step(has_cache, end=""):
    """The nodes of one call, whose values but the outputs end so."""
    key, text_key = f"key{end}", "past_key_values.0.encoder.key" if has_cache else "present.0.encoder.key"
    cache = ["past_key_values.0.decoder.key", key] if has_cache else [key]
    return [
        *text("input_ids", f"rows{end}"),
        helper.make_node("Unsqueeze", [f"rows{end}", "last"], [key]),
        helper.make_node("Concat", cache, ["present.0.decoder.key"], axis=2),
        *([] if has_cache else [helper.make_node("Unsqueeze", ["encoder_hidden_states", "last"], [text_key])]),
        helper.make_node("ReduceSum", ["present.0.decoder.key", "both"], [f"sum{end}"], keepdims=0),
        helper.make_node("ReduceMean", [text_key], [f"mean{end}"], axes=[1, 2], keepdims=0),
        helper.make_node("Cast", ["encoder_attention_mask"], [f"ones{end}"], to=FLOAT),
        helper.make_node("ReduceMean", [f"ones{end}"], [f"one{end}"]),
        helper.make_node("Mul", [f"mean{end}", f"one{end}"], [f"kept{end}"]),
        helper.make_node("Add", [f"sum{end}", f"kept{end}"], [f"states{end}"]),
        helper.make_node("Unsqueeze", [f"states{end}", "last"], [f"state{end}"]),
        helper.make_node("MatMul", [f"state{end}", "w"], ["logits"]),
    ]


def branch(has_cache):
    # As optimum does it: the cached branch gives the encoder's keys as an empty constant.
    empty = helper.make_tensor("empty", FLOAT, [0, 1, 1, 4], [])
    nothing = [helper.make_node("Constant", [], ["present.0.encoder.key"], value=empty)]
    names = [name for name, *_ in logits + cross]
    outputs = [helper.make_tensor_value_info(name, FLOAT, [None] * (3 if name == "logits" else 4)) for name in names]
    nodes = step(has_cache, f"_{has_cache}") + (nothing if has_cache else [])
    return helper.make_graph(nodes, f"branch_{has_cache}", [], outputs)


save_decoder("decoder_model", step(False), to_decoder + states, logits + cross)
save_decoder("decoder_with_past_model", step(True), to_decoder + of_decoder + of_encoder, logits)
both = helper.make_node("If", ["use_cache_branch"], [name for name, *_ in logits + cross],
                        then_branch=branch(True), else_branch=branch(False))
save_decoder("decoder_model_merged", [both], to_decoder + states + of_decoder + of_encoder + [("use_cache_branch", TensorProto.BOOL, [1])],
             logits + cross)


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def number(name, of, kind=numpy.int64):
    return numpy_helper.from_array(numpy.array(of, dtype=kind), name)


BOOL = TensorProto.BOOL
# A loop of five runs, a scan of a row per run, and a branch that a constant chooses; each has a product inside.
run = helper.make_graph(
    [
        helper.make_node("MatMul", ["state", "w"], ["next"]),
        helper.make_node("ReduceSum", ["next", "axis"], ["row"], keepdims=0),
        helper.make_node("Identity", ["goes_on"], ["goes_on_still"]),
    ],
    "run",
    [value("number", INT64, []), value("goes_on", BOOL, []), value("state", FLOAT, ["N", 4])],
    [value("goes_on_still", BOOL, []), value("next", FLOAT, ["N", 4]), value("row", FLOAT, ["N"])],
)
row = helper.make_graph(
    [helper.make_node("Add", ["kept", "row_of"], ["kept_still"]), helper.make_node("MatMul", ["row_of", "v"], ["made"])],
    "row",
    [value("kept", FLOAT, [4]), value("row_of", FLOAT, [4])],
    [value("kept_still", FLOAT, [4]), value("made", FLOAT, [3])],
)


def chosen(name, nodes):
    return helper.make_graph(nodes, name, [], [value(f"{name}_y", FLOAT, ["N", 3])])


save(
    "control_flow",
    [
        helper.make_node("Loop", ["five", "yes", "x"], ["looped", "rows"], body=run),
        helper.make_node("Scan", ["zeros", "looped"], ["sum", "scanned"], body=row, num_scan_inputs=1),
        helper.make_node(
            "If",
            ["yes"],
            ["y"],
            then_branch=chosen("then", [helper.make_node("MatMul", ["looped", "v"], ["then_y"])]),
            else_branch=chosen("else", [helper.make_node("Identity", ["scanned"], ["else_y"])]),
        ),
    ],
    [("x", FLOAT, ["N", 4])],
    [("y", FLOAT, ["N", 3]), ("rows", FLOAT, [5, "N"]), ("scanned", FLOAT, ["N", 3])],
    [weights("w", (4, 4)), weights("v", (4, 3)), weights("zeros", (4,)), number("axis", [1]), number("five", 5),
     number("yes", True, bool)],
)
# Until the largest number is above a limit: nobody knows how often without running it.
until = helper.make_graph(
    [
        helper.make_node("MatMul", ["state", "w"], ["next"]),
        helper.make_node("ReduceMax", ["next"], ["largest"], keepdims=0),
        helper.make_node("Less", ["largest", "limit"], ["goes_on_still"]),
    ],
    "until",
    [value("number", INT64, []), value("goes_on", BOOL, []), value("state", FLOAT, ["N", 4])],
    [value("goes_on_still", BOOL, []), value("next", FLOAT, ["N", 4])],
)
save(
    "until",
    [helper.make_node("Loop", ["most", "yes", "x"], ["y"], name="search", body=until)],
    [("x", FLOAT, ["N", 4])],
    [("y", FLOAT, ["N", 4])],
    [weights("w", (4, 4)), number("most", 9), number("yes", True, bool), number("limit", 2.0, numpy.float32)],
)
