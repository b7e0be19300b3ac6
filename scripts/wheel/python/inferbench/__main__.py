"""`python -m inferbench` is the command `inferbench`."""

import os
import subprocess
import sys

from . import executable


def main() -> int:
    command = [executable(), *sys.argv[1:]]
    if os.name == "nt":
        return subprocess.call(command)
    os.execv(command[0], command)
    return 0


if __name__ == "__main__":
    sys.exit(main())
