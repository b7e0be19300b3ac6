"""Modules of users' files: a Python file with a function `make`, a `.pt2` of torch.export, or a TorchScript archive."""

import importlib.util
import inspect
import os
import pickle
import sys
import traceback
import warnings

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from frames import Refused

DTYPES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.bool: "bool",
}
# The Python file that was loaded.
OWN = []


class Loaded:
    """A module of a file; `examples` are inputs, each with its name, a tensor, and the sizes, of which open ones are texts."""

    def __init__(self, module, path, examples=(), by_name=False, notes=(), can_change_dtype=True):
        self.module, self.examples, self.by_name, self.notes = module, list(examples), by_name, list(notes)
        self.files, self.can_change_dtype = [path, *own_imports(path)], can_change_dtype


def load(path):
    kind = os.path.splitext(path)[1]
    return {".py": made, ".pt2": exported, ".pt": scripted}[kind](path)


def inputs(path):
    """The inputs of a file, each as `x:f32[batch,3,224,224]`."""
    loaded = load(path)
    shapes = [shape for *_, shape in loaded.examples]
    if loaded.can_change_dtype:
        # A Python file's module takes any batch, which is what all inputs begin with.
        if len({shape[0] for shape in shapes if shape}) == 1:
            shapes = [["batch", *shape[1:]] if shape else shape for shape in shapes]
    else:
        # Of the sizes that torch.export has left open, the first is the batch, and another one the sequence.
        opened = dict.fromkeys(size for shape in shapes for size in shape if isinstance(size, str))
        known = dict(zip(opened, ("batch", "sequence")))
        shapes = [[known.get(size, size) for size in shape] for shape in shapes]
    return [text_of(name, example, shape) for (name, example, _), shape in zip(loaded.examples, shapes)]


def text_of(name, example, shape):
    if example.dtype not in DTYPES:
        raise Refused("unsupported", f"the input {name} has the element type {example.dtype}")
    text = f"{name}:{DTYPES[example.dtype]}[{','.join(map(str, shape))}]"
    if example.is_floating_point() or isinstance(example, FakeTensor) or example.numel() == 0:
        return text
    low, high = int(example.min()), int(example.max())
    if low == high and low != 0:
        return f"{text}={low}"
    return text if example.dtype == torch.bool else f"{text}<{max(high, 1) + 1}"


def made(path):
    """What `make` of a Python file returns: a module, and a tuple of its inputs or a dictionary of them by name."""
    OWN[:] = [os.path.abspath(path)]
    sys.path.insert(0, os.path.dirname(OWN[0]))
    # The file may draw its weights by chance, and each process has to draw the same.
    torch.manual_seed(0)
    name = os.path.splitext(os.path.basename(path))[0]
    specification = importlib.util.spec_from_file_location(name, OWN[0])
    code = importlib.util.module_from_spec(specification)
    sys.modules[name] = code
    shown = os.path.basename(path)
    try:
        with torch.inference_mode(False):
            specification.loader.exec_module(code)
            if not callable(getattr(code, "make", None)):
                raise Refused("failed", f"{shown} has no function `make`, which returns a module and its inputs")
            result = code.make()
    except SystemExit as why:
        raise Refused("failed", f"{shown} has ended Python by sys.exit({why.code!r})") from why
    module, given = result if isinstance(result, tuple) and len(result) == 2 else (None, None)
    if not isinstance(module, torch.nn.Module):
        returned = type(result).__name__
        if isinstance(result, tuple):
            returned = f"a tuple of {', '.join(type(value).__name__ for value in result)}"
        raise Refused("failed", f"`make` of {shown} returns {returned}, and not a torch.nn.Module with its inputs: `return module, (x,)`")
    by_name = isinstance(given, dict)
    values = list(given.values()) if by_name else [given] if isinstance(given, torch.Tensor) else list(given)
    names = list(given) if by_name else names_of(module, len(values))
    for name, value in zip(names, values):
        if not isinstance(value, torch.Tensor):
            raise Refused("failed", f"`make` of {shown} gives {name} as {type(value).__name__}: inputs are tensors, and other arguments belong into the module")
    notes = ["a module in evaluation mode, which `make` has returned in training mode"] if module.training else []
    return Loaded(module, path, zip(names, values, [list(value.shape) for value in values]), by_name, notes)


def names_of(module, count):
    parameters = inspect.signature(module.forward).parameters.values()
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [positional[place] if place < len(positional) else f"input_{place}" for place in range(count)]


def exported(path):
    """A program of torch.export. What is pickled in it may be tensors only."""
    read = torch.load
    torch.load = lambda *arguments, **named: read(*arguments, **{**named, "weights_only": True})
    shown = os.path.basename(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.load(path)
    except pickle.UnpicklingError as why:
        raise Refused("failed", f"{shown} has a pickle that would run code when it is read; only tensors are read from it") from why
    except Exception as why:
        raise Refused("failed", f"{shown} is not what torch.export.save writes: {str(why).splitlines()[0] if str(why) else type(why).__name__}") from why
    finally:
        torch.load = read
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    positional, named = program.call_spec.in_spec.children() if program.call_spec.in_spec else ((), ())
    names = list(program.graph_signature.user_inputs)
    if any(name not in nodes or not isinstance(nodes[name].meta["val"], torch.Tensor) for name in names):
        raise Refused("unsupported", f"{shown} has an input that is no tensor")
    by_name = bool(named and named.num_leaves)
    if by_name and positional.num_leaves:
        raise Refused("unsupported", f"{shown} takes inputs by place and by name; export it with one of both")
    known = [nodes[name].meta["val"] for name in names]
    shapes = [[size if isinstance(size, int) else str(size) for size in value.shape] for value in known]
    values = tree_leaves(program.example_inputs) if program.example_inputs else known
    for tensor in program.state_dict.values():
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            raise Refused("unsupported", f"{shown} has weights in {DTYPES.get(tensor.dtype, tensor.dtype)}: export the module in f32")
    return Loaded(program.module(), path, zip(names, values, shapes), by_name, can_change_dtype=False)


def scripted(path):
    try:
        return Loaded(torch.jit.load(path, map_location="cpu"), path)
    except RuntimeError as why:
        shown = os.path.basename(path)
        raise Refused("failed", f"{shown} is not a TorchScript archive: {str(why).split('. ')[0]}") from why


def own_imports(path):
    """The modules in the folder of a Python file that it has imported."""
    if not OWN:
        return []
    folder = os.path.dirname(OWN[0]) + os.sep
    found = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    return sorted({file for file in found if file.startswith(folder) and file != OWN[0] and "site-packages" not in file})


def place_of(why):
    """Where in the user's own Python files an error came from: the last two lines that ran there."""
    if not OWN:
        return None
    own = {OWN[0], *own_imports(OWN[0])}
    frames = [frame for frame in traceback.extract_tb(why.__traceback__) if frame.filename in own]
    if isinstance(why, SyntaxError) and why.filename in own:
        return f"{os.path.basename(why.filename)}, line {why.lineno}"
    places = [f"{os.path.basename(frame.filename)}, line {frame.lineno}, in {frame.name} (`{frame.line}`)" for frame in frames]
    return ": ".join(places[-2:]) or None
