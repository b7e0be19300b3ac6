"""Initialisation of the weights of a transformer from their names and shapes.

Deviations follow the fan-in. Projections to queries, keys and values are larger, so that attention is selective: an
even average over many random tokens would hardly depend on them.
"""

import math

_CHOOSING = ("in_proj_weight", "query", "key", "value", "q_proj", "k_proj", "v_proj")
_EMBEDDINGS = ("embedding", "embeddings", "embed", "token")


def transformer_init(name: str, shape: list[int]) -> dict:
    if not shape:
        # The logarithm of CLIP's initial temperature: ln(1 / 0.07).
        return {"constant": 2.6592}
    leaf = name.removesuffix(".weight").rsplit(".", 1)[-1]
    if leaf.endswith(_EMBEDDINGS) and len(shape) < 4:
        return {"normal": 0.5}
    if len(shape) >= 2:
        return {"normal": fan_in(shape, 3 if leaf in _CHOOSING else 1)}
    if name.endswith("bias"):
        return {"normal": 0.1}
    return {"uniform": [0.8, 1.2]}


def fan_in(shape: list[int], gain: float) -> float:
    return round(math.sqrt(gain / math.prod(shape[1:])), 6)
