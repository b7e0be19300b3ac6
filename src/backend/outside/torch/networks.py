"""The module of a packaged model, as PyTorch's users have it: the class of its library, with the weights of the request."""

import importlib
import os
import sys

import safetensors.torch
import torch

from frames import Refused


class Called(torch.nn.Module):
    """`call(model, *inputs)`."""

    def __init__(self, call, model):
        super().__init__()
        self.call, self.model = call, model

    def forward(self, *inputs):
        return self.call(self.model, *inputs)


def scripts():
    """Lets the modules of `scripts/export` and `scripts/import` be imported, and returns the folder of the first."""
    folder = os.environ["TORCH_WORKER_EXPORT"]
    if folder not in sys.path:
        sys.path[:0] = [folder, os.path.join(os.path.dirname(folder), "import")]
        # The package itself would import what makes trained variants.
        package = type(sys)("zoo")
        package.__path__ = [os.path.join(folder, "zoo")]
        sys.modules["zoo"] = package
    return folder


def packaged(request):
    """What `scripts/export` says of a packaged model: its family's module has an `Entry` or a `Generative` of that name."""
    folder = scripts()
    needed = []
    for file in sorted(os.listdir(os.path.join(folder, "zoo"))):
        name, _, kind = file.partition(".")
        if kind != "py" or name == "__init__":
            continue
        with open(os.path.join(folder, "zoo", file)) as text:
            if f'"{request["model"]}"' not in text.read():
                continue
        try:
            found = vars(importlib.import_module(f"zoo.{name}")).values()
        except ImportError as why:
            needed.append(str(why))
            continue
        for entry in found:
            if getattr(entry, "name", None) == request["model"]:
                return entry
    if needed:
        raise Refused("unavailable", f"the model's module needs a package that this Python lacks: {needed[0]}")
    raise Refused("unsupported", f"there is no module of {request['model']} in PyTorch")


def weights(request):
    if not request.get("weights"):
        raise Refused("unsupported", "the model has no file of weights for PyTorch")
    return safetensors.torch.load_file(request["weights"])


def load_state(module, tensors):
    """Puts the weights in, by their names."""
    own = {name: tensor for name, tensor in [*module.named_parameters(), *module.named_buffers()]}
    missing = [name for name in own if name not in tensors and own[name].is_floating_point()]
    if missing:
        raise Refused("failed", f"the file of weights has no {missing[0]}")
    with torch.no_grad():
        for name, tensor in own.items():
            if name in tensors:
                tensor.copy_(tensors[name])
