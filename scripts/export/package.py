"""Common to all exported models: a temporary weights file for the checks, and a folder in the zoo."""

import hashlib
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sklearn
import torch
from safetensors.numpy import save

import onnx_graph
from entry import SAMPLES
from layout import Layout

MODELS = Path(__file__).resolve().parents[2] / "models"


@dataclass(frozen=True)
class WeightsFile:
    path: Path
    sha256: str


@contextmanager
def weights_file(layout: Layout, weights: dict[str, np.ndarray]) -> Iterator[WeightsFile]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, onnx_graph.WEIGHTS_FILE)
        layout.write(path, weights)
        with path.open("rb") as file:
            yield WeightsFile(path, hashlib.file_digest(file, "sha256").hexdigest())


def write(name: str, files: dict[str, str | bytes]) -> None:
    """Writes the files of models/zoo/NAME."""
    folder = MODELS / "zoo" / name
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)


def row(name: str, parameters: int, files: dict, errors: tuple[float, float], graphs: Iterable, **more: str) -> dict:
    """A row of the printed table; the errors are those of the graphs and of the archives."""
    sizes = Counter()
    for file, content in files.items():
        sizes[file.rsplit(".", 1)[1]] += len(content)
    return {
        "model": name,
        "parameters": parameters,
        "onnx bytes": sizes["onnx"],
        "pt bytes": sizes["pt"],
        "reference bytes": sizes["safetensors"],
        "ORT error": f"{errors[0]:.1e}",
        "TorchScript error": f"{errors[1]:.1e}",
        **more,
        "operators": Counter(node.op_type for graph in graphs for node in graph.graph.node),
    }


def reference_file(outputs: dict[str, np.ndarray]) -> bytes:
    return save(outputs, {"made_by": f"PyTorch {torch.__version__.split('+')[0]}"})


def tried_lengths(reference: list[int]) -> list[int | None]:
    """The reference's lengths and another one, so that a graph that works only for the former is found."""
    return [*reference, 2 * reference[0] // 3] if reference else [None]


def tolerance(error: float) -> str:
    assert error < 1e-3, f"its outputs differ by {error:.1e} of the largest"
    return "1e-4" if error < 1e-5 else "1e-3"


def write_trained(file: str, layout: Layout, weights: dict[str, np.ndarray]) -> None:
    folder = MODELS / "trained"
    folder.mkdir(exist_ok=True)
    layout.write(folder / file, weights)


def write_quantized(file: str, content: bytes) -> None:
    folder = MODELS / "quantized"
    folder.mkdir(exist_ok=True)
    (folder / file).write_bytes(content)


def write_held_out(file: str, inputs: dict[str, np.ndarray], labels: np.ndarray) -> None:
    """Writes the images on which the quality of a trained model and of its variants is measured."""
    samples = {f"input.{name}": value for name, value in inputs.items()} | {"label": labels}
    (MODELS / "trained" / file).write_bytes(save(samples, {"made_by": f"scikit-learn {sklearn.__version__}"}))
