"""PyTorch's worker with a bare loop over the same module beside it. Each series of calls that inferbench asks for is made twice: as the worker
times it, and as a loop in Python would; which comes first alternates. So both meet the same process in the same seconds.

The first argument is a folder, where each process writes a file with the times of both in nanoseconds; the second is the worker's mode, `eager` or `compile`.
"""

import copy
import json
import os
import runpy
import sys
from pathlib import Path
from time import perf_counter_ns

ROOT = Path(__file__).resolve().parent.parent.parent
WORKER = ROOT / "src/backend/outside/torch"
sys.path[:0] = [str(WORKER), str(WORKER.parent / "python")]
os.environ |= {"TORCH_WORKER_MODE": sys.argv[2], "TORCH_WORKER_EXPORT": str(ROOT / "scripts/export"), "TORCH_WORKER_DEVICE": "cpu"}

import serving  # noqa: E402

worker_timed, states = serving.timed, {}
found = {"worker_ns": [], "loop_ns": []}


def loop(session, turns):
    times, run = [], session.run
    for turn in turns.tolist():
        binding = max(turn, -1 - turn)
        bound = session.bound[binding]
        if isinstance(bound, list):
            begin = perf_counter_ns()
            run(*bound)
            times.append(perf_counter_ns() - begin)
            continue
        start, tokens = bound["start"], session.entry.tokens
        token, cache = (start["token"], copy.deepcopy(start["cache"])) if turn < 0 else states[binding]
        begin = perf_counter_ns()
        output = run(**start["decode"], **{tokens: token}, past_key_values=cache, use_cache=True)
        token = output.logits[:, -1].argmax(1, keepdim=True)
        times.append(perf_counter_ns() - begin)
        states[binding] = token, cache
    return times


def timed(session, turns):
    series = {"worker_ns": lambda: worker_timed(session, turns)[0][1].tolist(), "loop_ns": lambda: loop(session, turns)}
    is_loop_first = len(found["loop_ns"]) % 2
    answers = {who: series[who]() for who in sorted(series, reverse=not is_loop_first)}
    for who, times in answers.items():
        found[who].append(times)
    Path(sys.argv[1], f"{os.getpid()}.json").write_text(json.dumps(found))
    return [("times", serving.np.array(answers["worker_ns"]))]


serving.timed = timed
runpy.run_path(str(WORKER / "serve.py"), run_name="__main__")
