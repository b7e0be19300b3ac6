"""What a model of the zoo must say about itself to be exported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import nn
from transformers import PreTrainedModel

if TYPE_CHECKING:
    # Whoever only runs modules does not have it.
    import onnx


# Of the inputs of a reference.
SAMPLES = 8


@dataclass(frozen=True)
class Port:
    """An input or output of a model or of a part; a string in `shape` is a symbolic dimension.

    The first dimension of a model's own is always the batch. The dimension "sequence" is the length of a text or a
    sound. An integer input is uniform in [0, `below`), or `constant` throughout. `open_sizes` names dimensions that the
    graph leaves open, by their places: there is no reference for other sizes than those of `shape`.
    """

    name: str
    dtype: str
    shape: list[int | str]
    below: int | None = None
    constant: int | None = None
    open_sizes: dict[int, str] = field(default_factory=dict)

    @property
    def graph_shape(self) -> list[int | str]:
        return [self.open_sizes.get(place, size) for place, size in enumerate(self.shape)]


@dataclass(frozen=True)
class TrainedVariant:
    """A network with graphs and weights of its own, made from the trained original.

    `build` gives the network, and `train(network, original)` its weights. `made` says how, for readers.
    """

    name: str
    build: Callable[[], nn.Module]
    train: Callable[[nn.Module, nn.Module], None]
    made: str


@dataclass(frozen=True)
class QuantizedVariant:
    """The trained original with weights and arithmetic of 8 bits, in a file of one runtime.

    `quantize(original, graph)` gives the file from the network or from its ONNX graph with weights inside; `runtime`
    is "onnx" or "torchscript". `made` says how, for readers.
    """

    name: str
    runtime: str
    quantize: Callable[[nn.Module, onnx.ModelProto], bytes]
    made: str


@dataclass(frozen=True)
class Entry:
    """One model.

    `original` builds the module as its library defines it: the reference. `exportable` builds the module that is
    traced: same state-dict names, same results, written with operators that every backend has. The two are the same
    function where nothing had to be rewritten. `init` gives a tensor's initialisation from its state-dict name and
    shape, `None` where the weights are trained. `sequence_lengths` are the lengths for which there is a reference;
    empty where no input has the dimension "sequence". `variants` are those of a trained model; `quantized` gives others
    the variants in i8, and a calibration.
    """

    name: str
    family: str
    modality: str
    source: str
    license: str
    inputs: list[Port]
    outputs: list[Port]
    original: Callable[[], nn.Module]
    exportable: Callable[[], nn.Module]
    init: Callable[[str, list[int]], dict] | None
    sequence_lengths: list[int] = field(default_factory=list)
    extra: dict = field(default_factory=dict)
    variants: list[TrainedVariant | QuantizedVariant] = field(default_factory=list)
    quantized: bool = False


@dataclass(frozen=True)
class Part:
    """One graph of a generative model: `call(model, *inputs)` gives its outputs.

    An input takes the value of its name: an input of the model, or an output of a part before it. `present.X` becomes
    `past.X` of the next step, which is empty at the start; `position_ids` and `attention_bias` are made for the call.
    Dimensions beside "batch" and "sequence": "tokens" of the call, "image" features before them, "positions" and
    "queries" for all of these, "past" ones in the cache and "keys" for those and the new ones.
    """

    name: str
    inputs: list[Port]
    outputs: list[Port]
    call: Callable[..., tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Prompt:
    """What transformers' own model is given: arguments of the first call, and of those that take one token each."""

    prefill: dict
    decode: dict = field(default_factory=dict)
    encoded: list[torch.Tensor] = field(default_factory=list)
    """The values of `Generative.encoded`."""


@dataclass(frozen=True)
class Generative:
    """A model that makes tokens from a prompt, one after the other, each the likeliest.

    `build` makes the module as transformers defines it, which is the reference, by way of `prompt(model, *inputs)`;
    the parts are written over its submodules. The last of `parts` gives the logits of the last position and is the
    only one that decoding runs. `encoded` are outputs of the others that are compared. `tokens` is the input that
    takes the prompt's tokens and then each new one. The value of an input `once` is empty after the first call;
    `prefix_positions` are those before the prompt. `idle` begins the names of weights that inference does not touch;
    `prefixes` are replaced in the names that the library would save, where the published ones are older. Without `init`,
    the weights are those that `build` gives.
    """

    name: str
    family: str
    modality: str
    source: str
    license: str
    inputs: list[Port]
    build: Callable[[], PreTrainedModel]
    prompt: Callable[..., Prompt]
    parts: list[Part]
    init: Callable[[str, list[int]], dict] | None
    tokens: str = "input_ids"
    prefix_positions: int = 0
    once: tuple[str, ...] = ()
    encoded: list[Port] = field(default_factory=list)
    idle: tuple[str, ...] = ()
    prefixes: tuple[tuple[str, str], ...] = ()
    sequence_lengths: list[int] = field(default_factory=list)
    seed: int = 1
