"""How a module is called: as it is, compiled by Inductor at its first call, or ahead of time by AOTInductor."""

import contextlib
import os
import shutil
import sys
import tempfile
import time

import torch

import files
from frames import Refused

# The content of /tmp before a package is unpacked there.
BEFORE = set(os.listdir("/tmp")) if os.path.isdir("/tmp") else set()
MODE = os.environ["TORCH_WORKER_MODE"]
SETTINGS = [setting for setting in os.environ.get("TORCH_WORKER_SETTINGS", "").split(".") if setting]
# The settings that torch.compile calls modes.
INDUCTOR = [setting for setting in SETTINGS if setting in ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")]
if MODE != "eager":
    # These imports take seconds.
    import torch._dynamo
    import torch._inductor
    import torch._inductor.config

    # Instead of giving up and calling a module uncompiled, Dynamo raises an error. PyTorch 2.6 has another name for
    # this; older ones lack it.
    LIMITS = [name for name in ("fail_on_recompile_limit_hit", "fail_on_cache_limit_hit") if hasattr(torch._dynamo.config, name)]
    for limit in LIMITS:
        setattr(torch._dynamo.config, limit, True)
    # Dynamo would remember only the last 64 compilations, which are counted here.
    torch._dynamo.utils.set_compilation_metrics_limit(1 << 20)
    # The profiler sees Inductor's kernels only if they report to it.
    torch._inductor.config.cpp.enable_kernel_profile = "TORCH_WORKER_PROFILED" in os.environ
    torch._inductor.config.freezing = "freezing" in SETTINGS


def name():
    return " ".join(["PyTorch", MODE, *SETTINGS])


def mode_of(device):
    if device.type != "cuda" and (same := {"reduce-overhead": "default", "max-autotune-no-cudagraphs": "max-autotune"}.get("".join(INDUCTOR))):
        raise Refused("unsupported", f"{INDUCTOR[0]} differs from {same} by CUDA graphs only, and {device.type} has none")
    if MODE == "eager":
        return Eager()
    if MODE == "compile" and not LIMITS:
        raise Refused("unavailable", f"PyTorch {torch.__version__} does not say when torch.compile gives up: torch-compile needs 2.6 or later")
    if MODE == "aot" and not hasattr(torch._inductor, "aoti_compile_and_package"):
        raise Refused("unavailable", f"PyTorch {torch.__version__} makes no packages of AOTInductor: torch-aot needs 2.6 or later")
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
        """What is called instead of a function. `cast` puts a function into autocast; `tensors_of` names the tensors of
        a result."""
        return cast(function)

    def named(self, result, tensors_of):
        """The tensors of a call's result, with their names."""
        return tensors_of(result)

    def notes(self):
        return []

    def times(self):
        """Fields of an answer: the milliseconds of tracing and compiling."""
        return {}

    def preparing_ms(self):
        """The milliseconds of all calls so far that went into tracing, compiling and loading."""
        return sum(self.times().values())

    def compilations(self):
        return 0

    def products(self):
        """The types of the products in the graphs that were compiled last."""
        return [kind for kinds in GRAPHS.values() for kind in kinds]

    def check(self):
        """Refuses, after a call, a module that was not compiled."""


# The types of products in the last graph of each function that Inductor has compiled.
GRAPHS = {}
# The operators of products, by their names in graphs and profiles.
PRODUCTS = (
    *("mm", "addmm", "bmm", "baddbmm", "_int_mm", "convolution", "_convolution_pointwise", "_linear_pointwise", "qlinear_pointwise", "_mkl_linear"),
    *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"),
)
NAMES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int8: "i8", torch.uint8: "i8"}


def note_products(graph):
    """Notes the dtypes of a graph's products. Inductor calls this with each graph before it generates kernels."""
    kinds = []
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.name.split("::")[-1] in PRODUCTS:
            tensors = [given.meta["val"] for given in node.all_input_nodes if isinstance(given.meta.get("val"), torch.Tensor)]
            kinds += [NAMES[tensor.dtype] for tensor in tensors[:1] if tensor.dtype in NAMES]
    identity = torch._guards.CompileContext.current_compile_id()
    GRAPHS[getattr(identity, "frame_id", None)] = kinds


# With this pass, Inductor does not use its cache.
if MODE != "eager" and "cache" not in SETTINGS:
    torch._inductor.config.post_grad_custom_post_pass = note_products


def autotuned():
    """A note on how many operators were autotuned, if the settings ask for this."""
    count = torch._dynamo.utils.counters["inductor"]["select_algorithm_autotune"]
    return [f"{plural(count, 'operator')} autotuned"] if "max-autotune" in "".join(INDUCTOR) else []


def from_cache():
    """A note on how many graphs were read from an earlier compilation, if the settings allow this."""
    count = torch._dynamo.utils.counters["inductor"]["fxgraph_cache_hit"]
    return [f"{plural(count, 'graph')} read from an earlier compilation"] if "cache" in SETTINGS else []


