"""How a module is called: as it is, as Inductor compiles it at its first call, or as AOTInductor compiles it ahead of time."""

import contextlib
import os
import tempfile
import time

import torch
import torch._dynamo
import torch._inductor
import torch._inductor.config

from frames import Refused

MODE = os.environ["TORCH_WORKER_MODE"]
SETTINGS = [setting for setting in os.environ.get("TORCH_WORKER_SETTINGS", "").split(".") if setting]
# Those that torch.compile calls modes.
INDUCTOR = [setting for setting in SETTINGS if setting in ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")]
# Where Dynamo would give up and call a module as it is, the case says so.
torch._dynamo.config.fail_on_recompile_limit_hit = True
# Kernels that Inductor makes are seen by the profiler only if they tell it.
torch._inductor.config.cpp.enable_kernel_profile = "TORCH_WORKER_PROFILED" in os.environ
torch._inductor.config.freezing = "freezing" in SETTINGS


def name():
    return " ".join(["PyTorch", MODE, *SETTINGS])


def mode_of(device):
    if MODE == "eager":
        return Eager()
    if device.type == "cpu":
        check_compiler()
    return Compiled() if MODE == "compile" else Ahead()


def check_compiler():
    from torch._inductor import cpp_builder, exc

    try:
        cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler as why:
        raise Refused("unavailable", "there is no C++ compiler, which Inductor needs: install g++ 10 or later, or name one in the variable CXX") from why


class Eager:
    def made(self, function, cast, tensors_of):
        """What is called in place of a function. `cast` puts a function into autocast; `tensors_of` names the tensors of an answer."""
        return cast(function)

    def named(self, result, tensors_of):
        """The tensors that a call has given, with their names."""
        return tensors_of(result)

    def notes(self):
        return []

    def times(self):
        """Fields of an answer: the milliseconds of tracing and compiling."""
        return {}

    def compilations(self):
        return 0


class Compiled(Eager):
    def made(self, function, cast, tensors_of):
        return cast(torch.compile(function, mode=INDUCTOR[0] if INDUCTOR else None))

    def notes(self):
        counters = torch._dynamo.utils.counters
        counts = {
            "graph": counters["stats"]["unique_graphs"],
            "graph break": sum(counters["graph_break"].values()),
            # The first compilation of a function has the number 0.
            "recompilation": sum(not name.endswith("/0") for name in compilation_ids()),
        }
        return [", ".join(plural(count, what) for what, count in counts.items())]

    def times(self):
        spent = torch._dynamo.utils.compilation_time_metrics
        total = 1e3 * sum(spent.get("_compile.compile_inner", []))
        compiling = 1e3 * sum(spent.get("compile_fx_inner", []))
        return {"trace_ms": max(total - compiling, 0.0), "compile_ms": compiling}

    def compilations(self):
        return len(compilation_ids())


def compilation_ids():
    return [it.compile_id or "/0" for it in torch._dynamo.utils.get_compilation_metrics()]


def plural(count, what):
    return f"{count} {what}{'s' if count != 1 else ''}"


@contextlib.contextmanager
def as_reason(library):
    """The module has run as it is: what it raises in here is what the library cannot do with it."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as why:
        lines = [line.strip() for line in str(why).splitlines() if line.strip()]
        raise Refused("unsupported", f"{library}: {type(why).__name__}: {lines[0] if lines else 'no message'}") from why


class Flat(torch.nn.Module):
    """A module that returns its tensors in a tuple, without their names: torch.export does not know every class of outputs."""

    def __init__(self, module, cast, tensors_of):
        super().__init__()
        self.module, self.called, self.tensors_of = module, cast(module), tensors_of

    def forward(self, *arguments, **named):
        return tuple(value for _, value in self.tensors_of(self.called(*arguments, **named)))


class Ahead(Eager):
    """torch.export and AOTInductor: the first call compiles, for the sizes of its inputs."""

    def __init__(self):
        self.run, self.names, self.spent, self.loading_ms, self.bytes = None, [], {}, 0.0, 0

    def made(self, function, cast, tensors_of):
        if not isinstance(function, torch.nn.Module):
            raise Refused("unsupported", "AOTInductor compiles forward passes of modules, and no phases of generation")
        self.flat = Flat(function, cast, tensors_of)
        return self

    def named(self, result, tensors_of):
        return list(zip(self.names, result))

    def __call__(self, *arguments, **named):
        if self.run is None:
            self.compile(arguments, named)
        return self.run(*arguments, **named)

    def compile(self, arguments, named):
        # By what the module itself returns.
        self.names = [name for name, _ in self.flat.tensors_of(self.flat.called(*arguments, **named))]
        times = [time.perf_counter()]
        folder = tempfile.TemporaryDirectory(prefix="inferbench-aot-")
        # Tensors of the inference mode cannot be exported.
        with torch.inference_mode(False), torch.no_grad():
            arguments = tuple(value.clone() for value in arguments)
            named = {name: value.clone() for name, value in named.items()}
            with as_reason("torch.export"):
                program = torch.export.export(self.flat, arguments, named, strict=False)
            times.append(time.perf_counter())
            options = {"max_autotune": True} if INDUCTOR else {}
            path = os.path.join(folder.name, "module.pt2")
            with as_reason("AOTInductor"):
                torch._inductor.aoti_compile_and_package(program, package_path=path, inductor_configs=options)
            times.append(time.perf_counter())
            self.run = torch._inductor.aoti_load_package(path)
            times.append(time.perf_counter())
        self.bytes = os.path.getsize(path)
        # The library stays loaded without its file.
        folder.cleanup()
        tracing, compiling, self.loading_ms = (1e3 * (end - begin) for begin, end in zip(times, times[1:]))
        self.spent = {"trace_ms": tracing, "compile_ms": compiling}

    def notes(self):
        if self.run is None:
            return []
        return [f"a package of {self.bytes / 1e6:.1f} MB, which is loaded in {self.loading_ms:.0f} ms without compiling"]

    def times(self):
        return self.spent
