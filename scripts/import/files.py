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
import source
import torch
from entry import Port
from safetensors.torch import save_file
from source import Refused, say
from torch import nn
from torch.utils import _pytree

# candle and tract support the first one best.
OPSETS = (16, 17, 20)
SAMPLES = 8
LENGTH = 128
# Relative to the largest value; two runtimes differ by far less in f32.
MOST_ERROR = 1e-3
NUMPY = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "bool": np.bool_}


def value(port: Port, sizes: dict[str, int]) -> np.ndarray:
    """A seeded value of an input, from the generator that inferbench has."""
    shape = [sizes.get(size, size) for size in port.shape]
    count, name = math.prod(shape), f"input.{port.name}"
    if port.constant is not None or port.dtype == "bool":
        flat = np.full(count, 1 if port.constant is None else port.constant)
    elif port.dtype.startswith("f"):
        flat = seeded.normal(seeded.INPUT_SEED, name, 0, count, 1.0)
    else:
        flat = seeded.integers(seeded.INPUT_SEED, name, 0, count, port.below or 2)
    return flat.astype(NUMPY[port.dtype]).reshape(shape)


def tried_sizes(ports: list[Port], length: int = LENGTH) -> list[dict[str, int]]:
    """The sizes of the reference, followed by other sizes if a dimension is dynamic."""
    others = [{"batch": 2, "sequence": 9}, {"batch": 3, "sequence": 14}]
    has_open = any(isinstance(size, str) for port in ports for size in port.shape)
    return [{"batch": SAMPLES, "sequence": length}, *(others if has_open else [])]


class Flat(nn.Module):
    """A module that returns its tensors as a tuple, however they are nested."""

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
    family: str | None = None,
    modality: str | None = None,
    archive: Path | None = None,
    length: int = LENGTH,
) -> None:
    """`names` are those of the outputs. `archive` is the module's TorchScript file, if it has one. `length` is that of
    the reference's texts."""
    module = Flat(module).eval()
    tried = tried_sizes(ports, length)
    feeds = [{port.name: value(port, sizes) for port in ports} for sizes in tried]
    expected = outputs(lambda feed: check.eager(module, feed), feeds, ports)
    names = names or [f"output_{place}" for place in range(len(expected[0]))]

    def onnx() -> str:
        export_onnx(module, tried, feeds, ports, expected, names, folder / "model.onnx")
        return largest_error(check.onnx_runner(folder / "model.onnx"), feeds, expected)

    made = attempt("ONNX", folder / "model.onnx", onnx)
    if not made | torchscript(module, feeds, expected, folder / "model.pt", archive):
        raise Refused("it can be exported neither to ONNX nor to TorchScript")
    write_reference(feeds[0], names, expected[0], ports, folder, family, modality)
    state = {n: tensor.detach().clone().contiguous() for n, tensor in module.module.state_dict().items()}
    if state:
        save_file(state, folder / "weights.safetensors")


def outputs(run: check.Runner, feeds: list[dict[str, np.ndarray]], ports: list[Port]) -> list[list[np.ndarray]]:
    """The outputs of the original. A file may take other sizes than those that are tried, such as shorter texts."""
    try:
        return [run(feed) for feed in feeds]
    except MemoryError:
        raise
    except Exception as error:
        tried = ", ".join(f"{name}:{list(array.shape)}" for name, array in feeds[0].items())
        flags = " ".join(f"--input '{port.name}:{port.dtype}[{','.join(map(str, port.shape))}]'" for port in ports)
        raise Refused(
            f"the model does not run with inputs such as {tried} ({source.first_line(error)}): for a file that takes other "
            f"sizes, pass them in place of those in {flags}"
        ) from error


def torchscript(module: nn.Module, feeds, expected, path: Path, archive: Path | None = None) -> bool:
    """Writes the TorchScript archive of a module and prints its largest error. Returns whether this succeeded."""

    def make() -> str:
        shutil.copyfile(archive, path) if archive else export_torchscript(module, feeds, path)
        loaded = Flat(torch.jit.load(path, map_location="cpu").eval())
        return largest_error(lambda feed: check.eager(loaded, feed), feeds, expected)

    return attempt("TorchScript", path, make)


def attempt(kind: str, path: Path, make) -> bool:
    """Makes a file, which is left out if it cannot be made or computes something else. Returns whether it is there."""
    try:
        say(f"{kind}: {make()}")
    except Exception as error:
        path.unlink(missing_ok=True)
        say(f"{kind} is left out: {type(error).__name__}: {source.first_line(error)}")
    return path.is_file()


def write_reference(
    feed: dict[str, np.ndarray], names: list[str], outputs, ports: list[Port], folder: Path, family=None, modality=None
) -> None:
    reference = {f"input.{name}": array for name, array in feed.items()}
    reference |= {f"output.{name}": array for name, array in zip(names, outputs)}
    np.savez(folder / "model.npz", **reference)
    keys = {"family": family, "modality": modality}
    text = "".join(f"{key} = {json.dumps(text)}\n" for key, text in keys.items() if text)
    (folder / "model.toml").write_text(text + "".join(description.port_table("inputs", port) for port in ports))


def largest_error(run: check.Runner, feeds: list, expected: list[list[np.ndarray]], most: float = MOST_ERROR) -> str:
    error = 0.0
    for feed, outputs in zip(feeds, expected):
        for actual, output in zip(run(feed), outputs, strict=True):
            error = max(error, check.relative_error(actual, output))
    said = f"its outputs differ from those of the original by {error:.1e} of the largest"
    assert error <= most, said
    return said


def open_axes(shapes: list[tuple[int, ...]], sizes: list[dict[str, int]]) -> dict[int, str]:
    """The dynamic dimensions of a shape, each with the name of the size that it is equal to."""
    axes = {}
    for axis, size in enumerate(shapes[0]):
        if any(shape[axis] != size for shape in shapes[1:]):
            same = [name for name in sizes[0] if all(shape[axis] == own[name] for shape, own in zip(shapes, sizes))]
            axes[axis] = same[0] if same else f"size_{axis}"
    return axes


def export_onnx(module: nn.Module, tried, feeds, ports: list[Port], expected, names: list[str], path: Path) -> None:
    axes = {port.name: {axis: size for axis, size in enumerate(port.shape) if isinstance(size, str)} for port in ports}
    for place, name in enumerate(names):
        axes[name] = open_axes([outputs[place].shape for outputs in expected], tried)
    # A ScriptModule is not traced, so it cannot be wrapped in `Flat`.
    own = module.module if isinstance(module.module, torch.jit.ScriptModule) else module
    for opset in OPSETS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.onnx.export(
                    own,
                    tuple(torch.from_numpy(array) for array in feeds[-1].values()),
                    str(path),
                    dynamo=False,
                    opset_version=opset,
                    input_names=[port.name for port in ports],
                    output_names=names,
                    dynamic_axes={name: places for name, places in axes.items() if places},
                )
            return
        except torch.onnx.errors.UnsupportedOperatorError:
            if opset == OPSETS[-1]:
                raise


def export_torchscript(module: nn.Module, feeds: list[dict[str, np.ndarray]], path: Path) -> None:
    example = tuple(torch.from_numpy(array) for array in feeds[-1].values())
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(module, example, check_trace=False)
    torch.jit.save(traced, path)

