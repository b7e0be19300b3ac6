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
