"""Sessions: a model's graphs, compiled for the shapes of its inputs, with the batches that are bound to them."""

import re
import time

import jax
import jax.numpy as jnp
import numpy as np

from frames import Refused
from graph import Graph

# Values that are made for each step.
POSITIONS = ("position_ids", "cache_position")
MASKS = ("attention_mask", "decoder_attention_mask")
BIAS = "attention_bias"


class Compiler:
    """Compiles functions, and measures how long this takes."""

    def __init__(self, dtype):
        self.trace_ms = self.compile_ms = 0.0
        self.dtype = dtype
        # The dtype that was shown to be used. For dtypes other than f32, a compiled program shows it.
        self.computed_dtype = dtype if dtype == "f32" else None

    def compile(self, function, arguments, donated=()):
        begin = time.perf_counter_ns()
        traced = jax.jit(function, donate_argnums=donated).trace(*arguments)
        is_traced = time.perf_counter_ns()
        compiled = traced.lower().compile()
        self.trace_ms += (is_traced - begin) / 1e6
        self.compile_ms += (time.perf_counter_ns() - is_traced) / 1e6
        if self.dtype != "f32" and has_products(compiled.as_text(), self.dtype):
            self.computed_dtype = self.dtype
        return compiled


def has_products(program, dtype):
    """Whether a program has products. Refuses a program that computes all of them in another dtype between casts."""
    types = dict(re.findall(r"%?([\w.-]+) = (\w+)\[", program))
    products = re.findall(r" (?:dot|convolution)\(([^)]*)\)", program)
    operands = [name for product in products for name in re.findall(r"%([\w.-]+)", product)]
    found = {types.get(name) for name in operands}
    if operands and dtype not in found:
        raise Refused("unsupported", f"XLA computes products of {dtype} in {', '.join(sorted(map(str, found)))} between casts here")
    return bool(operands)


def scope_of(part):
    """A scope that names the part in XLA's instructions, for profiles."""
    return jax.named_scope(f"part={part}")


def shapes_of(tensors):
    return tuple((name, tensor.shape, str(tensor.dtype)) for name, tensor in tensors.items())


class Session:
    def __init__(self, request):
        device = request["device"]
        kind, _, number = device.partition(":")
        devices = jax.devices({"cuda": "gpu"}.get(kind, kind))
        if int(number or 0) >= len(devices):
            raise Refused("unavailable", f"JAX has {len(devices)} devices of the kind {kind}")
        self.device = devices[int(number or 0)]
        jax.config.update("jax_default_device", self.device)
        self.compiler = Compiler(request["dtype"])
        self.parts = {part["name"]: part for part in request["parts"]}
        self.graphs = {name: Graph(part["onnx"]) for name, part in self.parts.items()}
        self.weights = {name: jax.device_put(graph.weights, self.device) for name, graph in self.graphs.items()}
        jax.block_until_ready(self.weights)
        for graph in self.graphs.values():
            graph.weights = None
        self.bound, self.executables = {}, {}
        self.first_ms = None

    def put(self, tensors):
        return {name: jax.device_put(tensor, self.device) for name, tensor in tensors.items()}

    def executable(self, key, function, arguments, donated=()):
        if key not in self.executables:
            self.executables[key] = self.compiler.compile(function, arguments, donated)
        return self.executables[key]

    def rewind(self, binding):
        pass

    def call_from_host(self, binding, tensors, before):
        """The times of a call's stages, and its outputs on the host."""
        for _ in range(before):
            self.call(binding)
        times = [time.perf_counter_ns()]
        inputs = jax.block_until_ready(self.inputs(tensors))
        times.append(time.perf_counter_ns())
        outputs = jax.block_until_ready(self.computed(binding, inputs))
        times.append(time.perf_counter_ns())
        outputs = [(name, np.asarray(output)) for name, output in outputs]
        times.append(time.perf_counter_ns())
        stages = ("to_device_ns", "compute_ns", "to_host_ns")
        return {stage: end - begin for stage, begin, end in zip(stages, times, times[1:])}, outputs


class Forward(Session):
    """A forward pass, or the encoder of a generative model."""

    def __init__(self, request):
        super().__init__(request)
        self.name = next(iter(self.parts))
        self.names = request["outputs"] or self.graphs[self.name].outputs
        self.taken = self.graphs[self.name].inputs
        self.note = None

    def bind(self, binding, tensors):
        missing = [name for name in self.taken if name not in tensors]
        if missing:
            raise Refused("failed", f"the graph has an input {missing[0]!r} that the model does not give")
        inputs = self.inputs(tensors)
        graph = self.graphs[self.name]

        def forward(weights, inputs):
            with scope_of(self.name):
                outputs = graph(weights, inputs)
            return [jnp.asarray(outputs[name]) for name in self.names]

        weights = self.weights[self.name]
        self.bound[binding] = (self.executable(shapes_of(inputs), forward, (weights, inputs)), weights, inputs)

    def inputs(self, tensors):
        return self.put({name: tensors[name] for name in self.taken})

    def computed(self, binding, inputs):
        executable, weights, _ = self.bound[binding]
        return list(zip(self.names, executable(weights, inputs)))

    def call(self, binding):
        executable, weights, inputs = self.bound[binding]
        return jax.block_until_ready(executable(weights, inputs))

    def outputs(self, binding):
        return list(zip(self.names, map(np.asarray, self.call(binding))))


