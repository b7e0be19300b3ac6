"""A bare loop over the jitted function of a case that `recorded_case.py` has kept."""

import json
import pickle
import sys
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "src/backend/outside" / part) for part in ("jax", "python")]

import frames  # noqa: E402
import jax  # noqa: E402
import sessions  # noqa: E402

asked = SimpleNamespace(**json.loads(sys.argv[1]))
request, ring = pickle.loads(Path(asked.case).read_bytes())
# The functions of the session, as a user would jit them.
sessions.Compiler.compile = lambda self, function, arguments, donated=(): jax.jit(function, donate_argnums=donated)
session = sessions.open_session({**request, "device": "cpu"})
for binding, tensors in enumerate(ring):
    session.bind(binding, tensors)
times = []


def forward(binding):
    function, weights, inputs = session.bound[binding]
    begin = perf_counter_ns()
    jax.block_until_ready(function(weights, inputs))
    times.append(perf_counter_ns() - begin)


def decode(binding):
    start, fixed, *_ = session.bound[binding]["start"]
    function, weights = session.bound[binding]["executables"][0], session.weights
    tokens, position = start["tokens"], start["position"]
    caches = jax.block_until_ready(jax.tree.map(lambda value: value.copy(), start["caches"]))
    for _ in range(session.steps):
        begin = perf_counter_ns()
        logits, tokens, position, caches = function(weights, tokens, position, caches, fixed)
        jax.block_until_ready((logits, tokens, caches))
        times.append(perf_counter_ns() - begin)


row, length = (decode, session.steps) if request["phase"] == "decode" else (forward, 1)
place = 0
while len(times) < asked.warmup + asked.calls:
    row(place % len(ring))
    place += 1
# The frames' module has turned the standard output into an error output.
frames.OUTPUT.write(json.dumps({"library": f"jax {jax.__version__}", "times_ns": times[asked.warmup :]}).encode())
frames.OUTPUT.flush()
