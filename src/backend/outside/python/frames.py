"""The frames of the protocol, with tensors as NumPy arrays."""

import json
import os
import struct
import sys

import numpy as np

try:
    from ml_dtypes import bfloat16
except ImportError:
    # NumPy cannot compute with this type, but it has the same bytes.
    bfloat16 = np.dtype([("bf16", np.uint16)])

# Frames go through copies of the standard streams, so that output of libraries does not get between them.
INPUT, OUTPUT = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)

MAGIC = b"IFB1"
DTYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "bool": np.bool_,
    "bf16": bfloat16,
}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}


class Refused(Exception):
    """A failure of the case, with its status, which becomes the answer."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def read_frame():
    """The header and the tensors by their names; None at the end of the input."""
    begin = INPUT.read(16)
    if len(begin) < 16:
        return None
    magic, header_bytes, _ = struct.unpack("<4sIQ", begin)
    if magic != MAGIC:
        sys.exit(f"no frame: {begin!r}")
    header, tensors = json.loads(INPUT.read(header_bytes)), {}
    for tensor in header.pop("tensors", []):
        dtype, shape = np.dtype(DTYPES[tensor["dtype"]]), tensor["shape"]
        # This memory is aligned and writable, so that a library can use it in a timed call without a copy.
        payload = np.empty(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize, np.uint8)
        if INPUT.readinto(payload) < len(payload):
            return None
        tensors[tensor["name"]] = payload.view(dtype).reshape(shape)
    return header, tensors


def write_frame(header, tensors):
    """Writes an answer; `tensors` are pairs of a name and an array."""
    arrays = [(name, np.ascontiguousarray(array).reshape(np.shape(array))) for name, array in tensors]
    for name, array in arrays:
        if array.dtype not in NAMES:
            raise Refused("unsupported", f"{name} has the element type {array.dtype}")
    described = [{"name": name, "dtype": NAMES[array.dtype], "shape": list(array.shape)} for name, array in arrays]
    text = json.dumps({**header, "tensors": described}).encode()
    payload = [array.tobytes() for _, array in arrays]
    OUTPUT.write(struct.pack("<4sIQ", MAGIC, len(text), sum(map(len, payload))) + text)
    for part in payload:
        OUTPUT.write(part)
    OUTPUT.flush()
