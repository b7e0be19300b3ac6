"""Makes the networks of this folder and their outputs: `python make.py`, with the packages onnx 1.23 and numpy 2.4.

Each network has numbers of very different size in one output, or nothing but numbers that are all alike, so that an error relative to the
largest number says nothing. `NAME.npz` has eight samples with the right outputs. `NAME-WHAT.onnx` is a network that gives others for them.
"""

from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

FOLDER = Path(__file__).parent
SAMPLES, FEATURES = 8, 16
random = numpy.random.Generator(numpy.random.PCG64(1))
x = random.standard_normal((SAMPLES, FEATURES)).astype(numpy.float32)


def weights(columns):
    return (random.standard_normal((FEATURES, columns)) / 4).astype(numpy.float32)


def network(shape, nodes, initializers):
    spec = helper.make_tensor_value_info
    constants = [numpy_helper.from_array(numpy.asarray(value), name) for name, value in initializers.items()]
    graph = helper.make_graph(
        [helper.make_node(kind, inputs, [output], **attributes) for kind, inputs, output, attributes in nodes],
        "crafted",
        [spec("x", TensorProto.FLOAT, ["N", FEATURES])],
        [spec("y", TensorProto.FLOAT, ["N", *shape])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def outputs(model):
    return ReferenceEvaluator(model).run(None, {"x": x})[0]


def save(name, model, **wrong):
    (FOLDER / f"{name}.onnx").write_bytes(model.SerializeToString())
    numpy.savez(FOLDER / f"{name}.npz", x=x, y=outputs(model))
    for what, other in wrong.items():
        (FOLDER / f"{name}-{what}.onnx").write_bytes(other.SerializeToString())


def logits_beside(mask):
    columns = numpy.concatenate([weights(10), numpy.zeros((FEATURES, 10), numpy.float32)], axis=1)
    bias = numpy.concatenate([numpy.zeros(10), numpy.full(10, mask)]).astype(numpy.float32)
    return network([20], [("MatMul", ["x", "w"], "z", {}), ("Add", ["z", "b"], "y", {})], {"w": columns, "b": bias})


def detector(of_boxes, of_scores, factor=1):
    constants = {
        "of_boxes": of_boxes,
        "of_scores": of_scores,
        "factor": numpy.float32(factor),
        "pixels": numpy.float32(100),
        "centre": numpy.float32(320),
        "seldom": numpy.float32(2),
        "four": numpy.array([-1, 4, 10]),
        "eight": numpy.array([-1, 8, 10]),
    }
    nodes = [
        ("MatMul", ["x", "of_boxes"], "a", {}),
        ("Mul", ["a", "pixels"], "b", {}),
        ("Add", ["b", "centre"], "c", {}),
        ("Reshape", ["c", "four"], "boxes", {}),
        ("MatMul", ["x", "of_scores"], "d", {}),
        ("Sub", ["d", "seldom"], "e", {}),
        ("Sigmoid", ["e"], "f", {}),
        ("Mul", ["f", "factor"], "g", {}),
        ("Reshape", ["g", "eight"], "scores", {}),
        ("Concat", ["boxes", "scores"], "y", {"axis": 1}),
    ]
    return network([12, 10], nodes, constants)


def log_probabilities():
    return network(
        [100], [("MatMul", ["x", "w"], "z", {}), ("LogSoftmax", ["z"], "y", {"axis": 1})], {"w": weights(100)}
    )


for name, mask in [("lowest_mask", numpy.finfo(numpy.float32).min), ("large_mask", -1e9)]:
    save(name, logits_beside(mask), of_other_weights=logits_beside(mask))
of_boxes, of_scores = weights(40), weights(80)
save(
    "detections",
    detector(of_boxes, of_scores),
    without_scores=detector(of_boxes, of_scores, 0),
    of_permuted_classes=detector(of_boxes, numpy.roll(of_scores, 10, axis=1)),
)
save("log_probabilities", log_probabilities(), of_other_weights=log_probabilities())
# The first sample is nothing, for which exactly 0 is expected, and 1e-12 comes out.
x[0] = 0
almost = network(
    [4], [("MatMul", ["x", "w"], "z", {}), ("Add", ["z", "b"], "y", {})], {"w": weights(4), "b": numpy.float32(1e-12)}
)
save("almost_zero", almost)
y = outputs(almost)
y[0] = 0
numpy.savez(FOLDER / "almost_zero.npz", x=x, y=y)
save("no_number", network([4], [("MatMul", ["x", "w"], "y", {})], {"w": numpy.full((FEATURES, 4), numpy.nan, numpy.float32)}))
