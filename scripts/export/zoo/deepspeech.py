"""Speech by recurrence, as in Deep Speech 2: two convolutions over a spectrogram and bidirectional LSTM layers."""

import torch
from torch import nn

from entry import Entry, Port
from transformer_init import fan_in

BANDS = 80


class DeepSpeech(nn.Module):
    """A spectrogram, [batch, sequence, 80], to logits of letters, [batch, frames, letters]; a frame has two columns."""

    def __init__(self, channels: int, width: int, layers: int, letters: int):
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, channels, (11, 21), (2, 2), (5, 10)),
            nn.Hardtanh(0, 20),
            nn.Conv2d(channels, channels, (11, 11), (1, 2), (5, 5)),
            nn.Hardtanh(0, 20),
        )
        self.recurrent = nn.LSTM(channels * BANDS // 4, width, layers, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, letters)

    def forward(self, spectrogram: torch.Tensor) -> torch.Tensor:
        features = self.convolutions(spectrogram.unsqueeze(1))
        # An explicit initial state, because the library's default would put a device into the trace.
        recurrent = self.recurrent
        begin = features.new_zeros(2 * recurrent.num_layers, features.shape[0], recurrent.hidden_size)
        states, _ = recurrent(features.transpose(1, 2).flatten(2), (begin, begin))
        return self.head(states)


def _init(name: str, shape: list[int]) -> dict:
    if len(shape) == 1:
        return {"normal": 0.1}
    return {"normal": fan_in(shape, 1.5 if name.startswith("convolutions") else 1)}


def _entry(name: str, channels: int, width: int, layers: int, lengths: list[int], source: str) -> Entry:
    def build() -> nn.Module:
        return DeepSpeech(channels, width, layers, 29)

    return Entry(
        name=name,
        family="deepspeech",
        modality="audio",
        source=f"the layout of Deep Speech 2 with LSTM; {source}",
        license="MIT OR Apache-2.0",
        inputs=[Port("spectrogram", "f32", ["batch", "sequence", BANDS])],
        outputs=[Port("logits", "f32", ["batch", "frames", 29])],
        original=build,
        exportable=build,
        init=_init,
        sequence_lengths=lengths,
    )


DEEPSPEECH_SMALL = _entry("deepspeech-small", 4, 48, 2, [40], "2 layers of width 48")
DEEPSPEECH = _entry("deepspeech", 32, 768, 5, [200], "5 layers of width 768")
