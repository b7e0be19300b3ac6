"""Sessions: a model's module on a device, and the batches that are bound to it."""

import copy
import os
import time

import numpy as np
import torch
import torch._dynamo
import torch._inductor.config

import files
import networks
from frames import Refused

# Modules of other types, which are those of quantised archives, take and give f32.
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
# Where Dynamo would give up and call a module as it is, the case says so.
torch._dynamo.config.fail_on_recompile_limit_hit = True
# Kernels that Inductor makes are seen by the profiler only if they tell it.
torch._inductor.config.cpp.enable_kernel_profile = "TORCH_WORKER_PROFILED" in os.environ


class Session:
    def __init__(self, request):
        kind, _, number = request["device"].partition(":")
        self.device = torch.device(kind, int(number or 0)) if kind != "cpu" else torch.device("cpu")
        self.dtype = DTYPES.get(request["dtype"], torch.float32)
        self.mode = request["mode"]
        self.names = request["outputs"]
        self.files = [request["weights"]] if request.get("weights") else []
        self.bound, self.notes = {}, []

    def placed(self, module):
        # TorchScript's modules have this only for each of their parameters.
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        return module.eval().to(self.device, self.dtype)

    def put(self, array):
        tensor = torch.from_numpy(np.array(array)).to(self.device)
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def compiled(self, function):
        return torch.compile(function) if self.mode == "compile" else function

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type != "cpu":
            getattr(torch, self.device.type).synchronize()

    def note(self):
        parts = [*self.notes]
        if self.mode == "compile":
            counters = torch._dynamo.utils.counters
            # The first compilation of a function has the number 0.
            compilations = [it.compile_id or "/0" for it in torch._dynamo.utils.get_compilation_metrics()]
            counts = {
                "graph": counters["stats"]["unique_graphs"],
                "graph break": sum(counters["graph_break"].values()),
                "recompilation": sum(not name.endswith("/0") for name in compilations),
            }
            parts.append(", ".join(f"{count} {what}{'s' if count != 1 else ''}" for what, count in counts.items()))
        return "; ".join(parts) or None

    def progress(self):
        if self.mode != "compile":
            return {"note": self.note()}
        spent = torch._dynamo.utils.compilation_time_metrics
        total = 1e3 * sum(spent.get("_compile.compile_inner", []))
        compiling = 1e3 * sum(spent.get("compile_fx_inner", []))
        return {"trace_ms": max(total - compiling, 0.0), "compile_ms": compiling, "note": self.note()}

    def rewind(self, binding):
        pass

    def call_from_host(self, binding, tensors, before):
        for _ in range(before):
            self.call(binding)
        times = [time.perf_counter_ns()]
        inputs = self.inputs(tensors)
        self.wait()
        times.append(time.perf_counter_ns())
        outputs = self.computed(inputs)
        self.wait()
        times.append(time.perf_counter_ns())
        outputs = [(name, array(output)) for name, output in outputs]
        times.append(time.perf_counter_ns())
        stages = ("to_device_ns", "compute_ns", "to_host_ns")
        return {stage: end - begin for stage, begin, end in zip(stages, times, times[1:])}, outputs


def array(tensor):
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor).cpu().contiguous().numpy()


def outputs_of(result, name=""):
    """The tensors of what a module returns, with names where they have some: of a tensor, a tuple, a dict or a dataclass."""
    if isinstance(result, torch.Tensor):
        return [(name, result)]
    if hasattr(result, "items"):
        inner = list(result.items())
    elif hasattr(result, "__dataclass_fields__"):
        inner = [(field, getattr(result, field)) for field in result.__dataclass_fields__]
    elif hasattr(result, "_fields"):
        inner = list(zip(result._fields, result))
    elif isinstance(result, (tuple, list)):
        inner = list(enumerate(result)) if name else [("", value) for value in result]
    else:
        return []
    return [pair for key, value in inner for pair in outputs_of(value, f"{name}.{key}" if name else str(key))]


class Forward(Session):
    """A forward pass of a module that takes inputs of these names."""

    def __init__(self, request, taken):
        super().__init__(request)
        self.taken, self.by_name = taken, False

    def of(self, module):
        self.module, self.run = module, self.compiled(module)
        return self

    def root(self):
        """The module whose parts have the names of the model's."""
        return self.module

    def call_module(self, inputs):
        return self.run(**dict(zip(self.taken, inputs))) if self.by_name else self.run(*inputs)

    def inputs(self, tensors):
        missing = [name for name in self.taken if name not in tensors]
        if missing:
            raise Refused("failed", f"the module has an input {missing[0]!r} that the model does not give")
        return [self.put(tensors[name]) for name in self.taken]

    def bind(self, binding, tensors):
        self.bound[binding] = self.inputs(tensors)
        self.call(binding)

    def computed(self, inputs):
        result = self.call_module(inputs)
        found = outputs_of(result)
        if not found:
            raise Refused("failed", f"the module returns no tensor, but {type(result).__name__}")
        given = dict(found)
        if self.names and all(name in given for name in self.names):
            return [(name, given[name]) for name in self.names]
        if self.names:
            return [(name, value) for name, (_, value) in zip(self.names, found)]
        return [(name or f"output_{place}", value) for place, (name, value) in enumerate(found)]

    def call(self, binding):
        result = self.call_module(self.bound[binding])
        self.wait()
        return result

    def outputs(self, binding):
        return [(name, array(value)) for name, value in self.computed(self.bound[binding])]


