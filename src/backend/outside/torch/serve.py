"""The worker for PyTorch: its devices, how it loads models, and what its errors mean."""

import os
import sys

import torch

import files
from modes import MODE, SETTINGS, name
from profiles import Profiler
from serving import Worker, serve
from sessions import open_session

KIND = os.environ["TORCH_WORKER_DEVICE"]


def full_precision():
    """Computes f32 in full precision. A user's file may have allowed less, and Inductor's kernels ignore NVIDIA's
    variable."""
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    if hasattr(torch.backends.cudnn, "conv"):
        own = torch.backends
        for it in (own, own.cudnn, own.cudnn.conv, own.cudnn.rnn, own.mkldnn, own.mkldnn.conv, own.mkldnn.rnn):
            it.fp32_precision = "ieee"


class Torch(Worker):
    def describe(self):
        return {
            "name": "torch",
            "version": torch.__version__,
            "devices": [{"device": KIND, **described()}],
        }

    def load(self, request):
        torch.set_num_threads(request["threads"])
        session = open_session(request)
        # A user's file may have set another number.
        torch.set_num_threads(request["threads"])
        if request["dtype"] == "f32":
            full_precision()
        return session, {
            "device": request["device"],
            "threads": torch.get_num_threads() if session.device.type == "cpu" else None,
            "provider": name(),
            "files": session.files,
            # AOTInductor compiles for the sizes of the first batch, and does not check other sizes.
            "has_fixed_sizes": MODE == "aot",
        }

    def progress(self, session):
        return session.progress()

    def profiler(self, session):
        return Profiler(session)

    def other(self, request):
        return {"inputs": files.inputs(request["file"])} if request["verb"] == "inputs" else super().other(request)

    def failure(self, why, text):
        # Only CUDA has a class for this error, and not for all cases.
        if isinstance(why, torch.cuda.OutOfMemoryError) or any(words in text.lower() for words in ("out of memory", "can't allocate memory")):
            return "out-of-memory", text
        place = f"{place}: " if (place := files.place_of(why)) else ""
        # An eager module may use Dynamo, too.
        dynamo = sys.modules.get("torch._dynamo")
        # Not every release has this class.
        if type(why).__name__ == "FailOnRecompileLimitHit":
            most = getattr(dynamo.config, "recompile_limit", None) or dynamo.config.cache_size_limit
            return "unsupported", f"torch.compile: {place}a function would be compiled more than {most} times, and called as it is from then on ({text})"
        if dynamo and isinstance(why, dynamo.exc.TorchDynamoException):
            return "unsupported", f"torch.compile: {place}{text}{said_by_compiler(why)}"
        if place:
            return "failed", f"{place}{type(why).__name__}: {text}"
        # transformers raises this error if PyTorch is too old.
        return ("unavailable", text) if isinstance(why, ImportError) else None


def said_by_compiler(why):
    """The first error of the C++ compiler, which Inductor shows below its command."""
    line = next((line for line in str(why).splitlines() if "error: " in line), None)
    return "" if line is None else f": {line.split('error: ', 1)[1].strip()[:200]}"


def described():
    """Details of the kind of device that this process was started for, or why it is missing."""
    try:
        found = torch.device(KIND)
        x = torch.tensor([1.0, -2.0, 3.0, -4.0], device=found)
        computed = (x + torch.relu(x)).tolist()
    except (RuntimeError, AssertionError, NotImplementedError) as why:
        return {"missing": f"PyTorch {torch.__version__} here has no {KIND}: {str(why).splitlines()[0]}"}
    if computed != [2, -2, 6, -4]:
        return {"missing": f"{KIND} computes {computed} for x + relu(x) of [1, -2, 3, -4]"}
    detail = " ".join([f"PyTorch {torch.__version__},", MODE, *SETTINGS])
    is_verified = KIND == "cpu" or (KIND == "cuda" and MODE != "aot")
    return {"detail": detail if is_verified else f"{detail}; not verified on such a device"}


torch.set_num_interop_threads(1)
# PyTorch raises an error if a user's file sets the number again.
torch.set_num_interop_threads = lambda count: None
with torch.inference_mode():
    serve(Torch())
sys.exit(0)
