"""Weights and inputs from a seed, with the same bits on every machine.

A counter-based generator: element `i` of a tensor depends only on the seed, the tensor's name and `i`, so neither the
order in which tensors are made nor the number of threads matters. The Rust side has the same functions; every step is
integer arithmetic modulo 2^64 or one rounded f32 operation at a time, so both give the same bits.

    base  = mix(seed XOR fnv1a64(name))
    z(i)  = mix(base + (i + 1) * 0x9E3779B97F4A7C15)          i counts row-major from 0

`mix` is the finaliser of splitmix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators").
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # the module itself needs no torch
    from entry import Port

INPUT_SEED = 20260101

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
# Standard deviation of the sum of four independent lanes, each uniform on 0..65535: sqrt(4 * (65536^2 - 1) / 12).
_LANE_SUM_STD = math.sqrt((65536**2 - 1) / 3)


def fnv1a64(name: str) -> int:
    """FNV-1a over the UTF-8 bytes of `name`."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & _MASK
    return h


def _mix(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _bits(seed: int, name: str, start: int, count: int) -> np.ndarray:
    base = _mix(np.array([seed ^ fnv1a64(name)], dtype=np.uint64))
    index = np.arange(start + 1, start + 1 + count, dtype=np.uint64)
    return _mix(base + index * np.uint64(_GOLDEN))


def normal(seed: int, name: str, start: int, count: int, std: float) -> np.ndarray:
    """Irwin-Hall of order 4, scaled to deviation `std`: the centred sum of the four 16-bit lanes of `z`, times one f32.

    The centred sum is an integer within +-131070, so it is exact in f32. There is no logarithm or cosine, which differ
    between mathematical libraries.
    """
    z = _bits(seed, name, start, count)
    lanes = sum((z >> np.uint64(shift)) & np.uint64(0xFFFF) for shift in (0, 16, 32, 48))
    return (lanes.astype(np.int64) - 131070).astype(np.float32) * np.float32(std / _LANE_SUM_STD)


def uniform(seed: int, name: str, start: int, count: int, low: float, high: float) -> np.ndarray:
    """`low + (high - low) * u` in f32, multiplied then added, with the upper 24 bits of `z` as `u` in [0, 1)."""
    u = (_bits(seed, name, start, count) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    return np.float32(low) + np.float32(high - low) * u


def integers(seed: int, name: str, start: int, count: int, below: int) -> np.ndarray:
    """`z mod below`: uniform except for a bias of `below / 2^64`."""
    return (_bits(seed, name, start, count) % np.uint64(below)).astype(np.int64)


def tensor(seed: int, name: str, shape: list[int], init: dict) -> np.ndarray:
    """A whole weight tensor; `init` is one of `{"normal": std}`, `{"uniform": [low, high]}`, `{"constant": value}`."""
    count = math.prod(shape)
    ((kind, value),) = init.items()
    if kind == "normal":
        flat = normal(seed, name, 0, count, value)
    elif kind == "uniform":
        flat = uniform(seed, name, 0, count, *value)
    elif kind == "constant":
        flat = np.full(count, value, dtype=np.float32)
    else:
        raise ValueError(f"{name}: unknown initialisation {kind!r}")
    return flat.reshape(shape)


def samples(port: Port, first: int, count: int, sequence: int | None = None) -> np.ndarray:
    """Samples `first .. first + count` of an input's pool; the dimension "sequence" has the size `sequence`."""
    shape = [sequence if size == "sequence" else size for size in port.shape[1:]]
    size, name = math.prod(shape), f"input.{port.name}"
    if port.constant is not None:
        flat = np.full(count * size, port.constant, dtype=np.int64)
    elif port.below is not None:
        flat = integers(INPUT_SEED, name, first * size, count * size, port.below)
    else:
        flat = normal(INPUT_SEED, name, first * size, count * size, 1.0)
    return flat.reshape([count, *shape])
