"""The files and seeded inputs of a packaged model that `inferbench prepare` has made, and a loop that times its calls.

Each program in this folder takes one job as JSON in its first argument, measures it with one library, and prints one JSON object.
"""

import json
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "scripts/export"))

import seeded  # noqa: E402

POOL = 8
RING = 4
LEAST_CALLS = 10


def prepared(model):
    """The folder that `inferbench prepare` has written."""
    return ROOT / ".prepared" / model


def job():
    """What the first argument asks for: model, batch_size, sequence, threads, warmup, and seconds or calls."""
    return SimpleNamespace(**json.loads(sys.argv[1]))


def batches(asked):
    """The batches of the ring, each a dictionary from an input's name to its array: the same ones that inferbench uses."""
    description = tomllib.loads((ROOT / "models/zoo" / asked.model / "model.toml").read_text())
    ring = []
    for position in range(RING):
        rows = [(position * (asked.batch_size | 1) + row) % POOL for row in range(asked.batch_size)]
        inputs = {}
        for port in description["inputs"]:
            port = SimpleNamespace(**{"below": None, "constant": None, **port})
            inputs[port.name] = seeded.samples(port, 0, POOL, asked.sequence)[rows]
        ring.append(inputs)
    return ring


def time_calls(call, asked):
    """Nanoseconds of each call of `call(position in the ring)`: `calls` of them, or as many as fit into `seconds`."""
    for index in range(asked.warmup):
        call(index % RING)
    times = []
    end = time.perf_counter() + (asked.seconds or 0.0)
    while len(times) < asked.calls if asked.calls else (len(times) < LEAST_CALLS or time.perf_counter() < end):
        position = len(times) % RING
        start = time.perf_counter_ns()
        call(position)
        times.append(time.perf_counter_ns() - start)
    return times


def answer(library, times_ns):
    print(json.dumps({"library": library, "times_ns": times_ns}))
