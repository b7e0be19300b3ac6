"""Finds out the kind of a source and whether it is complete. It needs only Python's own library, so it runs before
anything is downloaded."""

# PyTorch's worker uses this module, too, and may have an older Python.
from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# The longest header that safetensors itself reads.
LONGEST_HEADER = 100_000_000
# The largest ratio of an archive's content to its size. PyTorch compresses only code.
MOST_UNPACKED = 100
ELEMENT_BITS = {"C64": 64, "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16}
TYPES = ("f32", "f64", "i32", "i64", "u8", "bool")


class Refused(Exception):
    """An error in one line for the user: what is wrong, where, and how to fix it."""


def say(text: str) -> None:
    print(f"import: {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Given:
    """An input as given by a flag: `x:f32[batch,3,224,224]`, `ids:i64[batch,sequence]<30522`, `rate:i64[]=8000`."""

    name: str
    dtype: str
    shape: list[int | str]
    below: int | None
    constant: float | None


def parse_input(text: str) -> Given:
    match = re.fullmatch(r"(.+):(\w+)\[([^\]]*)\](?:<(\d+)|=([-\d.eE]+))?", text)
    if not match or match[2] not in TYPES:
        raise argparse.ArgumentTypeError(f"{text!r} is not an input; write it as in x:f32[batch,3,224,224]")
    sizes = [size.strip() for size in match[3].split(",") if size.strip()]
    shape = [int(size) if size.isdigit() else size for size in sizes]
    return Given(match[1], match[2], shape, match[4] and int(match[4]), match[5] and float(match[5]))


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="import", description="Imports a model; `inferbench import` runs this.")
    parser.add_argument("source", help="a folder or file, or an id of the model hub")
    parser.add_argument("--name", required=True, help="the name of the model")
    parser.add_argument("--output", required=True, type=Path, help="the folder to make")
    parser.add_argument("--architecture", help="the architecture of a state dict: a packaged model or a model of torchvision")
    parser.add_argument("--input", action="append", default=[], type=parse_input, help="an input, for a file that lacks the sizes")
    return parser.parse_args(argv)


def kind_of(source: str, architecture: str | None, inputs: list) -> str:
    """`folder`, `hub`, `state dict`, `exported program`, `TorchScript` or `ONNX`.

    Refuses a source that does not exist, is of another kind, or is cut short.
    """
    path = Path(source)
    if path.is_dir():
        check_folder(path)
        kind = "folder"
    elif path.is_file():
        kind = _kind_of_file(path)
    elif HUB_ID.fullmatch(source) and not path.parent.is_dir():
        kind = "hub"
    else:
        raise Refused(f"there is no file or folder {source}")
    if kind == "state dict" and not architecture:
        raise Refused(
            f"{source} has weights without a graph: name their architecture, as in `--architecture resnet50`, or the "
            "folder that contains them and their config.json"
        )
    if kind != "state dict" and architecture:
        raise Refused(f"`--architecture` is for a state dict, and {source} is of another kind: {kind}")
    if inputs and kind in ("folder", "hub", "state dict"):
        raise Refused(f"`--input` is for a file with a graph, and {source} is of another kind: {kind}")
    return kind


def _kind_of_file(path: Path) -> str:
    _refuse_pointer(path)
    if path.suffix == ".onnx":
        return "ONNX"
    if path.suffix == ".safetensors":
        check_safetensors(path)
        return "state dict"
    if zipfile.is_zipfile(path):
        names = archive_names(path, str(path))
        if any(name.endswith(("archive_format", "serialized_exported_program.json")) for name in names):
            return "exported program"
        if any(name.endswith("constants.pkl") for name in names):
            return "TorchScript"
        if any(name.endswith("data.pkl") for name in names):
            return "state dict"
    elif path.suffix in (".pt", ".pth", ".bin", ".pt2", ".ckpt"):
        check_pickle(path)
        return "state dict"
    raise Refused(
        f"{path} cannot be imported: a source is a folder with config.json, an ONNX file, a TorchScript file, a `.pt2` of "
        "torch.export, or a state dict in `.safetensors`, `.pt`, `.pth` or `.bin`"
    )


def archive_names(file, shown: str) -> list[str]:
    """The names of the files in a ZIP archive, given as a path or an open file. `shown` is its name in messages.

    Refuses an archive that would fill the memory when it is read, and one with a file name that leads out of it.
    """
    with zipfile.ZipFile(file) as archive:
        entries, size = archive.infolist(), archive.fp.seek(0, os.SEEK_END)
    for name in (entry.filename for entry in entries):
        if name.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", name):
            raise Refused(f"{shown} has a file whose name leads out of it: {name[:80]!r}")
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > MOST_UNPACKED * size:
        raise Refused(f"{shown} has {size} bytes, and {unpacked} when it is unpacked, which is more than PyTorch compresses: save it again")
    return [entry.filename for entry in entries]


def check_folder(folder: Path) -> None:
    config = read_config(folder)
    for key, kind in (("model_type", str), ("architectures", list)):
        if not isinstance(config.get(key), kind) or not config[key]:
            raise Refused(f"{folder / 'config.json'} lacks {key}, which says what the weights belong to")
    for file in weight_files(folder):
        _refuse_pointer(file)
        check_safetensors(file) if file.suffix == ".safetensors" else check_pickle(file)


def read_config(folder: Path) -> dict:
    path = folder / "config.json"
    if not path.is_file():
        raise Refused(f"{folder} has no config.json, which a model hub's folder has beside the weights")
    config = _read_json(path)
    if not isinstance(config, dict):
        raise Refused(f"{path} is not a configuration: it is not a JSON object")
    return config


def weight_files(folder: Path) -> list[Path]:
    for stem, suffix in (("model", "safetensors"), ("pytorch_model", "bin")):
        whole, index = folder / f"{stem}.{suffix}", folder / f"{stem}.{suffix}.index.json"
        if whole.is_file():
            return [whole]
        if index.is_file():
            parts = _read_json(index)
            names = parts.get("weight_map") if isinstance(parts, dict) else None
            if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
                raise Refused(f"{index} has no weight_map, which says where each tensor is")
            files = [folder / name for name in sorted(set(names.values()))]
            if missing := [file.name for file in files if not file.is_file()]:
                raise Refused(f"{folder} lacks {missing[0]}, which {index.name} names")
            return files
    raise Refused(f"{folder} has no weights: it needs model.safetensors or pytorch_model.bin, whole or in parts")


def _read_json(path: Path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path} is not JSON: {first_line(error)}") from None


def _refuse_pointer(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(40).startswith(b"version https://git-lfs"):
            raise Refused(f"{path} is a Git LFS pointer and not the file itself: run `git lfs pull` in its folder")


def check_pickle(path: Path) -> None:
    """Refuses a file that is neither a ZIP archive that may be read nor, as before PyTorch 1.6, a pickle."""
    with path.open("rb") as file:
        start = file.read(4)
    if zipfile.is_zipfile(path):
        try:
            archive_names(path, str(path))
        except zipfile.BadZipFile as error:
            raise Refused(f"{path} is damaged: {error}") from None
    elif not start.startswith(b"\x80"):
        raise Refused(f"{path} is cut short, or not a file of torch.save")


def check_safetensors(path: Path) -> None:
    """Refuses a file whose header does not describe exactly the bytes that follow."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, LONGEST_HEADER):
            raise Refused(f"{path} is cut short, or not a safetensors file: its header would have {length} bytes")
        try:
            header = json.loads(file.read(length))
            spans = [_span(name, entry) for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
            raise Refused(f"{path} has no header of a safetensors file") from None
    end = 0
    for begin, after, needed, name in sorted(spans):
        if begin != end or after - begin != needed:
            raise Refused(f"{path}: its header gives {name} other bytes than its shape needs")
        end = after
    if end != size - 8 - length:
        raise Refused(f"{path} is cut short: its header describes {end} bytes, and it has {size - 8 - length}")


def _span(name: str, entry: dict) -> tuple[int, int, int, str]:
    begin, end = entry["data_offsets"]
    elements = math.prod(int(size) for size in entry["shape"])
    return int(begin), int(end), elements * ELEMENT_BITS.get(entry["dtype"], 8) // 8, name


def runs_code(path: Path) -> Refused:
    return Refused(
        f"{path} holds more than tensors, and reading it would run its code: save it again by "
        "`torch.save(model.state_dict(), FILE)` or as safetensors"
    )


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
