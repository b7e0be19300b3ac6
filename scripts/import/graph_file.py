"""Imports a file that contains a graph: of torch.export, TorchScript or ONNX."""

import dataclasses
from pathlib import Path

import check
import exported_program
import files
import onnx
import onnx.version_converter
import onnx2torch
import source
import torch
from entry import Port
from source import Refused, say

ELEMENTS = {torch.float32: "f32", torch.float64: "f64", torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8", torch.bool: "bool"}
ONNX_ELEMENTS = {1: "f32", 11: "f64", 6: "i32", 7: "i64", 2: "u8", 9: "bool"}
# Shapes of images, audio and texts. A TorchScript file does not give its own, so those for f32 are tried in order.
USUAL_SHAPES = {"f32": (["batch", 3, 224, 224], ["batch", 1, 28, 28], ["batch", 16000]), "i64": (["batch", "sequence"],)}
# Weights of more bytes than this go into a file of their own.
LARGEST_MESSAGE = 1 << 30
# Operators of ONNX that keep the values of their first input.
UNCHANGING = ("Cast", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Transpose")
# The same in torch.export.
UNCHANGING_OF_ATEN = ("_to_copy", "to", "clone", "reshape", "view", "squeeze", "unsqueeze", "transpose")
# The positions of the tables that operators of ONNX look up, each with that of its indices.
LOOKUPS = {"Gather": ((0, 1),), "EmbedLayerNormalization": ((2, 0), (4, 1), (3, 8))}


def convert(path: Path, kind: str, given: list[source.Given], output: Path) -> None:
    given = {one.name: Port(one.name, one.dtype, one.shape, one.below, one.constant) for one in given}
    known = {"exported program": _exported_program, "TorchScript": _torchscript, "ONNX": _onnx}
    known[kind](path, given, output)


def _with_given(ports: list[Port], given: dict[str, Port]) -> list[Port]:
    names = [port.name for port in ports]
    if unknown := [name for name in given if name not in names]:
        raise Refused(f"the file has no input {unknown[0]!r}: there are {', '.join(names)}")
    return [_filled(given[port.name], port) if port.name in given else port for port in ports]


def _filled(given: Port, own: Port) -> Port:
    """An input as given. Its integers are those of the file's own input if the flag does not name any."""
    is_whole = given.dtype[0] == "f" or given.below is not None or given.constant is not None
    return given if is_whole else dataclasses.replace(given, below=own.below, constant=own.constant)


def _is_mask(name: str, dtype: str) -> bool:
    return dtype != "bool" and "mask" in name


def _load_program(path: Path):
    if exported_program.is_package(path, str(path)):
        raise Refused(f"{path} is a package of AOTInductor, which is native code: name what torch.export.save writes")
    program, remarks = exported_program.load(path, str(path))
    for remark in remarks:
        say(f"{path}: {remark}")
    return program


def _exported_program(path: Path, given: dict[str, Port], output: Path) -> None:
    program = _load_program(path)
    if operator := exported_program.dropping(program) or exported_program.of_batch(program):
        raise Refused(f"{path} computes as a module in training mode does ({operator}): export it after `.eval()`")
    user_inputs = set(program.graph_signature.user_inputs)
    nodes = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in user_inputs]
    symbols: dict[str, str] = {}
    ports = []
    for node in nodes:
        tensor = node.meta["val"]
        if not isinstance(tensor, torch.Tensor) or tensor.dtype not in ELEMENTS:
            raise Refused(f"{path}: the input {node.name} is not a tensor of {', '.join(ELEMENTS.values())}")
        shape = [size if isinstance(size, int) else _symbol(str(size), axis, symbols) for axis, size in enumerate(tensor.shape)]
        dtype = ELEMENTS[tensor.dtype]
        is_mask = _is_mask(node.name, dtype)
        below = None if is_mask or dtype[0] == "f" else _rows_looked_up(node)
        ports.append(Port(node.name, dtype, shape, below, 1 if is_mask else None))
    module = _with_traced_sizes(program.module())
    positional, named = exported_program.arguments_of(program)
    # A module of torch.export raises an error in both, and has no layer that they would change.
    for name in ("train", "eval"):
        module.__dict__.pop(name, None)
    if named and named.num_leaves:
        if positional.num_leaves or len(named.context) != len(ports):
            raise Refused(f"{path} takes positional and keyword inputs, or nested ones: export it with one kind only")
        module = ByName(module, list(named.context))
    files.write(module, _with_given(ports, given), None, output)


def _slice(x: torch.Tensor, dim: int = 0, start=None, end=None, step=1) -> torch.Tensor:
    return x[(*[slice(None)] * (dim % x.dim()), slice(start, end, step))]


# In a trace, the result of `sym_size` is a constant. The sizes that methods of tensors return, and their use in such
# methods, are traced.
OF_SIZES = {"sym_size": torch.Tensor.size, "slice": _slice}


def _with_traced_sizes(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    for node in module.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "aten":
            name = node.target.name().split("::")[1].split(".")[0]
            is_sized = any(not isinstance(of.meta.get("val", torch.empty(0)), torch.Tensor) for of in node.all_input_nodes)
            if name == "sym_size" or is_sized:
                node.target = OF_SIZES.get(name) or getattr(torch.Tensor, name, None) or getattr(torch, name, node.target)
    module.recompile()
    return module


class ByName(torch.nn.Module):
    """A program that takes keyword inputs."""

    def __init__(self, module: torch.nn.Module, names: list[str]):
        super().__init__()
        self.module, self.names = module, names

    def forward(self, *values: torch.Tensor):
        return self.module(**dict(zip(self.names, values)))


def _symbol(symbol: str, axis: int, known: dict[str, str]) -> str:
    """The name of a dynamic dimension: `batch` if it is the first of an input, or else `sequence`."""
    if symbol not in known:
        name = "batch" if axis == 0 else "sequence"
        if name in known.values():
            raise Refused(f"the program has more dynamic dimensions than the batch and one length ({symbol}): export it with fixed sizes")
        known[symbol] = name
    return known[symbol]


def _rows_looked_up(node) -> int | None:
    """The number of rows of the smallest embedding table that a value indexes, directly or after a change of its type or
    shape."""
    rows = []
    for user in node.users:
        if "embedding" in str(user.target) and user.args[1] is node:
            rows.append(user.args[0].meta["val"].shape[0])
        elif str(user.target).removeprefix("aten.").split(".")[0] in UNCHANGING_OF_ATEN:
            rows.append(_rows_looked_up(user))
    return min((count for count in rows if count is not None), default=None)


def _torchscript(path: Path, given: dict[str, Port], output: Path) -> None:
    module = torch.jit.load(path, map_location="cpu").eval().float()
    names = [argument.name for argument in module.forward.schema.arguments[1:] if not argument.has_default_value()]
    tokens = [name for name in names if any(word in name for word in ("ids", "mask", "token"))]
    ports = None
    for floats in USUAL_SHAPES["f32"]:
        tried = [
            Port(n, "i64", USUAL_SHAPES["i64"][0], None, 1 if "mask" in n else None)
            if n in tokens
            else Port(n, "f32", floats)
            for n in names
        ]
        tried = _with_given(tried, given)
        try:
            check.eager(files.Flat(module), {port.name: files.value(port, {"batch": 2, "sequence": 9}) for port in tried})
            ports = tried
            break
        except Exception as error:  # the module takes another shape
            why = str(error).strip().splitlines()[-1]
    if ports is None:
        flags = " ".join(f"--input '{n}:{'i64[batch,sequence]<30522' if n in tokens else 'f32[batch,3,224,224]'}'" for n in names)
        raise Refused(f"the input shapes of {path} are not known ({why}): pass them, as in `inferbench import {path} {flags}`")
    files.write(module, ports, None, output, archive=path)


def _onnx(path: Path, given: dict[str, Port], output: Path) -> None:
    """Keeps the graph as it is; ONNX Runtime computes the reference."""
    proto = onnx.load(path)
    weights = {tensor.name for tensor in proto.graph.initializer}
    rows = _rows_looked_up_in(proto.graph)
    ports = [_port(value, rows.get(value.name)) for value in proto.graph.input if value.name not in weights]
    ports = _with_given(ports, given)
    for port in ports:
        if any(isinstance(size, str) and size not in ("batch", "sequence") for size in port.shape):
            sizes = ",".join("224" if isinstance(size, str) and size != "batch" else str(size) for size in port.shape)
            flag = f"--input '{port.name}:{port.dtype}[{sizes}]'"
            raise Refused(f"{path} has dynamic dimensions in {port.name} ({port.shape}): pass their sizes, as in {flag}")
    target = output / "model.onnx"
    # `ByteSize` does not work for a message of more than 2 GB.
    size = sum(len(tensor.raw_data) for tensor in proto.graph.initializer)
    onnx.save(proto, target, save_as_external_data=size > LARGEST_MESSAGE, location="model.data")
    names = [value.name for value in proto.graph.output]
    feeds = [{port.name: files.value(port, sizes) for port in ports} for sizes in files.tried_sizes(ports)]
    run = check.onnx_runner(target)
    expected = files.outputs(run, feeds, ports)
    say("ONNX: the file is kept as it is, and ONNX Runtime has computed the reference")
    try:
        files.torchscript(_module(onnx.load(target)), feeds, expected, output / "model.pt")
    except Exception as error:  # an operator that the converter does not know
        say(f"TorchScript is left out: {type(error).__name__}: {source.first_line(error)}")
    files.write_reference(feeds[0], names, expected[0], ports, output)


def _module(proto: onnx.ModelProto) -> torch.nn.Module:
    try:
        return files.Flat(onnx2torch.convert(proto)).eval()
    except NotImplementedError:
        older = onnx.version_converter.convert_version(proto, files.OPSETS[0])
        return files.Flat(onnx2torch.convert(older)).eval()


def _rows_looked_up_in(graph) -> dict[str, int]:
    """The number of rows, along the axis that is looked up, of the smallest table that each value indexes, directly or
    after a change of its type or shape."""
    tables = {tensor.name: tensor.dims for tensor in graph.initializer}
    sources = {node.output[0]: node.input[0] for node in graph.node if node.op_type in UNCHANGING}
    smallest: dict[str, int] = {}
    for node in graph.node:
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
        names = dict(enumerate(node.input))
        for table, index in LOOKUPS.get(node.op_type, ()):
            sizes, index = tables.get(names.get(table)), names.get(index)
            if sizes and index:
                while index in sources:
                    index = sources[index]
                smallest[index] = min(sizes[axis], smallest.get(index, sizes[axis]))
    return smallest


def _port(value, rows: int | None) -> Port:
    tensor = value.type.tensor_type
    if tensor.elem_type not in ONNX_ELEMENTS:
        raise Refused(f"the input {value.name} is not a tensor of {', '.join(ONNX_ELEMENTS.values())}")
    shape = []
    for axis, size in enumerate(tensor.shape.dim):
        if size.HasField("dim_value") and size.dim_value > 0:
            shape.append(size.dim_value)
        else:
            shape.append("batch" if axis == 0 else "sequence" if size.dim_param.startswith("seq") else size.dim_param or f"size {axis}")
    dtype = ONNX_ELEMENTS[tensor.elem_type]
    is_mask = _is_mask(value.name, dtype)
    return Port(value.name, dtype, shape, None if is_mask or dtype[0] == "f" else rows, 1 if is_mask else None)
