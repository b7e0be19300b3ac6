"""A plain loop over Python's torch, with the packaged model's TorchScript archive."""

import archive
import packaged
import torch

asked = packaged.job()
module, ring = archive.load(asked)
with torch.inference_mode():
    times = packaged.time_calls(lambda position: module(*ring[position]), asked)
packaged.answer(f"torch {torch.__version__}", times)
