"""Makes the folder of an imported model. It runs in the environment that launch.py makes.

There are two forms. What an architecture of `scripts/export/zoo` computes becomes a folder as in models/zoo, with
weights.safetensors beside the graph and the archive that point into it, so that candle's own module reads it too. All else
becomes

    model.onnx            with its weights inside
    model.pt              a TorchScript archive, with its weights inside
    model.npz             inputs, and the outputs that the original gives for them
    model.toml            names, types and shapes of the inputs
    weights.safetensors   the state dict, where there is one; no backend reads it without a graph

A text model's tokenizer is copied as it is, and so is config.json, which says how long texts may be. Of the first form, config.json has the
library's defaults besides.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "export"))

import source
from source import Refused, say

TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "vocab.json", "merges.txt", "spiece.model", "config.json")


def main() -> None:
    arguments = source.arguments(sys.argv[1:])
    # Ended as by Ctrl-C, so that nothing half-made stays.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".importing-", dir=arguments.output.parent))
    # A level deeper than a model's own folder, so that nobody takes it for one.
    folder = partial / "model"
    code = 2
    try:
        folder.mkdir()
        convert(arguments, folder)
        os.rename(folder, arguments.output)
        code = 0
    except Refused as why:
        say(str(why))
    except KeyboardInterrupt:
        code = 130
    except MemoryError:
        say(f"{arguments.source} needs more memory than there is")
    except Exception as error:  # what torch, transformers and ONNX say of a file that they cannot use
        if os.environ.get("INFERBENCH_DEBUG"):
            raise
        say(f"{arguments.source}: {type(error).__name__}: {source.first_line(error)}")
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    sys.exit(code)


def convert(arguments, folder: Path) -> None:
    kind = source.kind_of(arguments.source, arguments.architecture)
    say(f"{arguments.source}: {kind}")
    # Not before the arguments are checked: these take seconds.
    import torch

    # What is random in an architecture before its weights are read.
    torch.manual_seed(0)
    if kind in ("folder", "hub"):
        import hub

        path = hub.download(arguments.source) if kind == "hub" else Path(arguments.source)
        hub.convert(path, arguments.name, folder)
        copy_texts(path, folder)
    elif kind == "state dict":
        import state_dict

        state_dict.convert(Path(arguments.source), arguments.architecture, arguments.name, folder)
    else:
        import graph_file

        graph_file.convert(Path(arguments.source), kind, arguments.input, folder)


def copy_texts(path: Path, folder: Path) -> None:
    """A config.json that is already written has what all runtimes look for; of the original one, it gets the other keys, such as labels."""
    own = folder / "config.json"
    written = source.read_config(folder) if own.is_file() else {}
    for name in TOKENIZER:
        if (path / name).is_file():
            shutil.copyfile(path / name, folder / name)
    if written:
        own.write_text(json.dumps({**source.read_config(path), **written}, indent=2) + "\n")


if __name__ == "__main__":
    main()
