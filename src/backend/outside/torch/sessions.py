"""Sessions: a model's module on a device, with the batches that are bound to it."""

import copy
import functools
import time
import zlib

import numpy as np
import torch

import files
import networks
from frames import Refused
from modes import MODE, SETTINGS, Eager, end_compilers, mode_of, plural, remove_unpacked
from profiles import products

# Modules in other dtypes, which are quantised archives, have inputs and outputs in f32.
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
# Settings that change a module of Python, or which operators it calls.
OF_MODULES = ("autocast", "channels-last", "sdpa")


class Session:
    def __init__(self, request):
        kind, _, number = request["device"].partition(":")
        self.device = torch.device(kind, int(number or 0)) if kind != "cpu" else torch.device("cpu")
        if number and int(number) >= (count := getattr(torch, kind).device_count()):
            raise Refused("unavailable", f"PyTorch has {plural(count, 'device')} of the kind {kind}")
        self.dtype = DTYPES.get(request["dtype"], torch.float32)
        self.autocast = None
        if "autocast" in SETTINGS:
            if request["dtype"] not in DTYPES:
                raise Refused("unsupported", "autocast computes in bf16 or f16: name one by `--dtype bf16`")
            # The module and its inputs are in f32.
            self.autocast, self.dtype = self.dtype, torch.float32
        self.is_channels_last = "channels-last" in SETTINGS
        self.mode = mode_of(self.device)
        self.names = request["outputs"]
        self.files = [request["weights"]] if request.get("weights") else []
        self.bound, self.notes = {}, []
        self.asked_dtype, self.proof, self.is_of_file = request["dtype"], None, False
        # The dtype that was shown to be used; the layers that were quantised here, each of which has a product.
        self.computed_dtype, self.quantized = "f32" if request["dtype"] == "f32" else None, None
        self.first_ms = None

    def placed(self, module):
        # TorchScript's modules have no `requires_grad_`, but their parameters have it.
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        kinds = {parameter.dtype for parameter in module.parameters()} - {self.dtype}
        if torch.float64 in kinds:
            raise Refused("unsupported", "the module has weights in f64, and is measured in f32 or less: convert it by `module.float()`")
        if narrow := sorted(name for name, kind in DTYPES.items() if kind in kinds):
            self.notes.append(f"weights in {' and '.join(narrow)} are converted to {next((name for name, kind in DTYPES.items() if kind == self.dtype), 'f32')}")
        if torch.float64 in {buffer.dtype for buffer in module.buffers()}:
            self.notes.append("buffers in f64 are converted, too")
        kept = frequencies(module)
        # `module.to` would also drop the imaginary part of complex numbers.
        # Weights that the file has quantised do not allow this in inference mode, and tensors of that mode do not allow
        # it outside.
        is_of_inference = any(own.is_inference() for own in [*module.parameters(), *module.buffers()])
        with torch.inference_mode(is_of_inference), torch.no_grad():
            module = module.eval()._apply(lambda own: own.to(self.dtype) if own.is_floating_point() else own).to(self.device)
            for own, name, buffer in kept:
                own._buffers[name] = buffer.to(self.device)
        if self.is_channels_last:
            if not any(parameter.ndim == 4 for parameter in module.parameters()):
                raise Refused("unsupported", "the setting channels-last is for modules with weights of four dimensions")
            module = module.to(memory_format=torch.channels_last)
        self.attention(module)
        if self.asked_dtype == "i8" and not is_archive(module):
            self.quantized, note = quantized(module)
            self.notes.append(note)
        return module

    def attention(self, module):
        """Sets the attention function of a model of transformers if a setting names one, and notes which function it
        uses."""
        models = [it for it in module.modules() if hasattr(it, "set_attn_implementation")][:1]
        if "sdpa" in SETTINGS and not models:
            raise Refused("unsupported", "the setting sdpa is for models of transformers")
        for model in models:
            if "sdpa" in SETTINGS:
                try:
                    model.set_attn_implementation("sdpa")
                except ValueError as why:
                    raise Refused("unsupported", str(why).split(". ")[0]) from why
            self.notes.append(f"transformers with attention {model.config._attn_implementation}")

    def first(self, binding):
        """Makes a call. The time of the session's first call is kept, without the tracing and compiling in it."""
        before, begin = self.mode.preparing_ms(), time.perf_counter_ns()
        self.call(binding)
        elapsed = (time.perf_counter_ns() - begin) / 1e6
        if self.first_ms is None:
            self.first_ms = max(elapsed - (self.mode.preparing_ms() - before), 0.0)

    def prove(self, call):
        """Refuses a module that was not compiled, and profiles a call to find the dtypes of its products."""
        self.mode.check()
        if self.proof is not None or (self.asked_dtype == "f32" and not self.is_of_file):
            return
        called = set()
        layers = self.quantized if self.quantized and MODE == "eager" else []
        hooks = [layer.register_forward_pre_hook(lambda layer, _: called.add(layer)) for layer in layers]
        found, compiled = products(call), self.mode.products()
        for hook in hooks:
            hook.remove()
        if self.asked_dtype == "f32":
            # A user's module may use other dtypes inside, by its own autocast or quantised layers.
            kinds = list(dict.fromkeys([*found, *compiled])) or ["f32"]
            self.computed_dtype = "f32" if kinds == ["f32"] else None
            self.proof = "" if kinds == ["f32"] else f"the module itself computes products in {', '.join(kinds)}"
            return
        count, total = found.get(self.asked_dtype, 0), sum(found.values())
        unseen, in_graphs = max(len(compiled) - total, 0), compiled.count(self.asked_dtype)
        if (total or unseen) and not count and not (unseen and self.asked_dtype in compiled):
            others = ", ".join(found or dict.fromkeys(compiled))
            raise Refused("unsupported", f"PyTorch computes the products of this module in {others}, and none in {self.asked_dtype}")
        said = [f"{count} of {plural(total, 'product')} in {self.asked_dtype} by PyTorch's profile"]
        if unseen:
            given = f"{in_graphs} of {len(compiled)} are given {self.asked_dtype}"
            said.append(f"it does not tell the types of {plural(unseen, 'product')}; in Inductor's graphs, {given}")
        self.proof = "; ".join(said) if total or unseen else f"no product was seen, so that nothing shows what was computed in {self.asked_dtype}"
        if self.quantized is not None:
            # Products of two activations are not quantised, and a phase may call only some of the layers.
            is_shown = max(count, in_graphs) >= (len(called) or len(self.quantized))
        else:
            is_shown = bool(total or unseen) and count == total and (not unseen or in_graphs == len(compiled))
        self.computed_dtype = self.asked_dtype if is_shown else None

    def put(self, array):
        if array.dtype == np.float64:
            raise Refused("unsupported", "an input has the element type f64, and PyTorch is measured in f32 or less")
        is_bf16 = array.dtype.kind == "V"
        tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if is_bf16 else torch.from_numpy(array)
        tensor = tensor.to(self.device)
        tensor = tensor.to(self.dtype) if tensor.is_floating_point() else tensor
        return tensor.contiguous(memory_format=torch.channels_last) if self.is_channels_last and tensor.ndim == 4 else tensor

    def compiled(self, function):
        return self.mode.made(function, self.cast, outputs_of)

    def cast(self, function):
        """The function in autocast if the settings have it; each call then enters autocast."""
        if self.autocast is None:
            return function

        def inside(*arguments, **named):
            with torch.autocast(self.device.type, dtype=self.autocast):
                return function(*arguments, **named)

        return inside

    def wait(self):
        if self.device.type in ("cuda", "xpu"):
            # Without an argument, these wait for the first device.
            getattr(torch, self.device.type).synchronize(self.device)
        elif self.device.type != "cpu":
            getattr(torch, self.device.type).synchronize()

    def note(self):
        pool = [f"{plural(torch.get_num_interop_threads(), 'thread')} between operators"] if self.device.type == "cpu" else []
        return "; ".join([*self.notes, *self.mode.notes(), *([self.proof] if self.proof else []), *pool]) or None

    def progress(self):
        return {**self.mode.times(), "first_ms": self.first_ms, "computed_dtype": self.computed_dtype, "note": self.note()}

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


