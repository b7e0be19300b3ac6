"""Makes the folder of an imported model. It runs in the environment that launch.py makes.

The folder has one of two forms. A model of an architecture in `scripts/export/zoo` becomes a folder as in models/zoo.
Its graph and archive refer to weights.safetensors, which candle's own module reads, too. The folder of any other model
contains:

    model.onnx            with its weights inside
    model.pt              a TorchScript archive, with its weights inside
    model.npz             inputs, and the original's outputs for them
    model.toml            names, types and shapes of the inputs
    weights.safetensors   the state dict, if there is one; no backend reads it without a graph

A text model's tokenizer is copied as it is, and so is config.json, which limits the length of texts. In the first form,
config.json also has the library's defaults.
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
    # SIGTERM has the effect of Ctrl-C, so that nothing half-made stays.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".importing-", dir=arguments.output.parent))
    # One level deeper than the folders of models, so that it is not taken for one.
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
        say(f"{arguments.source} needs more memory than is available")
    except Exception as error:  # of torch, transformers or ONNX, about a file that they cannot use
        if os.environ.get("INFERBENCH_DEBUG"):
            raise
        say(f"{arguments.source}: {type(error).__name__}: {source.first_line(error)}")
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    sys.exit(code)


def convert(arguments, folder: Path) -> None:
    kind = source.kind_of(arguments.source, arguments.architecture, arguments.input)
    say(f"{arguments.source}: {kind}")
    # These imports take seconds, so the arguments are checked first.
    import torch

    # An architecture has random weights until the file's are loaded.
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
    """Copies the tokenizer and config.json. If the folder already has a config.json, that one only gets the original's
    other keys, such as labels."""
    own = folder / "config.json"
    written = source.read_config(folder) if own.is_file() else {}
    for name in TOKENIZER:
        if (path / name).is_file():
            shutil.copyfile(path / name, folder / name)
    if written:
        own.write_text(json.dumps({**source.read_config(path), **written}, indent=2) + "\n")


if __name__ == "__main__":
    main()
