"""Modules from users' files: a Python file with a function `make`, a `.pt2` of torch.export, a TorchScript archive, a
pickle of torch.save, or a model hub's folder."""

import importlib.util
import inspect
import os
import pathlib
import random
import re
import sys
import sysconfig
import traceback
import zipfile

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, treespec_loads

import networks
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
# The modules of this worker. They are already loaded, so a user's module may have the same name.
WORKER = ("frames", "serving", "networks", "files", "modes", "profiles", "sessions", "serve")
# Whether the file may run code when it is read.
IS_TRUSTED = "TORCH_WORKER_TRUST" in os.environ
TRUSTED = "a pickle that `--trust` allowed to run code when it was read"
NATIVE = "a package of AOTInductor that `--trust` allowed to run its native code"


class Loaded:
    """A file's module. `examples` are inputs, each with name, tensor and sizes; a dynamic size is a string."""

    def __init__(self, module, path, examples=(), by_name=False, notes=(), can_change_dtype=True):
        self.module, self.examples, self.by_name, self.notes = module, list(examples), by_name, list(notes)
        self.files, self.can_change_dtype = [path, *own_imports(path)], can_change_dtype
        # The names of inputs whose sizes the file does not give.
        self.names = []
        # The numbers of threads in compiled kernels, as far as they are known.
        self.threads = set()


def load(path):
    kind = os.path.splitext(path)[1]
    return {".py": made, ".pt2": exported, ".pt": archived, ".json": pretrained}[kind](path)


def inputs(path):
    """The inputs of a file, each as `x:f32[batch,3,224,224]`."""
    if path.endswith(".json"):
        return [text_of_port(port) for port in ports_of(*class_of(path))]
    loaded = load(path)
    if path.endswith(".pt"):
        return [f"{name}:f32[...]" for name in names_of(loaded.module)]
    if loaded.names:
        return [f"{name}:f32[...]" for name in loaded.names]
    shapes = [shape for *_, shape in loaded.examples]
    if loaded.can_change_dtype:
        # A Python file's module takes any batch size. The batch is the first dimension if all inputs share its size.
        if len({shape[0] for shape in shapes if shape}) == 1:
            shapes = [["batch", *shape[1:]] if shape else shape for shape in shapes]
    else:
        # Among torch.export's dynamic sizes, the first dimension's is the batch, and another one is the sequence.
        opened = dict.fromkeys(size for shape in shapes for size in shape if isinstance(size, str))
        batch = next((shape[0] for shape in shapes if shape and isinstance(shape[0], str)), None)
        others = [size for size in opened if size != batch]
        known = {**({batch: "batch"} if batch else {}), **({others[0]: "sequence"} if others else {})}
        shapes = [[known.get(size, size) for size in shape] for shape in shapes]
    return [text_of(name, example, shape) for (name, example, _), shape in zip(loaded.examples, shapes)]


def text_of(name, example, shape):
    if example.dtype not in DTYPES:
        raise Refused("unsupported", f"the input {name} has the element type {example.dtype}")
    text = f"{name}:{DTYPES[example.dtype]}[{','.join(map(str, shape))}]"
    if example.is_floating_point() or isinstance(example, FakeTensor) or example.numel() == 0:
        return text
    low, high = int(example.min()), int(example.max())
    if low == high and (low != 0 or example.dtype == torch.bool):
        return f"{text}={low}"
    return text if example.dtype == torch.bool else f"{text}<{max(high, 1) + 1}"


def seed():
    """Seeds all generators: the file may draw random weights, and each process has to draw the same ones."""
    random.seed(0)
    torch.manual_seed(0)
    try:
        import numpy

        numpy.random.seed(0)
    except ImportError:
        pass


