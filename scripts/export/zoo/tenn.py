"""tenn_eeg: a small temporal network for multichannel EEG, this project's own design.

Input: [batch, 1, 64, 256], one plane of 64 electrodes by 256 time steps (one second at 256 Hz). Output: 4 classes.

    stage                 operation                                                        shape
    spatial filter        Conv2d(1, 48, (64, 1)), batch norm: 48 virtual electrodes   [batch, 48, 1, 256]
    squeeze               drop the electrode axis                                     [batch, 48, 256]
    6 temporal blocks     x + BN(pointwise(ReLU(BN(depthwise(x)))))                   [batch, 48, 256]
                          depthwise Conv1d of 7 taps, dilation 1, 2, 4, 8, 16, 32
    pooling               mean over time                                              [batch, 48]
    head                  Linear(48, 4)                                               [batch, 4]

The dilations cover 1 + 6 * 63 = 379 steps, the whole window. Convolutions are centred, not causal: a window is
classified once it is complete, and Conv has symmetric padding in every runtime. The residual sum is not rectified, so
its mean over time keeps both signs.
"""

import math

import torch
from torch import nn

from entry import Entry, Port

ELECTRODES, STEPS, CHANNELS, TAPS, CLASSES = 64, 256, 48, 7, 4
DILATIONS = (1, 2, 4, 8, 16, 32)


class TemporalBlock(nn.Module):
    """[batch, 48, 256] to the same: each channel filtered in time, then channels mixed, added to the input."""

    def __init__(self, dilation: int):
        super().__init__()
        self.depthwise = nn.Conv1d(
            CHANNELS, CHANNELS, TAPS, padding=TAPS // 2 * dilation, dilation=dilation, groups=CHANNELS, bias=False
        )
        self.bn1 = nn.BatchNorm1d(CHANNELS)
        self.pointwise = nn.Conv1d(CHANNELS, CHANNELS, 1, bias=False)
        self.bn2 = nn.BatchNorm1d(CHANNELS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.bn1(self.depthwise(x)))
        return x + self.bn2(self.pointwise(y))


class TennEeg(nn.Module):
    def __init__(self):
        super().__init__()
        self.spatial = nn.Conv2d(1, CHANNELS, (ELECTRODES, 1), bias=False)
        self.bn = nn.BatchNorm2d(CHANNELS)
        self.blocks = nn.Sequential(*(TemporalBlock(dilation) for dilation in DILATIONS))
        self.head = nn.Linear(CHANNELS, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, 1, 64, 256] to [batch, 4]."""
        x = self.bn(self.spatial(x)).reshape(-1, CHANNELS, STEPS)
        return self.head(self.blocks(x).mean(2))


def _init(name: str, shape: list[int]) -> dict:
    if name == "spatial.weight":
        return {"normal": round(math.sqrt(1 / math.prod(shape[1:])), 6)}
    if name == "head.weight":
        # The mean over 256 steps leaves little variation between windows; a larger head restores it.
        return {"normal": 1.0}
    if len(shape) >= 3:
        return {"normal": round(math.sqrt(2 / math.prod(shape[1:])), 6)}
    if name.endswith("bn2.weight"):
        return {"uniform": [0.3, 0.6]}
    if name.endswith("running_var"):
        return {"uniform": [0.5, 1.5]}
    if name.endswith("running_mean") or name.endswith("bias"):
        return {"normal": 0.1}
    return {"uniform": [0.8, 1.2]}


TENN_EEG = Entry(
    name="tenn_eeg",
    family="tenn",
    modality="time-series",
    source="inferbench, scripts/export/zoo/tenn.py",
    license="MIT OR Apache-2.0",
    inputs=[Port("input", "f32", ["batch", 1, ELECTRODES, STEPS])],
    outputs=[Port("logits", "f32", ["batch", CLASSES])],
    original=TennEeg,
    exportable=TennEeg,
    init=_init,
)
