"""Answers the requests of inferbench until there are no more."""

import gc
import os
import sys
import time
import traceback

import numpy as np
import torch

from frames import Refused, read_frame, write_frame
from sessions import open_session

PROTOCOL = 1
MODE, KIND = os.environ["TORCH_WORKER_MODE"], os.environ["TORCH_WORKER_DEVICE"]


def describe():
    return {
        "protocol": PROTOCOL,
        "name": "torch",
        "version": torch.__version__,
        "devices": [{"device": KIND, **described()}],
        "dtypes": ["f32", "f16", "bf16"],
        "one_shape": MODE != "eager",
    }


def described():
    """The kind of device that this process was started for."""
    try:
        found = torch.device(KIND)
        x = torch.tensor([1.0, -2.0, 3.0, -4.0], device=found)
        computed = (x + torch.relu(x)).tolist()
    except (RuntimeError, AssertionError, NotImplementedError) as why:
        return {"missing": f"PyTorch {torch.__version__} here has no {KIND}: {str(why).splitlines()[0]}"}
    if computed != [2, -2, 6, -4]:
        return {"missing": f"{KIND} computes {computed} for x + relu(x) of [1, -2, 3, -4]"}
    detail = f"PyTorch {torch.__version__}, {MODE}"
    return {"detail": detail if KIND == "cpu" else f"{detail}; not verified on such a device"}


def timed(session, turns):
    clock, call, times = time.perf_counter_ns, session.call, np.empty(len(turns), np.int64)
    for place, turn in enumerate(turns.tolist()):
        if turn < 0:
            turn = -1 - turn
            session.rewind(turn)
        begin = clock()
        call(turn)
        times[place] = clock() - begin
    return [("times", times)]


def answer(session, request, tensors):
    """The session from now on, and the fields and tensors of the answer."""
    verb = request["verb"]
    if verb == "describe":
        return session, describe(), []
    if verb == "load":
        torch.set_num_threads(request["threads"])
        session = open_session({**request, "mode": MODE})
        gc.collect()
        gc.freeze()
        fields = {
            "device": request["device"],
            "dtype": request["dtype"],
            "threads": torch.get_num_threads() if session.device.type == "cpu" else None,
            "provider": f"PyTorch {MODE}",
            "files": [request["weights"]],
        }
        return session, {**fields, **session.progress()}, []
    if verb == "clock":
        return session, {"ns": time.perf_counter_ns()}, []
    if session is None:
        raise Refused("failed", f"{verb!r} before `load`")
    if verb == "bind":
        session.bind(request["binding"], tensors)
        results = []
    elif verb == "run":
        return session, {}, timed(session, tensors["turns"])
    elif verb == "call":
        return session, *session.call_from_host(request["binding"], tensors, request["before"])
    elif verb == "outputs":
        results = session.outputs(request["binding"])
    elif verb == "follow":
        results = session.follow(tensors, request["tokens"])
    else:
        raise Refused("unsupported", f"it does not know the verb {verb!r}")
    return session, session.progress(), results


def failure_of(why):
    if isinstance(why, Refused):
        return why.status, str(why)
    text = str(why).splitlines()[0] if str(why) else type(why).__name__
    if isinstance(why, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in text:
        return "out-of-memory", text
    if isinstance(why, NotImplementedError):
        return "unsupported", text
    traceback.print_exception(why)
    return "failed", f"{type(why).__name__}: {text}"


def main():
    session = None
    torch.set_num_interop_threads(1)
    with torch.inference_mode():
        while frame := read_frame():
            request, tensors = frame
            if request["verb"] == "end":
                return
            try:
                session, fields, results = answer(session, request, tensors)
                write_frame(fields, results)
            except Exception as why:
                status, message = failure_of(why)
                write_frame({"error": {"status": status, "message": message}}, [])


main()
sys.exit(0)
