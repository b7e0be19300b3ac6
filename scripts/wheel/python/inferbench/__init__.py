"""Machine-learning inference benchmarks: starts the program `inferbench` and returns its records.

    import inferbench

    records = inferbench.run("net.onnx", backend=["ort", "candle"], batch_sizes=[1, 8])
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any

__all__ = ["InferbenchError", "executable", "run"]

# After these exit codes of the program there are records: no problem was found, an output is wrong, a case failed.
HAS_RECORDS = (0, 1, 5)


class InferbenchError(RuntimeError):
    """The program has ended without a measurement. Its message is the program's; `exit_code` says what kind of error it is."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code

    def __reduce__(self):
        return type(self), (str(self), self.exit_code)


def executable() -> str:
    """The path of the program that was installed with this module."""
    name = "inferbench.exe" if os.name == "nt" else "inferbench"
    user, here = f"{os.name}_user", Path(__file__).resolve().parent.parent
    # The first is that of `pip install --target`.
    folders = [str(here / "bin"), sysconfig.get_path("scripts"), sysconfig.get_path("scripts", user)]
    # Python imports the user's own packages before those of all users.
    if here == Path(site.getusersitepackages()).resolve():
        folders.reverse()
    for folder in folders:
        path = Path(folder) / name
        if path.is_file():
            return str(path)
    found = shutil.which(name)
    if found is None:
        raise InferbenchError(f"the program {name} is not in {' or '.join(folders)}: install inferbench again", 2)
    return found


def _plain(value: Any) -> Any:
    """A range or an array of NumPy as a list; other values as they are."""
    if isinstance(value, (tuple, range)):
        return list(value)
    return value.tolist() if hasattr(value, "tolist") else value


def _flags(settings: dict[str, Any]) -> list[str]:
    """`batch_sizes=[1, 8], noplot=True` as `--batch-sizes=1 --batch-sizes=8 --noplot`: values may contain commas."""
    flags = []
    for name, value in settings.items():
        flag, value = "--" + name.replace("_", "-"), _plain(value)
        if value is False and name == "trust":
            # `--trust` takes a value; `false` overrides the variable INFERBENCH_TRUST.
            flags.append(f"{flag}=false")
            continue
        if value is None or value is False:
            continue
        if value is True:
            flags.append(flag)
        elif isinstance(value, dict):
            plain = {key: _plain(one) for key, one in value.items()}
            sizes = {key: ",".join(map(str, one)) if isinstance(one, list) else one for key, one in plain.items()}
            flags += [f"{flag}={key}={one}" for key, one in sizes.items()]
        elif isinstance(value, list):
            flags += [f"{flag}={one}" for one in value]
        else:
            flags.append(f"{flag}={value}")
    return flags


