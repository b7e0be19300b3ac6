"""The operators of each call according to PyTorch's profiler, with the modules that called them. On a GPU, the times
are those of the kernels that an operator starts."""

import math

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from frames import Refused
from modes import MODE, PRODUCTS

CALL, MODULE = "inferbench call", "inferbench module "
# Events of torch.compile around its kernels.
AROUND = ("## Call", "Torch-Compiled", "TorchDynamo", "AOTDispatcher", "Pregraph bytecode")
# The profiler's names of dtypes.
TYPES = {"float": "f32", "double": "f64", "c10::Half": "f16", "c10::BFloat16": "bf16", "signed char": "i8", "unsigned char": "i8"}


def products(call):
    """The number of products that one call computes in each dtype, according to PyTorch's profiler."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        call()
    found = {}
    for event in recorded.profiler.kineto_results.events():
        kinds = [TYPES[own] for own in event.dtypes() if own in TYPES]
        if "_int_mm" in event.name() or event.name().startswith(("quantized::linear", "quantized::conv")):
            # The calls of AOTInductor and of quantised archives do not give the dtypes of their inputs.
            kinds = ["i8"]
        elif event.name().split("::")[-1].partition(".")[0] not in PRODUCTS:
            continue
        for kind in kinds[:1]:
            found[kind] = found.get(kind, 0) + 1
    return found


class Profiler:
    def __init__(self, session):
        kind = session.device.type.upper()
        # For other devices, the profiler sees only the work of the CPU.
        if kind not in ("CPU", "CUDA", "XPU") or not hasattr(ProfilerActivity, kind):
            raise Refused("unsupported", f"PyTorch's profiler does not time the operators of {session.device.type}")
        self.is_on_cpu = kind == "CPU"
        self.session, self.hooks, self.open = session, [], []
        self.call = session.call
        # A TransformerEncoderLayer with hooks in it does not use its fused path.
        layers = [it for it in session.root().modules() if isinstance(it, torch.nn.TransformerEncoderLayer)]
        fused = {part for layer in layers for part in layer.modules()}
        for name, module in session.root().named_modules():
            if not isinstance(module, torch.jit.ScriptModule) and MODE == "eager" and module not in fused:
                self.hooks += [
                    module.register_forward_pre_hook(lambda *_, name=name: self.enter(name)),
                    module.register_forward_hook(lambda *_: self.leave(), always_call=True),
                ]
        activities = {ProfilerActivity.CPU, getattr(ProfilerActivity, kind)}
        self.profile = profile(activities=activities, record_shapes=True, with_flops=True)
        self.profile.__enter__()
        session.call = self.recorded

    def enter(self, name):
        self.open.append(record_function(MODULE + name))
        self.open[-1].__enter__()

    def leave(self):
        self.open.pop().__exit__(None, None, None)

    def recorded(self, binding):
        with record_function(CALL):
            return self.call(binding)

    def end(self):
        """The operators of each recorded call."""
        self.profile.__exit__(None, None, None)
        self.session.call = self.call
        for hook in self.hooks:
            hook.remove()
        events = [event for event in self.profile.events() if event.device_type == torch.autograd.DeviceType.CPU]
        calls = sorted((event for event in events if event.name == CALL), key=lambda event: event.time_range.start)
        calls = [{"operators": self.operators(call)} for call in calls]
        if not any(call["operators"] for call in calls):
            raise Refused("unsupported", f"PyTorch's profiler has timed no operator on {self.session.device.type}")
        return calls

    def operators(self, call):
        threads = {}
        found = [(event, module, self.time_us(event)) for event, module in outermost(call, None)]
        return [
            {
                "node": "",
                "operator": event.name,
                "kernel": self.kernel_of(event),
                "module": module,
                "start_ns": round(1e3 * (event.time_range.start - call.time_range.start)),
                "duration_ns": round(1e3 * time_us),
                "thread": threads.setdefault(event.thread, len(threads)),
                **self.cost(event),
            }
            for event, module, time_us in found
            # Views and waits for the device start no kernel.
            if self.is_on_cpu or time_us > 0
        ]

    def time_us(self, event):
        return event.time_range.elapsed_us() if self.is_on_cpu else event.device_time_total

    def kernel_of(self, event):
        """The inner operator with the most time of its own, with the shapes of its inputs."""
        kernel = max(within(event), key=lambda it: it.self_cpu_time_total if self.is_on_cpu else it.self_device_time_total)
        shapes = ", ".join("×".join(map(str, shape)) for shape in kernel.input_shapes if shape)
        return f"{kernel.name} {shapes}" if shapes else kernel.name

    def cost(self, event):
        """The operations of the products according to the profiler, and the bytes of their operands and results."""
        flops = elements = 0
        for product in counted(event):
            shapes = [shape for shape in product.input_shapes if shape]
            if len(shapes) < 2:
                return {}
            # The operands follow the bias, if there is one. Each element of the result takes two operations per element
            # of the inner dimension.
            one, other = shapes[1:3] if product.name in ("aten::addmm", "aten::baddbmm") and len(shapes) > 2 else shapes[:2]
            inner = math.prod(other[1:]) if "conv" in product.name else one[-1]
            flops += product.flops
            elements += sum(map(math.prod, shapes)) + product.flops // (2 * max(inner, 1))
        dtype = self.session.autocast or self.session.dtype
        return {"flops": int(flops), "bytes": int(elements * dtype.itemsize)} if flops else {}


def counted(event):
    """The outermost operators within an event whose operations the profiler counts."""
    # For elementwise sums and products, it counts the first operand, which may be smaller than the result.
    if event.flops and event.name not in ("aten::add", "aten::mul"):
        yield event
    else:
        for child in event.cpu_children:
            yield from counted(child)


def outermost(event, module):
    """The operators that no other operator calls, each with the module around it."""
    for child in sorted(event.cpu_children, key=lambda child: child.time_range.start):
        if child.name.startswith(MODULE):
            yield from outermost(child, child.name.removeprefix(MODULE) or module)
        elif getattr(child, "is_user_annotation", False) or child.name.startswith(AROUND):
            yield from outermost(child, module)
        else:
            yield child, module


def within(event):
    yield event
    for child in event.cpu_children:
        yield from within(child)
