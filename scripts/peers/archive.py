"""A packaged model's TorchScript archive in Python, with its weights."""

import packaged
import torch
from safetensors.torch import load_file


def load(asked):
    """The module, and the ring of its arguments in the order of the model's inputs."""
    torch.set_num_threads(asked.threads)
    torch.set_num_interop_threads(1)
    folder = packaged.prepared(asked.model)
    module = torch.jit.load(str(packaged.ROOT / "models/zoo" / asked.model / "model.pt"), map_location="cpu").eval()
    weights = load_file(str(folder / "weights.safetensors"))
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if name in weights:
            tensor.data = weights[name]
    ring = [tuple(map(torch.from_numpy, batch.values())) for batch in packaged.batches(asked)]
    return module, ring
