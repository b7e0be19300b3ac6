"""A graph convolutional network: features of nodes are gathered along edges and summed at their targets.

The layer is that of Kipf and Welling 2017 without normalisation by degrees. A node's own features have weights of their
own, as in GraphConv of Morris et al. 2019.
"""

import torch
from torch import nn

from entry import Entry, Port
from transformer_init import fan_in


class Gcn(nn.Module):
    """Features of nodes, [batch, nodes, width], and edges, [batch, 2, edges], to logits of nodes, [batch, nodes, classes]."""

    def __init__(self, inputs: int, width: int, layers: int, classes: int):
        super().__init__()
        sizes = [inputs, *[width] * (layers - 1), classes]
        self.own = nn.ModuleList(nn.Linear(*pair) for pair in zip(sizes, sizes[1:]))
        self.others = nn.ModuleList(nn.Linear(*pair, bias=False) for pair in zip(sizes, sizes[1:]))

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        sources, targets = edges[:, 0].unsqueeze(2), edges[:, 1].unsqueeze(2)
        for layer, (own, others) in enumerate(zip(self.own, self.others)):
            nodes = nodes.relu() if layer else nodes
            messages = others(nodes)
            width = messages.shape[2]
            along = torch.gather(messages, 1, sources.expand(-1, -1, width))
            nodes = torch.scatter_add(own(nodes), 1, targets.expand(-1, -1, width), along)
        return nodes


def _init(name: str, shape: list[int]) -> dict:
    return {"normal": 0.1 if len(shape) == 1 else fan_in(shape, 0.4 if name.startswith("others") else 1)}


def _entry(name: str, nodes: int, edges: int, inputs: int, width: int, layers: int, classes: int, source: str) -> Entry:
    def build() -> nn.Module:
        return Gcn(inputs, width, layers, classes)

    return Entry(
        name=name,
        family="gcn",
        modality="graph",
        source=f"graph convolutions; {source}",
        license="MIT OR Apache-2.0",
        inputs=[
            Port("nodes", "f32", ["batch", nodes, inputs]),
            Port("edges", "i64", ["batch", 2, edges], below=nodes),
        ],
        outputs=[Port("logits", "f32", ["batch", nodes, classes])],
        original=build,
        exportable=build,
        init=_init,
    )


GCN_SMALL = _entry("gcn-small", 64, 256, 16, 32, 3, 7, "3 layers of width 32, 64 nodes")
GCN = _entry("gcn", 2708, 10556, 1433, 64, 2, 7, "2 layers of width 64; nodes, edges and features of Cora")