def packaged(request, entry):
    """The module of a packaged model's library."""
    session = Forward(request, [port.name for port in entry.inputs])
    module = entry.original().eval()
    networks.load_state(module, networks.weights(request))
    module = session.placed(module)
    # A module of transformers is no submodule of the one that has its weights under their published names.
    if hasattr(module, "_call"):
        inner = module._call[1].to(session.device, session.dtype).eval()
        session.root = lambda: inner
    return session.of(module)


def of_file(request, path):
    """The module of a user's file."""
    loaded = files.load(path)
    if isinstance(loaded.module, torch.jit.ScriptModule) and request["mode"] == "compile":
        raise Refused("unsupported", "torch.compile takes Python modules, and a TorchScript archive has none")
    if not loaded.can_change_dtype and request["dtype"] != "f32":
        raise Refused("unsupported", "a `.pt2` computes in the dtype in which it was exported: f32")
    session = Forward(request, [given["name"] for given in request["inputs"]])
    session.by_name, session.files, session.notes = loaded.by_name, loaded.files, loaded.notes
    if loaded.can_change_dtype:
        return session.of(session.placed(loaded.module))
    return session.of(loaded.module.to(session.device))


class Generation(Session):
    """The phases `encoder`, `prefill` and `decode`, with transformers' own cache. Choosing the likeliest token is part of a call."""

    def __init__(self, request, entry):
        super().__init__(request)
        self.entry, self.phase = entry, request["phase"]
        self.plan = request.get("generation")
        networks_of_file = networks.weights(request)
        self.model = entry.build().eval()
        from published import Published

        networks.load_state(Published(self.model, None, prefixes=entry.prefixes), networks_of_file)
        self.model = self.placed(self.model)
        self.run = self.compiled(self.model.forward)
        self.taken = [port.name for port in entry.inputs]
        if self.phase == "decode":
            self.notes.append("a module with transformers' growing cache")

    def root(self):
        return self.model

    def inputs(self, tensors):
        return [self.put(tensors[name]) for name in self.taken]

    def prompt(self, inputs):
        return self.entry.prompt(self.model, *inputs)

    def step(self, more, cache=None):
        given = {"past_key_values": cache} if cache is not None else {}
        output = self.run(**more, **given, use_cache=True)
        logits = output.logits[:, -1]
        return logits, logits.argmax(1, keepdim=True), output.past_key_values

    def bind(self, binding, tensors):
        inputs = self.inputs(tensors)
        self.bound[binding] = bound = {"inputs": inputs}
        if self.phase == "decode":
            bound["start"] = self.start(inputs)
            self.rewind(binding)
            for _ in range(self.plan["steps"] if self.mode == "compile" else 1):
                self.call(binding)
            self.rewind(binding)
        else:
            self.call(binding)

    def start(self, inputs):
        """The state after the prefill, from which steps go on."""
        prompt = self.prompt(inputs)
        _, token, cache = self.step(prompt.prefill)
        return {"token": token, "cache": cache, "decode": prompt.decode}

    def rewind(self, binding):
        if self.phase == "decode":
            start = self.bound[binding]["start"]
            # Steps append to the cache that they are given.
            self.bound[binding]["now"] = {**start, "cache": copy.deepcopy(start["cache"])}
            self.wait()

    def computed(self, inputs):
        prompt = self.prompt(inputs)
        if self.phase == "encoder":
            return list(zip(self.names, prompt.encoded))
        return [("token", self.step(prompt.prefill)[1])]

    def call(self, binding):
        bound = self.bound[binding]
        if self.phase == "decode":
            now = bound["now"]
            result = self.step({**now["decode"], self.entry.tokens: now["token"]}, now["cache"])
            now["token"], now["cache"] = result[1], result[2]
        elif self.phase == "prefill":
            result = self.step(self.prompt(bound["inputs"]).prefill)
        else:
            result = self.prompt(bound["inputs"])
        self.wait()
        return result

    def outputs(self, binding):
        if self.phase == "encoder":
            return [(name, array(value)) for name, value in self.computed(self.bound[binding]["inputs"])]
        if self.phase == "prefill":
            logits, token, _ = self.call(binding)
            return [("token", array(token)[:, 0]), ("logits", array(logits))]
        self.rewind(binding)
        calls = [self.call(binding) for _ in range(self.plan["compared_steps"])]
        self.rewind(binding)
        tokens = np.concatenate([array(tokens) for _, tokens, _ in calls], axis=1)
        return [("tokens", tokens), ("logits", array(calls[-1][0]))]

    def follow(self, tensors, count):
        tensors = dict(tensors)
        text = tensors.pop("text", None)
        state = self.start(self.inputs(tensors))
        prompt = self.prompt(self.inputs(tensors))
        logits, token, cache = self.step(prompt.prefill)
        found = [logits]
        for number in range(count - 1):
            token = self.put(text[:, number : number + 1]) if text is not None else token
            logits, token, cache = self.step({**prompt.decode, self.entry.tokens: token}, cache)
            found.append(logits)
        return [("logits", array(logits)) for logits in found]


def open_session(request):
    file = next((part["torchscript"] for part in request["parts"] if part["torchscript"]), None)
    if request.get("weights") is None and file:
        return of_file(request, file)
    entry = networks.packaged(request)
    return Generation(request, entry) if hasattr(entry, "prompt") else packaged(request, entry)
