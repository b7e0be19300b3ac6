"""The release executable of this checkout, and what else the scripts that measure with it have in common."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TARGET = ROOT / (os.environ.get("CARGO_TARGET_DIR") or "target")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "inferbench"

# More than inferbench makes of a case: with it, the budget says how long is measured, and not the suite.
UNREACHABLE_CALLS = "1000000000"


def say(text):
    print(text, file=sys.stderr, flush=True)


def count(text):
    """A number of rounds, calls or threads, as an argument."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1 on")
    return number


def duration(text):
    """A number of seconds, as an argument."""
    if not 0 < (number := float(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return number


def end_with(main):
    """Runs a script. What goes wrong outside of it is told in a sentence, with the last lines of a program that failed."""
    name = Path(sys.argv[0]).name
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        last = "".join(f"\n{line}" for line in (error.stderr or "").splitlines()[-5:])
        say(f"{name}: `{' '.join(map(str, error.cmd))}` ended with exit code {error.returncode}{':' if last else ''}{last}")
        sys.exit(max(error.returncode, 1))
    except (OSError, ValueError) as error:
        sys.exit(f"{name}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def inferbench_executable():
    """The executable that is there, whatever its features are; if there is none, it is built as `scripts/bench` does."""
    executable = TARGET / "release" / "inferbench"
    if not executable.is_file():
        features = os.environ.get("INFERBENCH_FEATURES") or "tch,candle-onnx,program"
        say(f"building {executable} with the features {features}")
        subprocess.run([ROOT / "scripts/setup"], check=True)
        command = ["cargo", "build", "--locked", "--release", "--features", features, "--bin", "inferbench", "--bench", "inference"]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "CARGO_TARGET_DIR": str(TARGET)}, check=True)
    return executable
