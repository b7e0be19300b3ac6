"""A program outside that keeps what inferbench asks it to load and to bind in the file of its argument, and then refuses to run.

Its Python is JAX's. What it keeps is the input of `jax_loop.py`.
"""

import pickle
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "src/backend/outside/python"))

import frames  # noqa: E402

load, bound = None, []
while frame := frames.read_frame():
    request, tensors = frame
    verb, answer = request["verb"], {}
    if verb == "describe":
        answer = {"protocol": 1, "name": "recorder", "version": "1", "one_shape": True}
    elif verb == "load":
        load, answer = request, {"device": "cpu"}
    elif verb == "clock":
        answer = {"ns": 0}
    elif verb == "bind":
        bound.append(tensors)
    else:
        Path(sys.argv[1]).write_bytes(pickle.dumps((load, bound)))
        answer = {"error": {"status": "unsupported", "message": "this program only keeps what it is asked"}}
    frames.write_frame(answer, [])
