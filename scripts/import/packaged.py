"""Writes a model with an architecture of the zoo and its own weights as a folder like those in models/zoo."""

import dataclasses
from pathlib import Path

import generative
import description
import network
import numpy as np
import package
import seeded
import torch
from entry import Entry, Generative
from source import Refused, say
from torch import nn

WEIGHTS = "weights.safetensors"


def write(entry: Entry, weights: dict[str, np.ndarray], folder: Path) -> None:
    """`weights` are those of the entry's state dict, by name."""
    entry = dataclasses.replace(entry, init=None, license="unknown", quantized=False, variants=[])
    original = entry.original().eval()
    check_weights(network.layout_of(original).shapes, weights)
    inputs = [
        {port.name: seeded.samples(port, 0, package.SAMPLES, length) for port in entry.inputs}
        for length in package.tried_lengths(entry.sequence_lengths)
    ]
    exported = _without_riddles(network.export, entry, entry.name, original, entry.exportable, weights, inputs, {})
    toml = description.model_toml(entry, exported.parameters, exported.tolerance, {"weights": WEIGHTS, **entry.extra}, [])
    _write(folder, {**exported.files, "model.toml": toml}, exported.layout, weights)
    _say_row(exported.row)


def write_generative(entry: Generative, folder: Path) -> None:
    """Writes a generative model with the weights of the model that `entry.build` returns."""
    entry = dataclasses.replace(entry, init=None, license="unknown")
    exported = _without_riddles(generative.export_files, entry, {"weights": WEIGHTS})
    _write(folder, exported.files, exported.layout, exported.weights)
    _say_row(exported.row)
    if float(exported.row["lead"]) < generative.LEAD:
        say("two tokens of the reference are almost equally likely, so a correct backend may choose the other one")


def check_weights(wanted: dict[str, list[int]], weights: dict[str, np.ndarray]) -> None:
    missing = [name for name in wanted if name not in weights]
    unknown = [name for name in weights if name not in wanted]
    other = [name for name in wanted if name in weights and list(weights[name].shape) != wanted[name]]
    if missing or unknown:
        lists = ((f"{len(missing)} are missing, such as", missing), (f"{len(unknown)} are not in it, such as", unknown))
        said = [f"{text} {names[0]}" for text, names in lists if names]
        raise Refused(f"the weights are not those of the architecture: {', and '.join(said)}")
    if other:
        shapes = f"{list(weights[other[0]].shape)} and not {wanted[other[0]]}"
        raise Refused(f"{len(other)} of the weights do not have the architecture's sizes, such as {other[0]}: {shapes}")


def numpy_weights(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: value.detach().to(torch.float32).contiguous().numpy() for name, value in module.state_dict().items()}


def _without_riddles(export, *arguments):
    try:
        return export(*arguments)
    except AssertionError as error:
        raise Refused(f"the exported graph does not compute what the original does: {error}") from error


def _write(folder: Path, files: dict[str, str | bytes], layout, weights: dict[str, np.ndarray]) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    layout.write(folder / WEIGHTS, weights)


def _say_row(row: dict) -> None:
    say(f"{row['parameters']} parameters; largest error to PyTorch: ONNX {row['ORT error']}, TorchScript {row['TorchScript error']}")
