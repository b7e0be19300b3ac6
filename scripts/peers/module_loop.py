"""A bare loop over the module of a case that `recorded_case.py` has kept, as PyTorch's users call it: eager, or compiled."""

import copy
import json
import os
import pickle
import sys
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "src/backend/outside" / part) for part in ("torch", "python")]
asked = SimpleNamespace(**json.loads(sys.argv[1]))
# The session only makes the module and its inputs here.
os.environ |= {"TORCH_WORKER_MODE": "eager", "TORCH_WORKER_EXPORT": str(ROOT / "scripts/export")}

import torch  # noqa: E402

torch.set_num_threads(asked.threads)
torch.set_num_interop_threads(1)

import frames  # noqa: E402
import sessions  # noqa: E402

request, ring = pickle.loads(Path(asked.case).read_bytes())
times = []


def forward(binding):
    inputs = session.bound[binding]
    begin = perf_counter_ns()
    run(*inputs)
    times.append(perf_counter_ns() - begin)


def decode(binding):
    start = session.bound[binding]["start"]
    token, cache, more = start["token"], copy.deepcopy(start["cache"]), start["decode"]
    for _ in range(session.plan["steps"]):
        begin = perf_counter_ns()
        output = run(**more, **{session.entry.tokens: token}, past_key_values=cache, use_cache=True)
        token = output.logits[:, -1].argmax(1, keepdim=True)
        times.append(perf_counter_ns() - begin)


with torch.inference_mode():
    session = sessions.open_session({**request, "device": "cpu"})
    for binding, tensors in enumerate(ring):
        session.bind(binding, tensors)
    row, run = (decode, session.model.forward) if request["phase"] == "decode" else (forward, session.module)
    if asked.is_compiled:
        run = torch.compile(run)
    row(0)
    times.clear()
    place = 0
    while len(times) < asked.warmup + asked.calls:
        row(place % len(ring))
        place += 1
# The frames' module has turned the standard output into an error output.
frames.OUTPUT.write(json.dumps({"library": f"torch {torch.__version__}", "times_ns": times[asked.warmup :]}).encode())
frames.OUTPUT.flush()
