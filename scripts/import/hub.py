"""Imports a folder from a model hub: config.json with safetensors or pytorch_model.bin."""

import dataclasses
import json
from pathlib import Path

import architectures
import check
import files
import packaged
import pretrained
import source
import text_masks
import torch
from entry import Entry, Generative, Port
from published import Published
from source import Refused, say
from zoo import bert

ALLOWED = ["*.json", "*.txt", "*.model", "*.safetensors", "*.bin"]
# Further copies of the weights, and files for other runtimes.
IGNORED = ["*/*.bin", "*/*.safetensors", "onnx/*", "openvino/*"]
# The answers of models without logits or boxes. The first one that a model has is its output.
ANSWERS = ("predicted_depth", "reconstruction", "image_embeds", "text_embeds", "pooler_output", "last_hidden_state")


def download(hub_id: str) -> Path:
    """The folder in which the hub's own client keeps the model."""
    import huggingface_hub

    try:
        names = [file.rfilename for file in huggingface_hub.model_info(hub_id, timeout=10).siblings]
    except Exception:  # without a network, the client uses what it downloaded before
        names = []
    try:
        bins = ["*.bin"] if any(name.endswith(".safetensors") and "/" not in name for name in names) else []
        folder = Path(huggingface_hub.snapshot_download(hub_id, allow_patterns=ALLOWED, ignore_patterns=IGNORED + bins))
    except Exception as error:
        raise Refused(
            f"there is no file or folder {hub_id}, and the hub's client cannot get a model with that id "
            f"({source.first_line(error)}): download its folder on a machine with a network, and name the folder"
        ) from error
    source.check_folder(folder)
    return folder


def convert(folder: Path, name: str, output: Path) -> None:
    model_class, config = pretrained.class_of(folder)
    architecture = model_class.__name__
    model, lacks_pooler, remark = pretrained.load(model_class, config, folder, "eager")
    if remark:
        say(remark)
    embedding = sentence_embedding(folder)
    if lacks_pooler and not embedding and architecture == "BertModel":
        say("the weights have no pooler: the output is the mean of the states")
        embedding = "mean_state"
    note = f"imported from {folder.resolve().name}"
    made = architectures.entry_of(architecture, name, config, note, embedding)
    if isinstance(made, Generative):
        packaged.write_generative(dataclasses.replace(made, build=lambda: model), output)
    elif isinstance(made, Entry):
        published = packaged.numpy_weights(Published(model, None))
        wanted = {n for n, _ in made.original().named_parameters()}
        packaged.write(made, {n: value for n, value in published.items() if n in wanted}, output)
    else:
        generic(model, architecture, config, lacks_pooler, embedding, output)


def sentence_embedding(folder: Path) -> str | None:
    """The embedding that sentence-transformers computes from the states, as a name in `architectures.EMBEDDINGS`.
    `None` if the folder lacks its files or it computes another one."""
    modules, pooling = folder / "modules.json", folder / "1_Pooling" / "config.json"
    if not modules.is_file() or not pooling.is_file():
        return None
    try:
        kinds = [module["type"].rsplit(".", 1)[-1] for module in json.loads(modules.read_text())]
        said = {key: value for key, value in json.loads(pooling.read_text()).items() if key.startswith("pooling_mode") and value}
        # A key for each way of pooling, or, in newer files, one key that names the way.
        ways = {str(value) if key == "pooling_mode" else key.removeprefix("pooling_mode_") for key, value in said.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Refused(f"{modules} or {pooling} is not a file that sentence-transformers writes") from None
    # With several ways, sentence-transformers concatenates their vectors.
    if ways in ({"mean"}, {"mean_tokens"}) and kinds[:2] == ["Transformer", "Pooling"]:
        if kinds[2:] in ([], ["Normalize"]):
            return "sentence_embedding" if kinds[2:] else "mean_state"
    say(f"{', '.join(kinds)} with {', '.join(sorted(ways))} is left out: the output is the model's own")
    return None


def _mask(given: dict, config) -> dict:
    return {"attention_mask": text_masks.padding(given["attention_mask"])}


def _positions(given: dict, config) -> dict:
    return {"position_ids": text_masks.positions(given["input_ids"], config.pad_token_id)}


def _one_segment(given: dict, config) -> dict:
    return {"token_type_ids": given["input_ids"].new_zeros(1, 1)}


# These arguments make a text model compute its masks and positions with operators that every backend has. Which ones a
# model takes differs.
REWRITES = ((_mask, _positions, _one_segment), (_mask, _one_segment), (_mask, _positions), (_mask,))


class Call(torch.nn.Module):
    """A model of transformers as a function of tensors. `rewrites` replace or add arguments."""

    def __init__(self, model: torch.nn.Module, inputs: list[str], outputs: list[str], rewrites: tuple = ()):
        super().__init__()
        self.model, self.inputs, self.outputs, self.rewrites = model, inputs, outputs, rewrites

    def forward(self, *values: torch.Tensor):
        given = dict(zip(self.inputs, values))
        made = [rewrite(given, self.model.config) for rewrite in self.rewrites]
        for arguments in made:
            given |= arguments
        output = self.model(**given, return_dict=True)
        mask = dict(zip(self.inputs, values)).get("attention_mask")
        return tuple(bert.EMBEDDINGS[name](output, mask) if name in bert.EMBEDDINGS else output[name] for name in self.outputs)


def exportable(model: torch.nn.Module, ports: list[Port], outputs: list[str]) -> Call:
    """The model with the first of `REWRITES` that does not change its outputs."""
    names = [port.name for port in ports]
    original = Call(model, names, outputs)
    feed = {port.name: files.value(port, {"batch": 2, "sequence": 8}) for port in ports}
    for rewrites in REWRITES:
        try:
            call = Call(model, names, outputs, rewrites)
            files.largest_error(lambda feed: check.eager(call, feed), [feed], [check.eager(original, feed)], 1e-5)
            return call
        except Exception:  # a model that lacks one of the arguments, or makes another mask
            continue
    return original


def generic(model, architecture: str, config, lacks_pooler: bool, embedding: str | None, output: Path) -> None:
    """Exports any other architecture by its own forward pass."""
    if hasattr(model.config, "use_cache"):
        model.config.use_cache = False
    ports, modality = pretrained.ports_of(type(model), config)
    example = {port.name: torch.from_numpy(files.value(port, {"batch": 2, "sequence": 8})) for port in ports}
    with torch.no_grad():
        answer = model(**example, return_dict=True)
    tensors = [key for key, value in answer.items() if isinstance(value, torch.Tensor)]
    if lacks_pooler:
        tensors.remove("pooler_output")
    chosen = [key for key in tensors if "logits" in key or key == "pred_boxes"]
    chosen = chosen or [key for key in ANSWERS if key in tensors][:1]
    if embedding and "last_hidden_state" in tensors and modality == "text":
        chosen = [embedding]
    if not chosen:
        raise Refused(f"{architecture} returns {', '.join(answer)}, and none of these is a known output")
    # Some models have positions for shorter texts only.
    longest = getattr(config, "max_position_embeddings", None) or files.LENGTH
    length = min(files.LENGTH, longest) if longest > 0 else files.LENGTH
    say(f"candle runs the graph of {architecture}")
    call = exportable(model, ports, chosen)
    files.write(call, ports, chosen, output, family=config.model_type, modality=modality, length=length)
