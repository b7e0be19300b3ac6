"""`torch.utils.benchmark` with the packaged model's TorchScript archive: `Timer.blocked_autorange`, which times blocks of calls."""

import archive
import packaged
import torch
from torch.utils.benchmark import Timer

asked = packaged.job()
module, ring = archive.load(asked)
with torch.inference_mode():
    for index in range(asked.warmup):
        module(*ring[index % packaged.RING])
    names = {"module": module, "inputs": ring[0]}
    timer = Timer("module(*inputs)", globals=names, num_threads=asked.threads)
    measured = timer.blocked_autorange(min_run_time=asked.seconds)
packaged.answer(f"torch {torch.__version__}", [seconds * 1e9 for seconds in measured.times])
