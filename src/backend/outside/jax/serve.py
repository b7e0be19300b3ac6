"""Answers the requests of inferbench until there are no more."""

import gc
import os
import sys
import time
import traceback

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

from frames import Refused, read_frame, write_frame
from profiles import Profiler
from sessions import open_session

PROTOCOL = 1


def describe():
    kind = os.environ["JAX_PLATFORMS"]
    return {
        "protocol": PROTOCOL,
        "name": "jax",
        "version": jax.__version__,
        "devices": [{"device": kind, **described(kind)}],
        "dtypes": ["f32", "bf16"],
        "one_shape": True,
    }


def described(kind):
    """The only kind of device that this process can use."""
    try:
        found = jax.devices()[0]
        computed = jax.jit(lambda x: x + jnp.maximum(x, 0))(jax.device_put(np.float32([1, -2, 3, -4]), found))
    except (RuntimeError, AssertionError) as why:
        # Of a platform that it does not know, JAX says no more than that an assertion failed.
        unknown = f"jaxlib {jaxlib.__version__} here knows no {kind}; set INFERBENCH_JAX_PYTHON to a Python whose JAX does"
        return {"missing": str(why).splitlines()[0] if str(why) else unknown}
    if computed.tolist() != [2, -2, 6, -4]:
        return {"missing": f"{kind} computes {computed.tolist()} for x + relu(x) of [1, -2, 3, -4]"}
    detail = found.device_kind if kind == "cpu" else f"{found.device_kind}; not verified on such a device"
    return {"detail": f"XLA of jaxlib {jaxlib.__version__} on {detail}"}


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


def progress(session):
    return {"trace_ms": session.compiler.trace_ms, "compile_ms": session.compiler.compile_ms}


def answer(session, request, tensors):
    """The session from now on, and the fields and tensors of the answer."""
    verb = request["verb"]
    if verb == "describe":
        return session, describe(), []
    if verb == "load":
        session = open_session(request)
        # What was made until now stays, and need not be looked through again.
        gc.collect()
        gc.freeze()
        kind = {"gpu": "cuda"}.get(session.device.platform, session.device.platform)
        fields = {
            "device": request["device"] if request["device"].partition(":")[0] == kind else kind,
            "dtype": request["dtype"],
            "threads": request["threads"] if kind == "cpu" else None,
            "provider": f"XLA {kind}",
            "note": session.note,
            "files": [part["onnx"] for part in request["parts"]],
        }
        return session, {**fields, **progress(session)}, []
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
    elif verb == "profile" and request["is_on"]:
        session.profiler = Profiler(session)
        results = []
    elif verb == "profile":
        return session, {"calls": session.profiler.end()}, []
    elif verb == "outputs":
        results = session.outputs(request["binding"])
    elif verb == "follow":
        results = session.follow(tensors, request["tokens"])
    else:
        raise Refused("unsupported", f"it does not know the verb {verb!r}")
    return session, progress(session), results


def failure_of(why):
    if isinstance(why, Refused):
        return why.status, str(why)
    text = str(why).splitlines()[0] if str(why) else type(why).__name__
    if isinstance(why, MemoryError) or "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower():
        return "out-of-memory", text
    if isinstance(why, NotImplementedError) or "UNIMPLEMENTED" in text:
        return "unsupported", text
    traceback.print_exception(why)
    return "failed", f"{type(why).__name__}: {text}"


def main():
    session = None
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
