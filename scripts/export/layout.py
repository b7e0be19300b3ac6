"""The canonical layout of a weights file: a safetensors file whose offsets are known before it is written.

ONNX graphs name their weights by byte offset into `weights.safetensors`, so the layout must be a function of the list
of names and shapes alone:

    8 bytes        N, little-endian u64
    N bytes        JSON without spaces, tensors in the listed order, padded with ASCII spaces; N is the smallest
                   number for which the JSON fits and 8 + N is a multiple of 4096
    tensors        little-endian f32, contiguous, in the listed order, nothing between

The usual safetensors writers sort tensors and pad to 8 bytes, so this one is written by hand.
"""

import json
import math
from pathlib import Path

import numpy as np

PAGE = 4096


class Layout:
    """Where each tensor lies; `shapes` maps name to shape, in file order."""

    def __init__(self, shapes: dict[str, list[int]]):
        self.shapes = shapes
        self.spans: dict[str, tuple[int, int]] = {}
        header, end = {}, 0
        for name, shape in shapes.items():
            begin, end = end, end + 4 * math.prod(shape)
            self.spans[name] = (begin, end)
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        self.header_bytes = -(-(8 + len(text)) // PAGE) * PAGE - 8
        self._header = self.header_bytes.to_bytes(8, "little") + text.ljust(self.header_bytes)

    def external(self, name: str) -> tuple[int, int]:
        """Offset from the beginning of the file, and length, in bytes."""
        begin, end = self.spans[name]
        return 8 + self.header_bytes + begin, end - begin

    def write(self, path: Path, tensors: dict[str, np.ndarray]) -> None:
        with path.open("wb") as file:
            file.write(self._header)
            for name, shape in self.shapes.items():
                tensor = tensors[name]
                assert list(tensor.shape) == shape and tensor.dtype == np.float32, name
                file.write(np.ascontiguousarray(tensor, dtype="<f4").tobytes())