def made(path):
    """Loads a Python file, whose `make` returns a module, and its inputs as a tuple or as a dictionary by name."""
    own_code_of(path)
    seed()
    name = os.path.splitext(os.path.basename(path))[0]
    specification = importlib.util.spec_from_file_location(name, OWN[0])
    code = importlib.util.module_from_spec(specification)
    sys.modules[name] = code
    shown = os.path.basename(path)
    try:
        with torch.inference_mode(False):
            specification.loader.exec_module(code)
            if not callable(getattr(code, "make", None)):
                raise Refused("failed", f"{shown} has no function `make`, which returns a module and its inputs, as in "
                    "`def make(): return Net().eval(), (torch.randn(1, 3, 224, 224),)`")
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
    if not isinstance(given, (dict, tuple, list, torch.Tensor)):
        raise Refused("failed", f"`make` of {shown} gives its inputs as {type(given).__name__}: a tuple of tensors is expected, or a dictionary of them by name")
    values = list(given.values()) if by_name else [given] if isinstance(given, torch.Tensor) else list(given)
    names = list(given) if by_name else names_of(module, len(values))
    for name, value in zip(names, values):
        if not isinstance(value, torch.Tensor):
            raise Refused("failed", f"`make` of {shown} gives {name} as {type(value).__name__}: inputs are tensors, and other arguments belong into the module")
    notes = ["a module in evaluation mode, which `make` has returned in training mode"] if is_in_training(module) else []
    return Loaded(module, path, zip(names, values, [list(value.shape) for value in values]), by_name, notes)


def own_code_of(path):
    """Lets the file import the modules beside it, even if they have the name of a module of the worker."""
    OWN[:] = [os.path.abspath(path)]
    for name in WORKER:
        sys.modules.pop(name, None)
    sys.path.insert(0, os.path.dirname(OWN[0]))


def names_of(module, count=None):
    """The names of the first `count` inputs, or of all inputs without a default."""
    parameters = inspect.signature(module.forward).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if count is None:
        return [p.name for p in positional if p.default is p.empty]
    positional = [p.name for p in positional]
    return [positional[place] if place < len(positional) else f"input_{place}" for place in range(count)]


def exported(path):
    """Loads a program of torch.export. No code from it is run unless it is trusted."""
    shown = os.path.basename(path)
    networks.scripts()
    with networks.scripts_refusals():
        import exported_program

        is_package = exported_program.is_package(path, shown)
        if not is_package:
            # Tensors of inference mode cannot be exported again.
            with torch.inference_mode(False):
                program, notes = exported_program.load(path, shown, "; `--trust` allows it", IS_TRUSTED)
    if is_package:
        return package(path)
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    positional, named = exported_program.arguments_of(program)
    names = list(program.graph_signature.user_inputs)
    if any(name not in nodes or not isinstance(nodes[name].meta["val"], torch.Tensor) for name in names):
        raise Refused("unsupported", f"{shown} has an input that is not a tensor")
    by_name = bool(named and named.num_leaves)
    if by_name and positional.num_leaves:
        raise Refused("unsupported", f"{shown} takes positional and keyword inputs; export it with one kind only")
    known = [nodes[name].meta["val"] for name in names]
    shapes = [[size if isinstance(size, int) else str(size) for size in value.shape] for value in known]
    values = tree_leaves(program.example_inputs) if program.example_inputs else known
    for tensor in program.state_dict.values():
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            raise Refused("unsupported", f"{shown} has weights in {DTYPES.get(tensor.dtype, tensor.dtype)}: export the module in f32")
    if operator := exported_program.dropping(program):
        raise Refused("unsupported", f"{shown} drops values by chance ({operator}), as a module in training mode does: export it after `.eval()`")
    if operator := exported_program.of_batch(program):
        raise Refused("unsupported", f"{shown} computes with the statistics of the batch ({operator}), as a module in training mode does: export it after `.eval()`")
    notes = [TRUSTED] if IS_TRUSTED else notes
    with torch.inference_mode(False):
        module = program.module()
    return Loaded(module, path, zip(names, values, shapes), by_name, notes, can_change_dtype=False)


def package(path):
    """Loads a package that AOTInductor has compiled. It gives the number of its inputs, but neither names nor sizes."""
    shown = os.path.basename(path)
    if not IS_TRUSTED:
        message = f"{shown} is a package of AOTInductor, whose native code would run when it is loaded: allow it by `--trust`, or name what torch.export.save writes"
        raise Refused("failed", message)
    # This import takes seconds, so other kinds of files do without it.
    import torch._inductor

    # Without this check, the package would read beyond inputs that are too small.
    os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"
    loaded = Loaded(torch._inductor.aoti_load_package(path), path, notes=[NATIVE], can_change_dtype=False)
    inputs = treespec_loads(loaded.module.loader.get_call_spec()[0]).num_leaves
    loaded.names = [f"input_{place}" for place in range(inputs)]
    with zipfile.ZipFile(path) as archive:
        texts = [archive.read(name).decode("utf-8", "replace") for name in archive.namelist() if name.endswith(".cpp")]
    loaded.threads = {int(count) for text in texts for count in re.findall(r"#pragma omp parallel[^\n]* num_threads\((\d+)\)", text)}
    return loaded


