"""What a model of the zoo must say about itself to be exported."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import nn


@dataclass(frozen=True)
class Port:
    """An input or output; a string in `shape` is a symbolic dimension, and the first is always the batch.

    The dimension "sequence" is the length of a text or a sound. An integer input is uniform in [0, `below`), or
    `constant` throughout.
    """

    name: str
    dtype: str
    shape: list[int | str]
    below: int | None = None
    constant: int | None = None


@dataclass(frozen=True)
class Entry:
    """One model.

    `original` builds the module as its library defines it: the reference. `exportable` builds the module that is
    traced: same state-dict names, same results, written with operators that every backend has. The two are the same
    function where nothing had to be rewritten. `init` gives a tensor's initialisation from its state-dict name and
    shape, `None` where the weights are trained. `sequence_lengths` are the lengths for which there is a reference;
    empty where no input has the dimension "sequence".
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
