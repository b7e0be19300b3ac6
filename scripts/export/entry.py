"""The descriptions from which models of the zoo are exported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import nn
from transformers import PreTrainedModel

if TYPE_CHECKING:
    # A process that only runs modules need not have this package.
    import onnx


# Samples of a reference.
SAMPLES = 8


@dataclass(frozen=True)
class Port:
    """An input or output of a model or of a part; a string in `shape` is a symbolic dimension.

    In a model, the first dimension is always the batch. The dimension "sequence" is the length of a text or of audio.
    An integer input is uniform in [0, `below`), or `constant` throughout. `open_sizes` names further dimensions that
    are dynamic in the graph, by their index; the reference has only the sizes of `shape`.
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

    `build` creates the network, and `train(network, original)` sets its weights. `made` describes this for readers.
    """

    name: str
    build: Callable[[], nn.Module]
    train: Callable[[nn.Module, nn.Module], None]
    made: str


@dataclass(frozen=True)
class QuantizedVariant:
    """The trained original with weights and arithmetic of 8 bits, in a file for one runtime.

    `quantize(original, graph)` makes the file from the network or from its ONNX graph with weights inside; `runtime`
    is "onnx" or "torchscript". `made` describes this for readers.
    """

    name: str
    runtime: str
    quantize: Callable[[nn.Module, onnx.ModelProto], bytes]
    made: str


@dataclass(frozen=True)
class Entry:
    """One model.

    `original` builds the module as its library defines it: the reference. `exportable` builds the module that is
    traced. It has the same state-dict names and results, and uses only operators that every backend has. If nothing had
    to be rewritten, both are the same function. `init` returns a tensor's initialisation from its state-dict name and
    shape; it is `None` for trained weights. The reference has texts or audio of `sequence_lengths`, which is empty if
    no input has the dimension "sequence". `variants` are those of a trained model. A seeded model that is `quantized`
    has a calibration and variants in i8.
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
    """One graph of a generative model: `call(model, *inputs)` returns its outputs.

    An input is the value of that name: an input of the model, or an output of an earlier part. `present.X` becomes
    `past.X` of the next step, which is empty at the start; `position_ids` and `attention_bias` are made for each call.
    Besides "batch" and "sequence", the dimensions are: "tokens" of the call; "image", the features before them;
    "positions" and "queries", both of these together; "past", those in the cache; and "keys", the cached and new ones.
    """

    name: str
    inputs: list[Port]
    outputs: list[Port]
    call: Callable[..., tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Prompt:
    """The arguments of transformers' own model: of the first call, and of the calls that take one token each."""

    prefill: dict
    decode: dict = field(default_factory=dict)
    encoded: list[torch.Tensor] = field(default_factory=list)
    """The values of `Generative.encoded`."""


@dataclass(frozen=True)
class Generative:
    """A model that generates tokens from a prompt; each token is the likeliest one.

    `build` creates the module as transformers defines it. Called with the arguments of `prompt(model, *inputs)`, it is
    the reference, and the parts use its submodules. The last of `parts` returns the logits of the last position; decode
    steps run only this part. `encoded` are outputs of the other parts that are compared. `tokens` is the input for the
    prompt's tokens and then for each new one. The inputs in `once` are empty after the first call. The prompt starts
    after `prefix_positions`. `idle` are prefixes of the names of weights that inference does not use. `prefixes` are
    replaced in the names that the library would save, if the published names are older. Without `init`, the weights are
    those of the built module.
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