def frequencies(module):
    """The buffers with rotary frequencies of transformers, each with its module and name. Its models keep them in f32 if
    weights have another dtype."""
    return [
        (own, name, buffer)
        for own in module.modules()
        if type(own).__module__.startswith("transformers.")
        for name, buffer in own._buffers.items()
        if name.endswith("inv_freq") and name in own._non_persistent_buffers_set
    ]


def quantized(module):
    """Quantises the weights of linear layers, and in each call their inputs. Returns these layers, and a note about the
    method."""
    try:
        import torchao
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
    except ImportError as why:
        raise Refused("unavailable", "i8 needs torchao: `pip install torchao` in PyTorch's environment") from why
    linear = [it for it in module.modules() if isinstance(it, torch.nn.Linear)]
    if not linear:
        raise Refused("unsupported", "torchao quantises linear layers, and the module has none")
    quantize_(module, Int8DynamicActivationInt8WeightConfig())
    # It leaves out some, such as the last layer of an attention by torch.nn.MultiheadAttention.
    layers = [it for it in linear if type(it.weight) not in (torch.Tensor, torch.nn.Parameter)]
    if not layers:
        raise Refused("unsupported", "torchao has quantised none of the module's linear layers")
    return layers, f"torchao {torchao.__version__}: {plural(len(layers), 'linear layer')} with int8 weights, and inputs in int8 by a scale per row and call"