def archived(path):
    """Loads an archive of torch.jit.save, or a module that torch.save has written."""
    with zipfile.ZipFile(path) as archive:
        is_scripted = any(name.endswith("constants.pkl") for name in archive.namelist())
    if is_scripted or not IS_TRUSTED:
        return scripted(path)
    # The modules with its classes may lie beside it.
    own_code_of(path)
    with torch.inference_mode(False):
        module = torch.load(path, map_location="cpu", weights_only=False)
    if not isinstance(module, torch.nn.Module):
        raise Refused("failed", f"{os.path.basename(path)} is a pickle of {type(module).__name__}, and not of a torch.nn.Module")
    return Loaded(module, path, notes=[TRUSTED, *saved_in(module)])


def saved_in(module):
    """A note if a module was saved in training mode. A frozen archive has no mode."""
    return ["a module in evaluation mode, which was saved in training mode"] if is_in_training(module) else []


def is_in_training(module):
    """Whether a module or a part of it is in training mode."""
    return any(getattr(part, "training", False) for part in module.modules())


def class_of(path):
    """The class in transformers for this config.json, and its configuration. Refuses an incomplete folder."""
    networks.scripts()
    folder = pathlib.Path(path).parent
    with networks.scripts_refusals():
        import source

        source.check_folder(folder)
    return networks.class_of(folder)


def ports_of(model_class, config):
    with networks.scripts_refusals():
        import pretrained as hub_folder

        return hub_folder.ports_of(model_class, config)[0]


def text_of_port(port):
    end = f"<{port.below}" if port.below is not None else f"={port.constant}" if port.constant is not None else ""
    return f"{port.name}:{port.dtype}[{','.join(map(str, port.shape))}]{end}"


def pretrained(path):
    """Loads the model of a model hub's folder, by its class in transformers; `path` is its config.json."""
    model_class, config = class_of(path)
    folder = pathlib.Path(path).parent
    with networks.scripts_refusals():
        import pretrained as hub_folder

        import source

        # Parts without weights in the folder get random ones, the same in each process.
        torch.manual_seed(0)
        with torch.inference_mode(False):
            model, lacks_pooler, remark = hub_folder.load(model_class, config, folder, None)
        weights = [str(file) for file in source.weight_files(folder)]
    if hasattr(model.config, "use_cache"):
        # This is a forward pass, not a decode step.
        model.config.use_cache = False
    notes = [f"{model_class.__name__} in a forward pass"]
    if lacks_pooler:
        notes.append("the weights have no pooler, whose output is random")
    if remark:
        notes.append(remark)
    loaded = Loaded(model, path, [(port.name, None, port.shape) for port in ports_of(model_class, config)], True, notes)
    loaded.files += weights
    return loaded


def scripted(path):
    try:
        module = torch.jit.load(path, map_location="cpu")
        return Loaded(module, path, notes=saved_in(module))
    except RuntimeError as why:
        shown = os.path.basename(path)
        raise Refused("failed", f"{shown} is not a TorchScript archive: {str(why).split('. ')[0]}") from why


def own_imports(path):
    """The files of imported modules in the user's folder, except for the file itself."""
    if not OWN:
        return []
    folder = os.path.dirname(OWN[0]) + os.sep
    found = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    packages = re.compile("[/\\\\](site|dist)-packages[/\\\\]")
    library = tuple(os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib"))
    is_own = lambda file: not packages.search(file) and not os.path.realpath(file).startswith(library)
    return sorted({file for file in found if file.startswith(folder) and file != OWN[0] and is_own(file)})


def place_of(why):
    """The place of an error in the user's own Python files: the last two lines that ran there."""
    if not OWN:
        return None
    own = {OWN[0], *own_imports(OWN[0])}
    if isinstance(why, SyntaxError) and why.filename in own:
        return f"{os.path.basename(why.filename)}, line {why.lineno}"
    frames = [(frame.filename, frame.lineno, frame.name, frame.line) for frame in traceback.extract_tb(why.__traceback__)]
    # A tracer, which does not run the file itself, gives the place in its message.
    frames += re.findall(r'File "([^"]+)", line (\d+), in (\S+)\n\s+(.+)', str(why))
    places = [f"{os.path.basename(file)}, line {line}, in {name} (`{code}`)" for file, line, name, code in frames if file in own]
    return ": ".join(places[-2:]) or None
