"""The worker for JAX: its devices, how it loads models, and what its errors mean."""

import os
import sys

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

from profiles import Profiler
from serving import Worker, serve
from sessions import open_session


class Jax(Worker):
    def describe(self):
        kind = os.environ["JAX_PLATFORMS"]
        return {
            "name": "jax",
            "version": jax.__version__,
            "devices": [{"device": kind, **described(kind)}],
        }

    def load(self, request):
        session = open_session(request)
        kind = {"gpu": "cuda"}.get(session.device.platform, session.device.platform)
        return session, {
            "device": request["device"] if request["device"].partition(":")[0] == kind else kind,
            "threads": request["threads"] if kind == "cpu" else None,
            "provider": f"XLA {kind}",
            "note": session.note,
            "files": [part["onnx"] for part in request["parts"]],
        }

    def progress(self, session):
        compiler = session.compiler
        return {"trace_ms": compiler.trace_ms, "compile_ms": compiler.compile_ms, "computed_dtype": compiler.computed_dtype, "first_ms": session.first_ms}

    def profiler(self, session):
        return Profiler(session)

    def failure(self, why, text):
        if "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower():
            return "out-of-memory", text
        return ("unsupported", text) if "UNIMPLEMENTED" in text else None


def described(kind):
    """Details of the only kind of device that this process can use, or why it is missing."""
    try:
        found = jax.devices()[0]
        computed = jax.jit(lambda x: x + jnp.maximum(x, 0))(jax.device_put(np.float32([1, -2, 3, -4]), found))
    except (RuntimeError, AssertionError) as why:
        # For an unknown platform, JAX only reports a failed assertion.
        unknown = f"jaxlib {jaxlib.__version__} here knows no {kind}; set INFERBENCH_JAX_PYTHON to a Python whose JAX does"
        return {"missing": str(why).splitlines()[0] if str(why) else unknown}
    if computed.tolist() != [2, -2, 6, -4]:
        return {"missing": f"{kind} computes {computed.tolist()} for x + relu(x) of [1, -2, 3, -4]"}
    detail = found.device_kind if kind in ("cpu", "cuda") else f"{found.device_kind}; not verified on such a device"
    return {"detail": f"XLA of jaxlib {jaxlib.__version__} on {detail}"}


serve(Jax())
sys.exit(0)
