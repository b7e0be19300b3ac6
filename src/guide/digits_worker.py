"""An external worker in plain Python, which computes the packaged model `digits` with lists of numbers.

    INFERBENCH_WORKER='plain:python3 src/guide/digits_worker.py' inferbench run --backend plain,ort --model digits
    inferbench devices --conformance 'python3 src/guide/digits_worker.py'
"""

import array
import json
import operator
import os
import platform
import struct
import sys
import time

# Frames go through copies of the standard streams, so that printed output does not get between them.
INPUT, OUTPUT = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
CODES = {"f32": "f", "f64": "d", "i32": "i", "i64": "q", "u8": "B", "bool": "B"}


class Refused(Exception):
    """A failure of the case, with its status, which becomes the answer."""


def read_frame():
    begin = INPUT.read(16)
    if len(begin) < 16:
        sys.exit(0)
    _, header_bytes, payload_bytes = struct.unpack("<4sIQ", begin)
    header, payload = json.loads(INPUT.read(header_bytes)), INPUT.read(payload_bytes)
    tensors, place = {}, 0
    for tensor in header.pop("tensors", []):
        numbers = array.array(CODES[tensor["dtype"]])
        count = 1
        for size in tensor["shape"]:
            count *= size
        numbers.frombytes(payload[place : place + count * numbers.itemsize])
        place += count * numbers.itemsize
        tensors[tensor["name"]] = (tensor["shape"], numbers)
    return header, tensors


def write_frame(header, tensors=()):
    header["tensors"] = [{"name": name, "dtype": dtype, "shape": shape} for name, dtype, shape, _ in tensors]
    payload = b"".join(array.array(CODES[dtype], numbers).tobytes() for _, dtype, _, numbers in tensors)
    text = json.dumps(header).encode()
    OUTPUT.write(struct.pack("<4sIQ", b"IFB1", len(text), len(payload)) + text + payload)
    OUTPUT.flush()


def read_weights(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    place = {name: tensor["data_offsets"] for name, tensor in header.items() if name != "__metadata__"}
    return {name: array.array("f", data[begin:end]) for name, (begin, end) in place.items()}


def dot(left, right):
    return sum(map(operator.mul, left, right))


def convolution(values, weights, bias, side):
    """A 3 x 3 convolution with zero padding, then max(0, x), then a 2 x 2 max pool."""
    planes, edge = len(values) // side**2, [0.0] * (side + 2)
    rows = [[0.0, *values[place : place + side], 0.0] for place in range(0, len(values), side)]
    padded = [[edge, *rows[place : place + side], edge] for place in range(0, len(rows), side)]
    inside = range(side)
    patches = [[value for plane in padded for row in plane[y : y + 3] for value in row[x : x + 3]] for y in inside for x in inside]
    result = []
    for channel, start in enumerate(bias):
        kernel = weights[9 * planes * channel : 9 * planes * (channel + 1)]
        plane = [start + dot(kernel, patch) for patch in patches]
        places = [y * side + x for y in inside[::2] for x in inside[::2]]
        result += [max(0.0, *(plane[place + step] for step in (0, 1, side, side + 1))) for place in places]
    return result


def product(values, weights, bias):
    width = len(values)
    return [start + dot(values, weights[row * width : (row + 1) * width]) for row, start in enumerate(bias)]


class Digits:
    def __init__(self, request):
        if request["model"] != "digits" or request["phase"] != "forward":
            raise Refused("unsupported", "it only knows the network `digits`")
        if request["device"] != "cpu":
            raise Refused("unavailable", f"it has no {request['device']}")
        self.weights, self.bound = read_weights(request["weights"]), {}

    def bind(self, binding, inputs):
        self.bound[binding] = inputs["input"]

    def call(self, binding):
        (batch, *_), numbers = self.bound[binding]
        return [score for picture in range(batch) for score in self.scores(list(numbers[64 * picture : 64 * picture + 64]))]

    def scores(self, values):
        layer = lambda name: (self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])
        for name, side in (("conv1", 8), ("conv2", 4)):
            values = convolution(values, *layer(name), side)
        return product([max(0.0, value) for value in product(values, *layer("fc1"))], *layer("fc2"))


def answer(verb, request, tensors, session):
    """Returns the session for the next requests, the answer's fields and its tensors."""
    if verb == "describe":
        version = f"0.1 on Python {platform.python_version()}"
        return session, {"protocol": 1, "name": "digits in plain Python", "version": version, "devices": [{"device": "cpu"}], "dtypes": ["f32"]}, ()
    if verb == "load":
        return Digits(request), {"device": "cpu", "dtype": "f32", "threads": 1, "files": [request["weights"]]}, ()
    if verb == "bind":
        session.bind(request["binding"], tensors)
        return session, {}, ()
    if verb == "run":
        times = []
        # A negative number, -1 - binding, begins a new row of calls. In this network, each call stands alone.
        for turn in tensors["turns"][1]:
            begin = time.perf_counter_ns()
            session.call(turn if turn >= 0 else -1 - turn)
            times.append(time.perf_counter_ns() - begin)
        return session, {}, [("times", "i64", [len(times)], times)]
    if verb == "outputs":
        scores = session.call(request["binding"])
        return session, {}, [("logits", "f32", [len(scores) // 10, 10], scores)]
    if verb == "clock":
        return session, {"ns": time.perf_counter_ns()}, ()
    raise Refused("unsupported", f"it does not know the verb {verb!r}")


def main():
    session = None
    while True:
        request, tensors = read_frame()
        if request["verb"] == "end":
            return
        try:
            session, fields, results = answer(request["verb"], request, tensors, session)
        except Refused as why:
            fields, results = {"error": {"status": why.args[0], "message": why.args[1]}}, ()
        write_frame(fields, results)


if __name__ == "__main__":
    main()