class Generation(Session):
    """The phases `prefill` and `decode`. Choosing the likeliest token is part of a call.

    If the graph only appends to its caches, they have room for all positions from the start, and one executable serves
    all steps: positions without a token are masked. Otherwise, there is an executable for each length.
    """

    def __init__(self, request):
        super().__init__(request)
        self.plan, self.is_decode = request["generation"], request["phase"] == "decode"
        # The number of compared steps may exceed that of timed steps.
        self.prompt, self.steps = self.plan["prompt_positions"], max(self.plan["steps"], self.plan["compared_steps"])
        taken = [(part, given) for part in self.plan["decode"] for given in self.parts.get(part, {"inputs": []})["inputs"]]
        self.caches = {given["value"]: given["shape"].index("past") for _, given in taken if "past" in given["shape"]}
        self.decode_values = dict.fromkeys(given["value"] for _, given in taken)
        has_mask = any(name in self.decode_values for name in (*MASKS, BIAS))
        appends = all(self.graphs[part].appends(self.caches_of(part)) for part in self.plan["decode"] if part in self.graphs)
        self.is_padded = has_mask and appends
        self.note = ("one executable for all steps, caches with room for all positions" if self.is_padded else "an executable for each length of the caches") if self.is_decode else None

    def caches_of(self, part):
        return {given["name"]: given["shape"].index("past") for given in self.parts[part]["inputs"] if "past" in given["shape"]}

    def run_parts(self, phase, weights, values, position=None):
        for name in self.plan[phase]:
            part, graph = self.parts[name], self.graphs[name]
            inputs = {given["name"]: values[given["value"]] for given in part["inputs"] if given["name"] in graph.inputs}
            with scope_of(name):
                computed = graph(weights[name], inputs, self.caches_of(name), position)
            for output in part["outputs"]:
                if output["changes"] or phase == "prefill":
                    values[output["value"]] = jnp.asarray(computed[output["name"]])
        logits = values.pop("logits")
        last = logits if logits.ndim == 2 else logits[:, -1]
        return logits, jnp.argmax(last, -1)[:, None].astype(np.int64), values

    def prefill_of(self, given):
        """An executable for these values. It returns the logits, the token, and the values that decoding takes."""

        def prefill(weights, values):
            logits, token, values = self.run_parts("prefill", weights, dict(values))
            return logits, token, {name: value for name, value in values.items() if name in self.decode_values}

        return self.executable(("prefill", shapes_of(given)), prefill, (self.weights, given))

    def given(self, tensors):
        """The inputs of the prefill, and those that the request has for the first step."""
        decode = {name.removeprefix("decode/"): value for name, value in tensors.items() if name.startswith("decode/")}
        values = {name.removeprefix("prefill/"): value for name, value in tensors.items() if not name.startswith("decode/")}
        taken = {given["value"] for part in self.plan["prefill"] for given in self.parts[part]["inputs"]}
        return self.put({name: value for name, value in values.items() if name in taken}), decode

    def inputs(self, tensors):
        return self.given(tensors)[0]

    def computed(self, binding, given):
        """The token, which is the only output of a prefill that goes to the host."""
        return [("token", self.bound[binding]["prefill"](self.weights, given)[1])]

    def bind(self, binding, tensors):
        given, made = self.given(tensors)
        prefill = self.prefill_of(given)
        self.bound[binding] = bound = {"given": given, "prefill": prefill}
        if self.is_decode:
            bound["start"] = self.start(given, made, prefill, self.steps)
            bound["executables"] = []
            self.rewind(binding)
            # This row of calls compiles an executable for each length.
            for _ in range(1 if self.is_padded else self.steps):
                bound["executables"].append(self.step_of(bound["now"], *bound["start"][1:]))
                begin = time.perf_counter_ns()
                self.call(binding)
                self.first_ms = (time.perf_counter_ns() - begin) / 1e6 if self.first_ms is None else self.first_ms
            self.rewind(binding)

    def start(self, given, made, prefill, steps):
        """The state after the prefill, from which the steps continue."""
        _, tokens, values = prefill(self.weights, given)
        room = self.prompt + steps
        caches = {name: values[name] for name in self.caches}
        if self.is_padded:
            longer = lambda value, axis: jnp.pad(value, [(0, room - size if place == axis else 0) for place, size in enumerate(value.shape)])
            caches = {name: longer(value, self.caches[name]) for name, value in caches.items()}
        fixed = {name: value for name, value in values.items() if name not in self.caches}
        made = {name: value for name, value in made.items() if name in self.decode_values}
        changing = {name: made.pop(name) for name in (*POSITIONS, *MASKS, BIAS) if name in made}
        fixed.update(self.put({name: value for name, value in made.items() if name not in self.caches}))
        fixed.pop(self.plan["tokens"], None)
        state = {"tokens": tokens, "caches": caches, "position": jnp.asarray(self.prompt, np.int64), "number": 0}
        return state, fixed, changing, room

    def step_of(self, state, fixed, changing, room):
        """The executable of a state's next step."""
        length = None if self.is_padded else self.prompt + state["number"] + 1

        def step(weights, tokens, position, caches, fixed):
            values = {**fixed, **caches, self.plan["tokens"]: tokens}
            sees = jnp.arange(room) <= position if self.is_padded else jnp.ones(length, bool)
            for name, first in changing.items():
                if name in POSITIONS:
                    values[name] = first + (position - self.prompt).astype(first.dtype)
                elif name in MASKS:
                    values[name] = jnp.broadcast_to(sees.astype(first.dtype), (first.shape[0], len(sees)))
                else:
                    values[name] = jnp.where(sees, 0, jnp.finfo(first.dtype).min).astype(first.dtype)[None, None, None]
            logits, token, values = self.run_parts("decode", weights, values, position if self.is_padded else None)
            return logits, token, position + 1, {name: values[name] for name in caches}

        key = ("step", room if self.is_padded else length, tuple(sorted(changing)), shapes_of(state["caches"]), shapes_of(fixed))
        arguments = (self.weights, state["tokens"], state["position"], state["caches"], fixed)
        return self.executable(key, step, arguments, donated=(3,) if self.is_padded else ())

    def rewind(self, binding):
        if not self.is_decode:
            return
        bound = self.bound[binding]
        state, *_ = bound["start"]
        # Steps overwrite the caches, so each row of calls gets a copy.
        bound["now"] = self.copied(state) if self.is_padded else dict(state)

    @staticmethod
    def copied(state):
        return {**state, "caches": jax.block_until_ready({name: jnp.copy(value) for name, value in state["caches"].items()})}

    def call(self, binding):
        bound = self.bound[binding]
        if not self.is_decode:
            return jax.block_until_ready(bound["prefill"](self.weights, bound["given"]))
        state = bound["now"]
        executable = bound["executables"][0 if self.is_padded else state["number"]]
        logits, tokens, position, caches = executable(self.weights, state["tokens"], state["position"], state["caches"], bound["start"][1])
        jax.block_until_ready((logits, tokens, caches))
        state.update(tokens=tokens, position=position, caches=caches, number=state["number"] + 1)
        return logits, tokens

    def outputs(self, binding):
        if not self.is_decode:
            logits, token, _ = self.call(binding)
            return [("token", np.asarray(token)[:, 0]), ("logits", wide(logits))]
        self.rewind(binding)
        calls = [self.call(binding) for _ in range(self.plan["compared_steps"])]
        self.rewind(binding)
        tokens = np.concatenate([np.asarray(tokens) for _, tokens in calls], axis=1)
        return [("tokens", tokens), ("logits", wide(calls[-1][0]))]

    def follow(self, tensors, count, ends):
        """The logits for each of `count` tokens after a prompt. The tokens are those of a text, or the likeliest ones
        until each row has one of `ends`."""
        tensors = dict(tensors)
        text = tensors.pop("text", None)
        given, made = self.given(tensors)
        prefill = self.prefill_of(given)
        logits = [prefill(self.weights, given)[0]]
        state, fixed, changing, room = self.start(given, made, prefill, count)
        state = self.copied(state)
        has_ended = False
        for number in range(count - 1):
            has_ended = has_ended | np.isin(np.asarray(state["tokens"])[:, 0], ends)
            if text is None and has_ended.all():
                break
            if text is not None:
                state["tokens"] = jnp.asarray(text[:, number : number + 1])
            step = self.step_of(state, fixed, changing, room)
            found, state["tokens"], state["position"], state["caches"] = step(self.weights, state["tokens"], state["position"], state["caches"], fixed)
            state["number"] += 1
            logits.append(found)
        return [("logits", wide(found)) for found in logits]


def wide(logits):
    return np.asarray(logits).astype(np.float32)


def open_session(request):
    return (Generation if request["phase"] in ("prefill", "decode") else Forward)(request)
