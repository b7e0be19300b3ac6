"""DLRM: the probability of a click from numbers and categories; rows of tables are looked up, summed and multiplied.

The layout is that of Naumov et al. 2019: a network for the numbers, a table for each category, products of all pairs,
and a network over the products.
"""

import torch
from torch import nn

from entry import Entry, Port
from transformer_init import fan_in

NUMBERS, CATEGORIES = 13, 26


def _network(sizes: list[int], last: nn.Module) -> nn.Sequential:
    layers = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1], last)


class Dlrm(nn.Module):
    """Numbers, [batch, 13], and rows of the tables, [batch, 26, bag], to a probability, [batch, 1]."""

    def __init__(self, rows: int, width: int, bottom: list[int], top: list[int]):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(CATEGORIES))
        self.bottom = _network([NUMBERS, *bottom, width], nn.ReLU())
        vectors = CATEGORIES + 1
        self.pairs = vectors * (vectors - 1) // 2
        self.top = _network([width + self.pairs, *top, 1], nn.Sigmoid())
        left, right = torch.tril_indices(vectors, vectors, -1)
        self.register_buffer("places", left * vectors + right, persistent=False)

    def forward(self, numbers: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        dense = self.bottom(numbers)
        bags = [table(rows[:, place]).sum(1) for place, table in enumerate(self.tables)]
        vectors = torch.stack([dense, *bags], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([dense, products.index_select(1, self.places)], 1))


def _init(name: str, shape: list[int]) -> dict:
    if len(shape) == 1:
        return {"normal": 0.1}
    if name.startswith("tables."):
        return {"normal": 0.3}
    return {"normal": fan_in(shape, 2)}


def _entry(name: str, rows: int, width: int, bottom: list[int], top: list[int], bag: int, source: str) -> Entry:
    def build() -> nn.Module:
        return Dlrm(rows, width, bottom, top)

    return Entry(
        name=name,
        family="dlrm",
        modality="table",
        source=f"DLRM; {source}",
        license="MIT OR Apache-2.0",
        inputs=[
            Port("numbers", "f32", ["batch", NUMBERS]),
            Port("rows", "i64", ["batch", CATEGORIES, bag], below=rows),
        ],
        outputs=[Port("probability", "f32", ["batch", 1])],
        original=build,
        exportable=build,
        init=_init,
    )


DLRM_SMALL = _entry("dlrm-small", 100, 8, [32, 16], [64, 32], 2, "tables of 100 rows of width 8")
DLRM = _entry(
    "dlrm",
    100_000,
    64,
    [512, 256],
    [1024, 1024, 512, 256],
    1,
    "the networks of MLPerf's, tables of 100,000 rows of width 64",
)
