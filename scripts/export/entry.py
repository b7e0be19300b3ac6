"""What a model of the zoo must say about itself to be exported."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import nn


@dataclass(frozen=True)
class Port:
    """An input or output; a string in `shape` is a symbolic dimension, and the first is always the batch."""

    name: str
    dtype: str
    shape: list[int | str]


@dataclass(frozen=True)
class Entry:
    """One model.

    `original` builds the module as its library defines it: the reference. `exportable` builds the module that is
    traced: same state-dict names, same results, written with operators that every backend has. The two are the same
    function where nothing had to be rewritten. `init` gives a tensor's initialisation from its state-dict name and
    shape, `None` where the weights are trained.
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
    extra: dict = field(default_factory=dict)
