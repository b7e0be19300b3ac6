"""Answers inferbench's requests until there are no more. A `Worker` defines how models are loaded, and what its
library's errors mean."""

import gc
import os
import re
import sys
import time
import traceback

import numpy as np

from frames import Refused, read_frame, write_frame

PROTOCOL = 1


class Worker:
    """What differs between libraries."""

    def describe(self):
        """Name, version and devices."""
        raise NotImplementedError

    def load(self, request):
        """A session, and the fields of the answer to `load`."""
        raise NotImplementedError

    def progress(self, session):
        """Fields that change while a session works."""
        return {}

    def profiler(self, session):
        """An object that records the calls of a session. Its method `end` stops this and returns the calls."""
        raise Refused("unsupported", "this worker has no profiler")

    def other(self, request):
        """The fields of the answer to a verb that needs no session."""
        verb = request["verb"]
        raise Refused("unsupported", f"it does not know the verb {verb!r}")

    def failure(self, why, text):
        """The status and message for an error of the library, whose reason is `text`; None for an unknown error."""
        return None


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


def answer(worker, session, request, tensors):
    """The session from now on, and the fields and tensors of the answer."""
    verb = request["verb"]
    if verb == "describe":
        return session, {"protocol": PROTOCOL, **worker.describe()}, []
    if verb == "load":
        session, fields = worker.load(request)
        # The objects so far stay alive, so the garbage collector need not examine them again.
        gc.collect()
        gc.freeze()
        return session, {**fields, **worker.progress(session)}, []
    if verb == "clock":
        return session, {"ns": time.perf_counter_ns()}, []
    if verb not in ("bind", "run", "call", "profile", "outputs", "follow"):
        return session, worker.other(request), []
    if session is None:
        raise Refused("failed", f"{verb!r} before `load`")
    results = []
    if verb == "bind":
        session.bind(request["binding"], tensors)
    elif verb == "run":
        return session, {}, timed(session, tensors["turns"])
    elif verb == "call":
        return session, *session.call_from_host(request["binding"], tensors, request["before"])
    elif verb == "profile" and request["is_on"]:
        session.profiler = worker.profiler(session)
    elif verb == "profile":
        return session, {"calls": session.profiler.end()}, []
    elif verb == "outputs":
        results = session.outputs(request["binding"])
    elif verb == "follow":
        results = session.follow(tensors, request["tokens"], request["ends"])
    return session, worker.progress(session), results


def failure_of(worker, why):
    if isinstance(why, Refused):
        return why.status, str(why)
    text = reason(why)
    if found := worker.failure(why, text):
        return found
    if isinstance(why, MemoryError):
        return "out-of-memory", text
    if isinstance(why, NotImplementedError):
        return "unsupported", text
    # Python before 3.10 needs all three arguments.
    traceback.print_exception(type(why), why, why.__traceback__)
    return "failed", f"{type(why).__name__}: {text}"


def reason(why):
    lines = [line for line in str(why).splitlines() if line.strip()] or [type(why).__name__]
    if "failed in the TorchScript interpreter" not in lines[0]:
        return lines[0]
    # TorchScript's interpreter says the reason below its traceback.
    reasons = [line for line in lines if re.match(r"[\w.]*Error: +\S", line)]
    return reasons[-1].split(": ", 1)[1] if reasons else lines[-1]


def serve(worker):
    # A model's code that reads the standard input would take requests.
    sys.stdin = open(os.devnull)
    session = None
    while frame := read_frame():
        request, tensors = frame
        if request["verb"] == "end":
            return
        try:
            session, fields, results = answer(worker, session, request, tensors)
            write_frame(fields, results)
        except Exception as why:
            status, message = failure_of(worker, why)
            write_frame({"error": {"status": status, "message": message}}, [])
