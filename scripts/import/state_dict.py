"""Imports a state dict: weights for a packaged model's architecture or for one of torchvision."""

import inspect
import pickle
import re
from pathlib import Path

import files
import network
import packaged
import torch
import torchvision
from entry import Entry, Generative, Port
from safetensors.torch import load_file
from source import Refused, runs_code
from zoo import ENTRIES

# Keys under which training programs store the state dict in a checkpoint.
WRAPPERS = ("state_dict", "model_state_dict", "model")
# Parts of names in the files that torchvision publishes for DenseNet and ViT, and what its modules call them now.
OLD_NAMES = ((r"(denselayer\d+\.(?:norm|conv))\.([12])\.", r"\1\2."), (r"\.mlp\.linear_1\.", ".mlp.0."), (r"\.mlp\.linear_2\.", ".mlp.3."))


def convert(path: Path, architecture: str, name: str, output: Path) -> None:
    weights = read(path)
    entry = ENTRIES.get(architecture)
    if entry and not _has_other_classes(architecture, weights):
        if isinstance(entry, Generative):
            raise Refused(f"{architecture} is generative: name the folder with its config.json instead")
        _convert_packaged(entry, name, path, weights, output)
        return
    if architecture not in torchvision.models.list_models():
        raise Refused(
            f"there is no architecture {architecture!r}: name one of torchvision, such as resnet18, or a packaged "
            f"one: {', '.join(name for name, entry in ENTRIES.items() if isinstance(entry, Entry))}"
        )
    # These weights are for training only.
    weights = {n: value for n, value in weights.items() if not n.startswith("aux_classifier.")}
    model = _of_torchvision(architecture, weights)
    state = {n: value for n, value in model.state_dict().items() if not n.endswith("num_batches_tracked")}
    packaged.check_weights({n: list(value.shape) for n, value in state.items()}, weights)
    model.load_state_dict({n: torch.as_tensor(value) for n, value in weights.items()}, strict=False)
    size = 299 if architecture.startswith("inception") else 224
    ports = [Port("input", "f32", ["batch", 3, size, size])]
    files.write(model.eval(), ports, ["logits"], output, family=architecture, modality="image")


def _convert_packaged(entry: Entry, name: str, path: Path, weights, output: Path) -> None:
    import dataclasses

    note = f"{entry.source.split(';')[0]}; imported from {path.name}"
    # PyTorch's worker reads the entry's name from `architecture`.
    own = dataclasses.replace(entry, name=name, source=note, extra={"architecture": entry.name})
    shapes = network.layout_of(entry.original()).shapes
    # Swin's files have these integers; the packaged module computes them.
    weights = {n: value for n, value in weights.items() if n in shapes or not n.endswith("relative_position_index")}
    packaged.check_weights(shapes, weights)
    packaged.write(own, weights, output)


def _of_torchvision(architecture: str, weights) -> torch.nn.Module:
    # By default, torchvision would download the weights of a backbone.
    takes_backbone = "weights_backbone" in inspect.signature(torchvision.models.get_model_builder(architecture)).parameters
    options = {"weights_backbone": None} if takes_backbone else {}
    if architecture in ("googlenet", "inception_v3"):
        # As for torchvision's published weights, which take inputs of another scale than its preprocessing gives.
        options |= {"transform_input": True}
    if architecture in ("googlenet", "inception_v3") and not any(n.startswith(("aux", "Aux")) for n in weights):
        # The state dict of torchvision's published model has no auxiliary heads.
        options |= {"aux_logits": False}
    model = torchvision.models.get_model(architecture, weights=None, **options)
    # The last tensor is the bias or the weight of the head. Its first size is the number of classes.
    *_, (name, last) = model.state_dict().items()
    own = weights.get(name)
    if own is None or not own.shape or own.shape == last.shape:
        return model
    return torchvision.models.get_model(architecture, weights=None, num_classes=own.shape[0], **options)


def _has_other_classes(architecture: str, weights) -> bool:
    """Whether the weights are for torchvision's network with other classes than the packaged model of that name."""
    if architecture not in torchvision.models.list_models():
        return False
    *_, (name, last) = torchvision.models.get_model(architecture, weights=None).state_dict().items()
    return name in weights and weights[name].shape != last.shape


def read(path: Path) -> dict:
    """The tensors as NumPy arrays in f32, by name. No code from the file is run."""
    if path.suffix == ".safetensors":
        state = load_file(path)
    else:
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:
            raise runs_code(path) from None
    for key in WRAPPERS:
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    tensors = isinstance(state, dict) and {n: value for n, value in state.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        raise Refused(f"{path} has no tensors by name")
    # Wrappers such as DataParallel add this prefix to every name.
    tensors = {n.removeprefix("module."): value for n, value in tensors.items()}
    for old, new in OLD_NAMES:
        tensors = {re.sub(old, new, n): value for n, value in tensors.items()}
    kept = {n: value for n, value in tensors.items() if not n.endswith("num_batches_tracked")}
    return {n: value.detach().to(torch.float32).contiguous().numpy() for n, value in kept.items()}
