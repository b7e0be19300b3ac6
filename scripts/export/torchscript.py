"""A TorchScript archive without weights.

Every parameter is a view of a single zero, so an archive contains only code and the names and shapes of its parameters;
the program that loads it sets their data by name. The archive is then compressed and gets fixed times. Records for
debuggers are left out, because they contain paths of the machine that made the archive.
"""

import io
import warnings
import zipfile

import torch
from torch import nn


def buffers_to_parameters(model: nn.Module) -> None:
    """Turns buffers into parameters, because `named_parameters` of a loaded archive does not list running statistics.

    Integers and buffers that are not in the state dict stay.
    """
    for module in model.modules():
        for name, buffer in list(module._buffers.items()):
            if name == "num_batches_tracked":
                del module._buffers[name]
                module.num_batches_tracked = None
            elif buffer is not None and buffer.is_floating_point() and name not in module._non_persistent_buffers_set:
                del module._buffers[name]
                module.register_parameter(name, nn.Parameter(buffer, requires_grad=False))


def export(model: nn.Module, example: tuple[torch.Tensor, ...], others: list[tuple[torch.Tensor, ...]]) -> bytes:
    """Traces `model` with `example` and checks the trace with `others`, which have other sizes."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        traced = torch.jit.trace(model, example, check_inputs=others, check_tolerance=1e-5)
    # A constant moves to the device on which the archive is loaded; a device in the code would stay.
    assert "Device = prim::Constant" not in str(traced.inlined_graph), "the trace names a device"
    zero = torch.zeros(1)
    for parameter in traced.parameters():
        parameter.requires_grad_(False)
        parameter.data = zero.expand(parameter.shape) if parameter.shape else zero[0]
    buffer = io.BytesIO()
    torch.jit.save(traced, buffer)
    return repack(buffer)


# The debug records, the traced inputs, and an identifier that depends on the debug records.
_UNUSED = (".debug_pkl", "/traced_inputs", "/serialization_id")


def repack(archive: io.BytesIO) -> bytes:
    """The same archive, compressed and independent of where and when it was made."""
    packed = io.BytesIO()
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(packed, "w") as target:
        for entry in source.infolist():
            if any(part in entry.filename for part in _UNUSED):
                continue
            info = zipfile.ZipInfo(entry.filename, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(info, source.read(entry), compresslevel=9)
    return packed.getvalue()