def is_archive(module):
    return isinstance(module, torch.jit.ScriptModule)


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
        if "static-cache" in SETTINGS:
            raise Refused("unsupported", "a static cache is for the phases prefill and decode")
        # The names of the model's inputs, and of the module's arguments if it is called by these.
        self.taken, self.arguments, self.is_unpacked = taken, None, False

    def of(self, module):
        self.module, self.run = module, self.compiled(module)
        return self

    def root(self):
        """The module whose parts have the names of the model's."""
        return self.module

    def call_module(self, inputs):
        return self.run(**dict(zip(self.arguments, inputs))) if self.arguments else self.run(*inputs)

    def inputs(self, tensors):
        missing = [name for name in self.taken if name not in tensors]
        if missing:
            raise Refused("failed", f"the module has an input {missing[0]!r} that the model does not give")
        return [self.put(tensors[name]) for name in self.taken]

    def bind(self, binding, tensors):
        # On the CPU, inputs are the memory of these arrays, which the module may change.
        own = {name: tensor.copy() for name, tensor in tensors.items()}
        self.bound[binding] = self.inputs(tensors)
        given = self.checksums(binding)
        try:
            self.first(binding)
        except RuntimeError as why:
            if not self.is_unpacked:
                raise
            message = "the package does not take inputs of these sizes and types: name those for which it was compiled by `--input`"
            raise Refused("failed", message) from why
        if self.is_unpacked:
            remove_unpacked()
        self.check_inputs(binding, given, own)
        self.prove(lambda: self.call(binding))
        end_compilers()

    def checksums(self, binding):
        return [zlib.crc32(array(tensor)) for tensor in self.bound[binding]]

    def check_inputs(self, binding, given, tensors):
        """Refuses a module that has changed its inputs, if its next call changes them again or has other outputs."""
        if (changed := self.checksums(binding)) == given:
            return
        self.bound[binding] = self.inputs(tensors)
        first, second = ([zlib.crc32(array(value)) for _, value in self.computed(self.bound[binding])] for _ in range(2))
        if first != second or self.checksums(binding) != changed:
            raise Refused("unsupported", "the module changes its inputs in place, so that each call computes something else: let `forward` copy them")

    def computed(self, inputs):
        result = self.call_module(inputs)
        found = self.mode.named(result, outputs_of)
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
    # The module with the published names of the weights does not have the module of transformers as a submodule.
    if hasattr(module, "_call"):
        module = networks.Called(*module._call)
        session.root = lambda: module.model
    return session.of(session.placed(module))


