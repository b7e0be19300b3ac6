"""A model of the transformers library under the names of its published checkpoints.

In memory, each version of the library has its own names for modules, and it restores the published names when it saves.
A weights file has the saved names, which other runtimes also use and which do not change with the version.
"""

import json

import torch
import torchscript
from torch import nn
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion


class Published(nn.Module):
    """`call(model, *inputs)`, with the weights of `model` under their saved names.

    The model's own tensors are registered here, and the model is not a submodule, so a trace sees only the saved names.
    A tensor that the model uses twice has its first name. `unused` are weights that inference does not use; `prefixes`
    are replaced in the names that the library would save. Integer buffers, such as positions, stay with the model and
    are constants of a trace.
    """

    def __init__(
        self, model: PreTrainedModel, call, unused: tuple[str, ...] = (), prefixes: tuple[tuple[str, str], ...] = ()
    ):
        super().__init__()
        model.eval()
        trained = {id(parameter) for parameter in model.parameters()}
        torchscript.buffers_to_parameters(model)
        tensors = model.state_dict(keep_vars=True)
        # Each name needs its own object, because the saved names have another order.
        aliases = {name: tensor.detach() for name, tensor in tensors.items()}
        saved = {id(alias): name for name, alias in revert_weight_conversion(model, dict(aliases)).items()}
        registered = set()
        for own_name, tensor in tensors.items():
            name = saved[id(aliases[own_name])]
            for old, new in prefixes:
                name = new + name.removeprefix(old) if name.startswith(old) else name
            if not tensor.is_floating_point() or id(tensor) in registered:
                continue
            registered.add(id(tensor))
            if name in unused:
                continue
            tensor.requires_grad_(id(tensor) in trained)
            self._at(name.split(".")[:-1]).register_parameter(name.split(".")[-1], tensor)
        self._call = (call, model)

    def config_json(self) -> str:
        """The complete configuration, because other runtimes do not know the library's defaults. Versions and labels
        are left out."""
        model = self._call[1]
        config = {**model.config.to_dict(), "architectures": [type(model).__name__]}
        # Labels take thousands of lines, and no computation uses them.
        for key in ("transformers_version", "_name_or_path", "dtype", "id2label", "label2id"):
            config.pop(key, None)
        return json.dumps(config, indent=2, sort_keys=True) + "\n"

    def _at(self, path: list[str]) -> nn.Module:
        module = self
        for part in path:
            if part not in module._modules:
                module.add_module(part, nn.Module())
            module = module._modules[part]
        return module

    def forward(self, *inputs: torch.Tensor):
        call, model = self._call
        return call(model, *inputs)