def _start(arguments: list[str], quiet: bool) -> tuple[int, str, str]:
    """Runs the program; returns its exit code, its output, and its message."""
    process = subprocess.Popen(
        [executable(), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace"
    )
    said = []

    def relay() -> None:
        for line in process.stderr:
            if not quiet:
                print(line, end="", file=sys.stderr, flush=True)
            said.append(line.rstrip())

    relayed = threading.Thread(target=relay, daemon=True)
    relayed.start()
    try:
        output = process.stdout.read()
        process.wait()
    except BaseException:
        process.send_signal(2) if os.name == "posix" else process.terminate()
        # The program may still print much; it would wait if nobody read it.
        process.stdout.read()
        process.wait()
        raise
    relayed.join()
    if process.returncode == 130:
        raise KeyboardInterrupt
    return process.returncode, output, _message(said)


def _message(said: list[str]) -> str:
    """The reason of a failure: the program's error, or else what became of the cases, or its last line."""
    said = [line for line in said if line and not line.startswith("left out for lack of width") and " has no effect; did you mean " not in line]
    errors = [place for place, line in enumerate(said) if line.startswith(("inferbench: ", "error: "))]
    if errors:
        return "\n".join(said[errors[-1] :]).removeprefix("inferbench: ")
    failures = (": failed: ", ": timeout: ", ": out-of-memory: ")
    reasons = [line.strip() for line in said if line.startswith("left out: ") or (line.startswith("  ") and any(it in line for it in failures))]
    return "\n".join(reasons or said[-1:])


def _chosen(frame: str | None) -> str:
    """The kind of frame. One that cannot be made is an error before anything is measured."""
    if frame not in (None, "pandas", "polars", "list"):
        raise ValueError(f"frame is {frame!r}, and not 'pandas', 'polars' or 'list'")
    if frame in ("pandas", "polars") and not _has(frame):
        raise ModuleNotFoundError(f"frame is {frame!r}, and {frame} is not installed or cannot be imported", name=frame)
    return frame or next((name for name in ("pandas", "polars") if _has(name)), "list")


def _has(name: str) -> bool:
    try:
        return hasattr(importlib.import_module(name), "DataFrame")
    except Exception:  # whatever a broken package raises
        return False


# The types in Polars and in pandas of each type in JSON. All of them allow missing values.
_TYPES = {
    "number": ("Float64", "float64"),
    "integer": ("Int64", "Int64"),
    "boolean": ("Boolean", "boolean"),
    "string": ("String", None),
}


def _types() -> dict[str, tuple[str, str | None]]:
    """The types of the columns, including those without a value in this run."""
    code, output, message = _start(["report", "--format", "json-schema"], True)
    if code:
        raise InferbenchError(message, code)
    schema = json.loads(output)
    fields = schema["$defs"][schema["items"]["$ref"].rsplit("/", 1)[1]]["properties"]
    types = {}
    for name, field in fields.items():
        kinds = field.get("type", "string")
        kinds = [kinds] if isinstance(kinds, str) else kinds
        types.update({name: _TYPES[kind] for kind in kinds if kind in _TYPES})
    return types


def _framed(records: list[dict[str, Any]], chosen: str) -> Any:
    if chosen == "pandas":
        import pandas

        frame = pandas.DataFrame(records)
        return frame.astype({name: own for name, (_, own) in _types().items() if own and name in frame})
    if chosen == "polars":
        import polars

        known = {name for record in records for name in record}
        types = {name: getattr(polars, own) for name, (own, _) in _types().items() if name in known}
        return polars.DataFrame(records, schema_overrides=types, infer_schema_length=None)
    return records


def run(*models: str | os.PathLike[str], frame: str | None = None, quiet: bool = False, **settings: Any) -> Any:
    """Measures models, as `inferbench run` does, and returns a record for each case.

    `models` are files or folders; without any, the suite is measured. `settings` are the flags of `inferbench run`:
    `backend=["ort", "candle"]`, `batch_sizes=[1, 8]`, `output_dir="results"`, `dim={"height": 640}`, `noplot=True`.

    The records are a pandas data frame, or else a Polars one, if one of them is installed, and a list of dicts
    otherwise; `frame` chooses `"pandas"`, `"polars"` or `"list"`. Raises `InferbenchError` if nothing was measured. A
    failed case has a record whose `status` is not `ok`.
    """
    chosen, flags = _chosen(frame), _flags(settings)
    code, output, message = _start(["run", *map(os.fspath, models), *flags], quiet)
    if code not in HAS_RECORDS:
        raise InferbenchError(message, code)
    files = [line.split(maxsplit=1)[1] for line in output.splitlines() if line.startswith("CSV ")]
    if not files:
        # Such as a dry run, whose plan is shown.
        print(output, end="")
        return _framed([], chosen)
    code, output, message = _start(["report", "--format", "json", str(Path(files[-1]).parent)], True)
    if code not in HAS_RECORDS:
        raise InferbenchError(message, code)
    return _framed(json.loads(output), chosen)