def cuda_graphs():
    skips = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
    return [f"{plural(skips, 'graph')} without CUDA graphs"] if skips and INDUCTOR else []


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
        # For example, of a function with a graph break in a loop, Dynamo compiles only the functions that it calls.
        left = counters["frames"]["total"] - counters["frames"]["ok"]
        said = [f"{plural(left, 'function')} that Dynamo has given up and calls uncompiled"] if left else []
        return [", ".join(plural(count, what) for what, count in counts.items()), *said, *from_cache(), *autotuned(), *cuda_graphs()]

    def times(self):
        spent = torch._dynamo.utils.compilation_time_metrics
        total = 1e3 * sum(spent.get("_compile.compile_inner", []))
        compiling = 1e3 * sum(spent.get("compile_fx_inner", []))
        return {"trace_ms": max(total - compiling, 0.0), "compile_ms": compiling}

    def compilations(self):
        return len(compilation_ids())

    def check(self):
        if not torch._dynamo.utils.counters["stats"]["unique_graphs"]:
            raise Refused("unsupported", "torch.compile has compiled no graph of this module, and calls it as it is: it would be measured as `torch`")


def compilation_ids():
    return [it.compile_id or "/0" for it in torch._dynamo.utils.get_compilation_metrics()]


def end_compilers():
    """Ends the processes in which Inductor compiles. They would count as the case's memory and take processor time from
    its calls. The next compilation starts new ones."""
    if (pools := sys.modules.get("torch._inductor.async_compile")) is not None:
        pools.shutdown_compile_workers()


def plural(count, what):
    return f"{count} {what}{'s' if count != 1 else ''}"


@contextlib.contextmanager
def as_reason(library):
    """Turns errors into failures of the library, because the module itself has already run."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as why:
        lines = [line.strip() for line in str(why).splitlines() if line.strip()]
        place = f"{place}: " if (place := files.place_of(why)) else ""
        raise Refused("unsupported", f"{library}: {place}{type(why).__name__}: {lines[0] if lines else 'no message'}") from why


class Flat(torch.nn.Module):
    """A module that returns its tensors in a tuple: torch.export does not support every class of outputs."""

    def __init__(self, module, cast, tensors_of):
        super().__init__()
        self.module, self.called, self.tensors_of = module, cast(module), tensors_of

    def forward(self, *arguments, **named):
        return tuple(value for _, value in self.tensors_of(self.called(*arguments, **named)))


def remove_unpacked():
    """Removes unpacked packages after a first call has loaded them. PyTorch always unpacks into /tmp, and may leave the
    files there."""
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for path in {line.split(maxsplit=5)[-1].strip() for line in maps}:
            folder, is_of_package, _ = path.partition("/data/aotinductor/")
            place = folder.split("/")
            # A folder that was there before belongs to another process.
            if is_of_package and place[:2] == ["", "tmp"] and len(place) > 2 and place[2] not in BEFORE:
                shutil.rmtree(f"/tmp/{place[2]}", ignore_errors=True)


class Ahead(Eager):
    """Compiles with torch.export and AOTInductor in the first call, for the sizes of its inputs."""

    def __init__(self):
        self.run, self.names, self.spent, self.loading_ms, self.bytes = None, [], {}, 0.0, 0
        self.preparing = 0.0

    def made(self, function, cast, tensors_of):
        if not isinstance(function, torch.nn.Module):
            raise Refused("unsupported", "AOTInductor compiles forward passes of modules, not phases of generation")
        self.flat = Flat(function, cast, tensors_of)
        return self

    def named(self, result, tensors_of):
        return list(zip(self.names, result))

    def __call__(self, *arguments, **named):
        if self.run is None:
            self.compile(arguments, named)
            result = self.run(*arguments, **named)
            remove_unpacked()
            return result
        return self.run(*arguments, **named)

    def preparing_ms(self):
        return self.preparing

    def compile(self, arguments, named):
        begin = time.perf_counter()
        # The package returns tensors without the names of the module's outputs.
        self.names = [name for name, _ in self.flat.tensors_of(self.flat.called(*arguments, **named))]
        times = [time.perf_counter()]
        folder = tempfile.TemporaryDirectory(prefix="inferbench-aot-")
        # Tensors of inference mode cannot be exported.
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
        # The library stays loaded after its file is deleted.
        folder.cleanup()
        tracing, compiling, self.loading_ms = (1e3 * (end - begin) for begin, end in zip(times, times[1:]))
        self.spent = {"trace_ms": tracing, "compile_ms": compiling}
        self.preparing = 1e3 * (time.perf_counter() - begin)

    def notes(self):
        if self.run is None:
            return []
        return [f"a package of {self.bytes / 1e6:.1f} MB, which is loaded in {self.loading_ms:.0f} ms without compiling", *from_cache(), *autotuned()]

    def times(self):
        return self.spent
