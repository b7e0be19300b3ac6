"""The module of a packaged or imported model: its library's class, as users have it, with the request's weights."""

import contextlib
import dataclasses
import importlib
import os
import pathlib
import re
import sys

import torch

from frames import Refused

# The oldest release with everything that the worker uses.
OLDEST = (2, 4)
if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < OLDEST:
    raise ImportError(f"PyTorch {torch.__version__} is too old: {'.'.join(map(str, OLDEST))} or later is needed")


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
        # The package's own `__init__` would import all models.
        package = type(sys)("zoo")
        package.__path__ = [os.path.join(folder, "zoo")]
        sys.modules["zoo"] = package
    return folder


def entry_of(request):
    """The `Entry` or `Generative` in `scripts/export` of a packaged model or of an imported model's architecture."""
    folder = pathlib.Path(request["definition"])
    variant = None
    if not (folder / "model.toml").is_file():
        # A variant with its own weights lies in the folder of its model.
        folder, variant = folder.parent, folder.name
    text = (folder / "model.toml").read_text(encoding="utf-8")
    architecture = re.search(r'^architecture = "(.+)"$', text, re.MULTILINE)
    if architecture is None and re.search(r'^source = ".*; imported from ', text, re.MULTILINE):
        return configured(request, folder)
    entry = packaged(architecture[1] if architecture else folder.name)
    builds = [own.build for own in getattr(entry, "variants", ()) if own.name == variant and hasattr(own, "build")]
    return dataclasses.replace(entry, original=builds[0]) if builds else entry


def packaged(model):
    """The entry of that name in the module of its family."""
    folder = scripts()
    needed = []
    for file in sorted(os.listdir(os.path.join(folder, "zoo"))):
        name, _, kind = file.partition(".")
        if kind != "py" or name == "__init__":
            continue
        with open(os.path.join(folder, "zoo", file)) as text:
            if f'"{model}"' not in text.read():
                continue
        try:
            found = vars(importlib.import_module(f"zoo.{name}")).values()
        except ImportError as why:
            needed.append(str(why))
            continue
        for entry in found:
            if getattr(entry, "name", None) == model:
                return entry
    if needed:
        raise Refused("unavailable", f"the model's module needs a package that this Python lacks: {needed[0]}")
    raise Refused("unsupported", f"there is no module of {model} in PyTorch")


def configured(request, folder):
    """The entry of an imported model, by its class in transformers and its configuration."""
    if not (folder / "config.json").is_file():
        raise Refused("unsupported", f"{folder / 'model.toml'} does not say its architecture: import the model again")
    model_class, config = class_of(folder)
    with scripts_refusals():
        import architectures

        # The name of the output tells which embedding is computed from the states.
        embedding = next((name for name in request["outputs"] if name in architectures.EMBEDDINGS), None)
        entry = architectures.entry_of(model_class.__name__, folder.name, config, "", embedding)
    if entry is None:
        raise Refused("unsupported", f"there is no module of {model_class.__name__} in PyTorch")
    return entry


def class_of(folder):
    """The class of transformers for the config.json of a folder, and its configuration."""
    scripts()
    with scripts_refusals():
        import pretrained

        return pretrained.class_of(folder)


@contextlib.contextmanager
def scripts_refusals():
    """Turns what the scripts of `inferbench import` refuse into a failure of the case."""
    try:
        yield
    except ImportError as why:
        needed = "transformers 5 or later" if "core_model_loading" in str(why) else "a package that this Python lacks"
        raise Refused("unavailable", f"the model's module needs {needed}: {why}") from why
    except Exception as why:
        if type(why).__module__ == "source":
            raise Refused("failed", str(why)) from why
        raise


def weights(request):
    if not request.get("weights"):
        raise Refused("unsupported", "the model has no file of weights for PyTorch")
    # The modules of users' files do not need this package.
    from safetensors.torch import load_file

    return load_file(request["weights"])


def load_state(module, tensors):
    """Copies the weights into a module, by their names."""
    own = {name: tensor for name, tensor in [*module.named_parameters(), *module.named_buffers()]}
    # The module computes its other buffers itself.
    kept = module.state_dict()
    missing = [name for name in own if name in kept and name not in tensors and own[name].is_floating_point()]
    if missing:
        raise Refused("failed", f"the file of weights has no {missing[0]}")
    with torch.no_grad():
        for name, tensor in own.items():
            if name in tensors:
                found, wanted = tuple(tensors[name].shape), tuple(tensor.shape)
                if found != wanted:
                    raise Refused("failed", f"{name} has the shape {found} in the file of weights, and {wanted} in the module")
                tensor.copy_(tensors[name])
