"""Writes a module as files with their weights inside: model.onnx, model.pt, model.npz, model.toml."""

import json
import math
import shutil
import warnings
from pathlib import Path

import check
import description
import numpy as np
import seeded
import torch
from entry import Port
from safetensors.torch import save_file
from torch import nn
from torch.utils import _pytree

import source

# candle and tract know the operators of the first best.
OPSETS = (16, 17, 20)
SAMPLES = 8
LENGTH = 128
# Relative to the largest value: far above what two runtimes differ by in f32.
MOST_ERROR = 1e-3
NUMPY = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "bool": np.bool_}


def value(port: Port, sizes: dict[str, int]) -> np.ndarray:
    """Seeded, as inferbench makes its own."""
    shape = [sizes.get(size, size) for size in port.shape]
    count, name = math.prod(shape), f"input.{port.name}"
    if port.constant is not None or port.dtype == "bool":
        flat = np.full(count, 1 if port.constant is None else port.constant)
    elif port.dtype.startswith("f"):
        flat = seeded.normal(seeded.INPUT_SEED, name, 0, count, 1.0)
    else:
        flat = seeded.integers(seeded.INPUT_SEED, name, 0, count, port.below or 2)
    return flat.astype(NUMPY[port.dtype]).reshape(shape)


def is_open(ports: list[Port]) -> bool:
    return any(size == "batch" for port in ports for size in port.shape)


def tried_sizes(ports: list[Port]) -> list[dict[str, int]]:
    """Those of the reference, and others, if some are open."""
    others = [{"batch": 2, "sequence": 9}, {"batch": 3, "sequence": 14}]
    has_open = any(isinstance(size, str) for port in ports for size in port.shape)
    return [{"batch": SAMPLES, "sequence": LENGTH}, *(others if has_open else [])]


class Flat(nn.Module):
    """A module whose tensors, in whatever they are returned, are a tuple."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, *values: torch.Tensor):
        return tuple(leaf for leaf in _pytree.tree_leaves(self.module(*values)) if isinstance(leaf, torch.Tensor))


def write(
    module: nn.Module,
    ports: list[Port],
    names: list[str] | None,
    folder: Path,
    say,
    family: str | None = None,
    modality: str | None = None,
    archive: Path | None = None,
) -> None:
    """`names` are those of the outputs. An `archive` is the TorchScript file that the module is."""
    module = Flat(module).eval()
    feeds = [[value(port, sizes) for port in ports] for sizes in tried_sizes(ports)]
    expected = [eager(module, feed) for feed in feeds]
    names = names or [f"output_{place}" for place in range(len(expected[0]))]
    by_name = [dict(zip((port.name for port in ports), feed)) for feed in feeds]
    notes = {}
    try:
        export_onnx(module, feeds, ports, expected, names, folder / "model.onnx")
        run = check.onnx_runner(folder / "model.onnx")
        notes["ONNX"] = largest_error(run, by_name, expected)
    except Exception as error:  # a graph that cannot be made is left out
        notes["ONNX"] = left_out(folder / "model.onnx", error)
    try:
        shutil.copyfile(archive, folder / "model.pt") if archive else export_torchscript(module, feeds, folder / "model.pt")
        loaded = torch.jit.load(folder / "model.pt", map_location="cpu").eval()
        notes["TorchScript"] = largest_error(lambda feed: eager(Flat(loaded), list(feed.values())), by_name, expected)
    except Exception as error:
        notes["TorchScript"] = left_out(folder / "model.pt", error)
    if not any((folder / name).is_file() for name in ("model.onnx", "model.pt")):
        raise RuntimeError("; ".join(f"{kind}: {note}" for kind, note in notes.items()))
    reference = {f"input.{name}": array for name, array in by_name[0].items()}
    reference |= {f"output.{name}": array for name, array in zip(names, expected[0])}
    np.savez(folder / "model.npz", **reference)
    state = {n: tensor.detach().clone().contiguous() for n, tensor in module.module.state_dict().items()}
    if state:
        save_file(state, folder / "weights.safetensors")
    write_toml(folder, ports, family, modality)
    say("; ".join(f"{kind} {note}" for kind, note in notes.items()))


def write_toml(folder: Path, ports: list[Port], family: str | None, modality: str | None) -> None:
    keys = {"family": family, "modality": modality}
    text = "".join(f"{key} = {json.dumps(text)}\n" for key, text in keys.items() if text)
    (folder / "model.toml").write_text(text + "".join(description.port_table("inputs", port) for port in ports))


def left_out(path: Path, error: Exception) -> str:
    path.unlink(missing_ok=True)
    return f"left out ({type(error).__name__}: {source.first_line(error)})"


def largest_error(run: check.Runner, feeds: list[dict[str, np.ndarray]], expected: list[list[np.ndarray]]) -> str:
    error = 0.0
    for feed, outputs in zip(feeds, expected):
        for actual, output in zip(run(feed), outputs, strict=True):
            scale = float(np.abs(output).max(initial=0)) or 1.0
            assert actual.shape == output.shape, f"a shape of {actual.shape} and not {output.shape}"
            error = max(error, float(np.abs(actual.astype(np.float64) - output).max(initial=0)) / scale)
    assert error <= MOST_ERROR, f"its outputs differ from those of the original by {error:.1e} of the largest"
    return f"differs by {error:.1e} of the largest output"


def eager(module: nn.Module, feed: list[np.ndarray]) -> list[np.ndarray]:
    with torch.no_grad():
        outputs = module(*(torch.from_numpy(array) for array in feed))
    return [output.contiguous().numpy() for output in outputs]


def open_axes(shapes: list[tuple[int, ...]], sizes: list[dict[str, int]]) -> dict[int, str]:
    """The places of a shape that change with the sizes, named after the size that they are."""
    axes = {}
    for axis, size in enumerate(shapes[0]):
        if any(shape[axis] != size for shape in shapes[1:]):
            same = [name for name in sizes[0] if all(shape[axis] == own[name] for shape, own in zip(shapes, sizes))]
            axes[axis] = same[0] if same else f"size_{axis}"
    return axes


def export_onnx(module: nn.Module, feeds, ports: list[Port], expected, names: list[str], path: Path) -> None:
    axes = {port.name: {axis: size for axis, size in enumerate(port.shape) if isinstance(size, str)} for port in ports}
    for place, name in enumerate(names):
        axes[name] = open_axes([outputs[place].shape for outputs in expected], tried_sizes(ports))
    for opset in OPSETS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.onnx.export(
                    module,
                    tuple(torch.from_numpy(array) for array in feeds[-1]),
                    path,
                    dynamo=False,
                    opset_version=opset,
                    input_names=[port.name for port in ports],
                    output_names=names,
                    dynamic_axes={name: own for name, own in axes.items() if own},
                )
            return
        except torch.onnx.errors.UnsupportedOperatorError:
            if opset == OPSETS[-1]:
                raise


def export_torchscript(module: nn.Module, feeds, path: Path) -> None:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(module, tuple(torch.from_numpy(array) for array in feeds[-1]), check_trace=False)
    torch.jit.save(traced, path)

