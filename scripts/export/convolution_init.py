"""Initialisation of the weights of a convolutional network from their names and shapes.

Deviations follow the fan-in, so that activations keep their size. Running statistics differ from 0 and 1, so that a
backend that ignores them gives wrong results.
"""

from transformer_init import fan_in


def convolution_init(name: str, shape: list[int]) -> dict:
    if len(shape) >= 2:
        return {"normal": fan_in(shape, 2)}
    if name.endswith("running_var"):
        return {"uniform": [0.5, 1.5]}
    if name.endswith(("running_mean", "bias")):
        return {"normal": 0.1}
    return {"uniform": [0.8, 1.2]}
