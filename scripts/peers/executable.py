"""The release executable of this checkout, and what else the scripts that measure with it have in common."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "inferbench"


def say(text):
    print(text, file=sys.stderr, flush=True)


def inferbench_executable():
    """The executable that is there, whatever its features are; if there is none, it is built as `scripts/bench` does."""
    executable = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "inferbench"
    if not executable.is_file():
        features = os.environ.get("INFERBENCH_FEATURES", "tch")
        say(f"building {executable} with the features {features}")
        subprocess.run([ROOT / "scripts/setup"], check=True)
        command = ["cargo", "build", "--locked", "--release", "--features", features, "--bin", "inferbench", "--bench", "inference"]
        subprocess.run(command, cwd=ROOT, check=True)
    return executable