def of_file(request, path):
    """The module of a user's file."""
    loaded = files.load(path)
    if is_archive(loaded.module) and MODE != "eager":
        raise Refused("unsupported", f"torch.{'compile' if MODE == 'compile' else 'export'} takes Python modules, and a TorchScript archive has none")
    if not loaded.can_change_dtype and request["dtype"] != "f32":
        raise Refused("unsupported", "a `.pt2` computes in the dtype in which it was exported: f32")
    if loaded.names and MODE != "aot":
        raise Refused("unsupported", "a package of AOTInductor is compiled already: run it by `--backend torch-aot`")
    idle = [setting for setting in SETTINGS if loaded.names or setting in OF_MODULES]
    if idle and not loaded.can_change_dtype:
        raise Refused("unsupported", f"the setting {idle[0]} has no effect on a `.pt2`, whose operators are those of its export")
    session = Forward(request, [given["name"] for given in request["inputs"]])
    session.files, session.notes = loaded.files, loaded.notes
    if session.device.type == "cpu" and (others := sorted(loaded.threads - {request["threads"]})):
        session.notes.append(f"kernels that were compiled for {' and '.join(map(str, others))} threads, whatever `--threads` says")
    # The dtype of its products is known after a call.
    session.is_of_file, session.computed_dtype = True, None
    if loaded.by_name:
        names = [name for name, *_ in loaded.examples]
        # An ONNX graph beside the file may have other names for the same inputs.
        is_renamed = set(names) != set(session.taken) and len(names) == len(session.taken)
        session.arguments = names if is_renamed else session.taken
    if loaded.names:
        session.mode = Eager()
        session.module, session.run = torch.nn.Module(), loaded.module
        session.is_unpacked = True
        return session
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
        # Calls of the phases `encoder` and `prefill` compute states from the inputs, for example with an encoder.
        is_called = entry.encoded and self.phase != "decode"
        self.prompt = (self.compiled if is_called else self.cast)(functools.partial(entry.prompt, self.model))
        self.run = self.compiled(self.model.forward)
        self.taken = [port.name for port in entry.inputs]
        self.is_static, self.positions = "static-cache" in SETTINGS, 0
        # Compilations before the first step, and since then.
        self.before, self.of_steps = 0, 0

    def steps(self):
        """The number of steps after a prefill. The number of compared steps may exceed that of timed steps."""
        return max(self.plan["steps"], self.plan["compared_steps"])

    def root(self):
        return self.model

    def inputs(self, tensors):
        return [self.put(tensors[name]) for name in self.taken]

    def cache(self, prompt, steps):
        """An empty cache with room for the prompt and these steps. `None` for a growing cache, which transformers makes
        itself."""
        if not self.is_static:
            return None
        from transformers import DynamicCache, EncoderDecoderCache, StaticCache

        config = self.model.config
        tokens = prompt.prefill["decoder_input_ids" if config.is_encoder_decoder else "input_ids"]
        # The timed calls come first. Code that is compiled for their cache also serves shorter rows.
        self.positions = max(self.positions, tokens.shape[1] + steps)
        cache = StaticCache(config=config.get_text_config(decoder=True), max_cache_len=self.positions)
        return EncoderDecoderCache(cache, DynamicCache()) if config.is_encoder_decoder else cache

    def note(self):
        own = []
        if self.phase in ("prefill", "decode"):
            own.append(f"a module with transformers' static cache of {self.positions} positions" if self.is_static else "a module with transformers' growing cache")
        if self.phase == "decode" and MODE == "compile":
            own.append(f"{plural(self.of_steps, 'compilation')} for {plural(self.steps(), 'step')}")
        return "; ".join([*own, *filter(None, [super().note()])]) or None

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
            self.before = self.before or self.mode.compilations()
            self.first(binding)
            for _ in range(self.steps() - 1 if MODE == "compile" else 0):
                self.call(binding)
            self.of_steps = self.mode.compilations() - self.before
            # The model may lack a position for another step.
            self.rewind(binding)
            self.prove(lambda: self.call(binding))
            self.rewind(binding)
        else:
            self.first(binding)
            self.prove(lambda: self.call(binding))
        end_compilers()

    def start(self, inputs):
        """The state after the prefill, from which the steps continue."""
        prompt = self.prompt(*inputs)
        _, token, cache = self.step(prompt.prefill, self.cache(prompt, self.steps() + 1))
        return {"token": token, "cache": cache, "decode": prompt.decode}

    def rewind(self, binding):
        if self.phase == "decode":
            start = self.bound[binding]["start"]
            # Steps append to the cache that they are given.
            self.bound[binding]["now"] = {**start, "cache": copy.deepcopy(start["cache"])}
            self.wait()

    def computed(self, inputs):
        prompt = self.prompt(*inputs)
        if self.phase == "encoder":
            return list(zip(self.names, prompt.encoded))
        return [("token", self.step(prompt.prefill, self.cache(prompt, 0))[1])]

    def call(self, binding):
        bound = self.bound[binding]
        if self.phase == "decode":
            now = bound["now"]
            result = self.step({**now["decode"], self.entry.tokens: now["token"]}, now["cache"])
            now["token"], now["cache"] = result[1], result[2]
        elif self.phase == "prefill":
            prompt = self.prompt(*bound["inputs"])
            result = self.step(prompt.prefill, self.cache(prompt, 0))
        else:
            result = self.prompt(*bound["inputs"])
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

    def follow(self, tensors, count, ends):
        tensors = dict(tensors)
        text = tensors.pop("text", None)
        prompt = self.prompt(*self.inputs(tensors))
        logits, token, cache = self.step(prompt.prefill, self.cache(prompt, count))
        found, has_ended = [logits], False
        for number in range(count - 1):
            if text is None and ends:
                has_ended = has_ended | torch.isin(token[:, 0], torch.tensor(ends, device=token.device))
                if has_ended.all():
                    break
            token = self.put(text[:, number : number + 1].copy()) if text is not None else token
            logits, token, cache = self.step({**prompt.decode, self.entry.tokens: token}, cache)
            found.append(logits)
        return [("logits", array(logits)) for logits in found]


def open_session(request):
    file = next((part["torchscript"] for part in request["parts"] if part["torchscript"]), None)
    if request.get("weights") is None and file:
        return of_file(request, file)
    entry = networks.entry_of(request)
    return Generation(request, entry) if hasattr(entry, "prompt") else packaged(request, entry)
