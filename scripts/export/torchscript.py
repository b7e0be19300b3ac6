"""A TorchScript archive without weights.

Every parameter is a view of a single zero, so an archive holds only code and the names and shapes of its parameters;
who loads it sets the data of each by name. The archive is written again with deflate and fixed times, without the
records that only a debugger reads: they hold paths of the machine on which it was made.
"""

import io
import warnings
import zipfile

import torch
from torch import nn


def buffers_to_parameters(model: nn.Module) -> None:
    """`named_parameters` of a loaded archive does not list buffers, and running statistics are weights too.

    Integers and what is not in the state dict are not weights and stay.
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
    """Traces `model` with `example` and checks the trace with `others`, of other sizes."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        traced = torch.jit.trace(model, example, check_inputs=others, check_tolerance=1e-5)
    # Constants move with the archive to where it is loaded; a device in its code would not.
    assert "Device = prim::Constant" not in str(traced.inlined_graph), "the trace names a device"
    zero = torch.zeros(1)
    for parameter in traced.parameters():
        parameter.requires_grad_(False)
        parameter.data = zero.expand(parameter.shape) if parameter.shape else zero[0]
    buffer = io.BytesIO()
    torch.jit.save(traced, buffer)
    return repack(buffer)


# The debug records, the inputs that were traced, and an identifier that depends on the debug records.
_UNUSED = (".debug_pkl", "/traced_inputs", "/serialization_id")


def repack(archive: io.BytesIO) -> bytes:
    """The same archive, small and without what depends on where and when it was made."""
    packed = io.BytesIO()
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(packed, "w") as target:
        for entry in source.infolist():
            if any(part in entry.filename for part in _UNUSED):
                continue
            info = zipfile.ZipInfo(entry.filename, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(info, source.read(entry), compresslevel=9)
    return packed.getvalue()
