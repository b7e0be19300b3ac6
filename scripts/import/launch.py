"""Imports a model: `python3 scripts/import/launch.py SOURCE --name NAME --output FOLDER`, as `inferbench import` runs it.

convert.py does the work, in a Python environment of its own in ${XDG_CACHE_HOME:-~/.cache}/inferbench/import with the
packages of requirements.txt. The first import creates the environment; after an interruption, the next one continues.
The folder may be deleted when it is no longer needed.
"""

# An older Python reads this far, too: it has to reach the message about its version.
from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from contextlib import contextmanager
from pathlib import Path

import source
from source import say

try:
    import fcntl
except ImportError:
    # Windows has other locks.
    fcntl = None

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "inferbench"
ENVIRONMENT = CACHE / "import"
IS_WINDOWS = os.name == "nt"
PYTHON = ENVIRONMENT / ("Scripts/python.exe" if IS_WINDOWS else "bin/python")
# PyTorch's own index has builds without CUDA for Linux on x86-64, which PyPI lacks.
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def fail(text: str) -> None:
    say(text)
    sys.exit(2)


def has_cpu_index() -> bool:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    try:
        with urllib.request.urlopen(f"{CPU_INDEX}/torch/", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def has_packages() -> bool:
    """Whether the environment's Python, which a system upgrade may have replaced, starts and finds the packages."""
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    try:
        return subprocess.run([str(PYTHON), "-I", "-c", look], stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


@contextmanager
def alone():
    """Holds the lock of the environment, after waiting for another import that holds it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    with open(CACHE / ".import.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another import that makes {ENVIRONMENT}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def check_hub(hub_id: str) -> None:
    """Refuses an id that the hub does not have, before packages are downloaded for it."""
    if "HF_HUB_OFFLINE" in os.environ:
        return
    hub = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    token = Path(os.environ.get("HF_HOME") or CACHE.parent / "huggingface") / "token"
    names = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH")
    has_token = token.is_file() or any(name in os.environ for name in names)
    refused = f"there is no file or folder {hub_id}, and"
    try:
        urllib.request.urlopen(f"{hub}/api/models/{hub_id}", timeout=10).close()
    except urllib.error.HTTPError as error:
        # Without a token, the hub answers 401 for private models and for those that do not exist.
        if error.code == 404 or (error.code == 401 and not has_token):
            raise source.Refused(f"{refused} {hub} has no public model with that id") from error
    except OSError as error:
        # What else may go wrong, such as an unknown certificate, is left to the hub's own client.
        if isinstance(getattr(error, "reason", error), (ConnectionError, TimeoutError, socket.gaierror)):
            raise source.Refused(f"{refused} {hub} cannot be reached; set HF_HUB_OFFLINE=1 if the model is in the hub's cache") from error


def prepare_environment(hub_id: str | None) -> None:
    stamp = ENVIRONMENT / "requirements"
    wanted = REQUIREMENTS.read_text() + (HERE.parent / "export" / "requirements.txt").read_text()

    def is_ready() -> bool:
        return stamp.is_file() and stamp.read_text() == wanted and has_packages()

    if is_ready():
        return
    if hub_id:
        check_hub(hub_id)
    if sys.version_info < (3, 11):
        fail(f"its packages need Python 3.11 or later, and {sys.executable} is {platform.python_version()}; name another by `--python`")
    is_small = has_cpu_index()
    # PyPI's packages for macOS and Windows have no CUDA.
    down, disk = (0.4, 1.6) if is_small or platform.system() != "Linux" else (2.7, 5.3)
    size = f"{down} GB to download, {disk} GB on disk"
    say(f"PyTorch, transformers and what they need go into {ENVIRONMENT}: {size}, once")
    with alone():
        # Another import may have made it meanwhile.
        if not is_ready():
            # pip keeps each archive twice, in its cache and as a temporary file, until all are installed.
            install(stamp, wanted, is_small, disk + 2 * down)


def install(stamp: Path, wanted: str, is_small: bool, gigabytes: float) -> None:
    own = ENVIRONMENT / ("Lib" if IS_WINDOWS else f"lib/python{sys.version_info[0]}.{sys.version_info[1]}")
    if not (own.is_dir() and PYTHON.exists()):
        # Packages that were installed for another release of Python are of no use.
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    needed = gigabytes - sum(file.lstat().st_size for file in ENVIRONMENT.rglob("*")) / 1e9
    if (free := shutil.disk_usage(CACHE).free / 1e9) < needed:
        fail(f"{CACHE} has {free:.1f} GB free, and {needed:.1f} GB are needed; set XDG_CACHE_HOME to another folder")
    # Workers of PyTorch use an environment that has a stamp, so an incomplete one must not have it.
    stamp.unlink(missing_ok=True)
    if subprocess.run([sys.executable, "-I", "-m", "venv", str(ENVIRONMENT)], stdout=sys.stderr).returncode != 0:
        fail("Python could not make the environment (Debian: apt-get install python3-venv)")
    torch = [line for line in wanted.splitlines() if line.startswith("torch")]
    steps = [["--index-url", CPU_INDEX, *torch]] if is_small else []
    # `scripts/setup tch` may have left PyTorch's wheel there.
    steps += [["--find-links", str(CACHE / "wheels"), "--requirement", str(REQUIREMENTS)]]
    # Downloads are kept here after an interruption.
    downloads = ENVIRONMENT / "downloads"
    downloads.mkdir(exist_ok=True)
    # pip's settings for the user's own packages do not fit here, and /tmp may be small.
    settings = {"PIP_CONSTRAINT": os.devnull, "PIP_PREFIX": "", "PIP_TARGET": "", "PIP_USER": "0", "TMPDIR": str(downloads)}
    for step in steps:
        command = [str(PYTHON), "-I", "-m", "pip", "install", "--disable-pip-version-check", "--cache-dir", str(downloads), *step]
        command += [] if sys.stderr.isatty() else ["--quiet"]
        if subprocess.run(command, stdout=sys.stderr, env={**os.environ, **settings}).returncode != 0:
            fail("pip could not install the packages; run the same command again to go on")
    if not has_packages():
        fail("pip has put the packages elsewhere: remove `target` and `prefix` from pip's settings (`pip config list`)")
    shutil.rmtree(downloads, ignore_errors=True)
    stamp.write_text(wanted)


def main() -> None:
    arguments = source.arguments(sys.argv[1:])
    try:
        kind = source.kind_of(arguments.source, arguments.architecture, arguments.input)
        # A folder that cannot be written is an error before anything is downloaded.
        folder = Path(arguments.output).parent
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        prepare_environment(arguments.source if kind == "hub" else None)
    except source.Refused as why:
        fail(str(why))
    except zipfile.BadZipFile as error:
        fail(f"{arguments.source} is damaged: {error}")
    except OSError as error:
        fail(f"{error.filename or arguments.source}: {error.strerror or error}")
    except KeyboardInterrupt:
        sys.exit(130)
    quiet = {"TRANSFORMERS_VERBOSITY": "error", "PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}
    # Only the id of a model on a hub needs the network.
    offline = {} if kind == "hub" else {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    command, variables = [str(PYTHON), str(HERE / "convert.py"), *sys.argv[1:]], {**os.environ, **quiet, **offline}
    # The user's modules would shadow the importer's.
    variables.pop("PYTHONPATH", None)
    if IS_WINDOWS:
        # On Windows, `execve` would end this process at once, and the work would continue without it.
        sys.exit(subprocess.call(command, env=variables))
    os.execve(PYTHON, command, variables)


if __name__ == "__main__":
    main()
