"""Loads a model of transformers from a model hub's folder: config.json with safetensors or pytorch_model.bin."""

from __future__ import annotations

import pickle
from pathlib import Path

import source
import torch
import transformers
from entry import Port
from source import Refused

transformers.utils.logging.disable_progress_bar()


def class_of(folder: Path):
    """The class of the architecture, and the folder's configuration, set to f32."""
    raw = source.read_config(folder)
    architecture = raw["architectures"][0]
    model_class = getattr(transformers, str(architecture), None)
    if not (isinstance(model_class, type) and issubclass(model_class, transformers.PreTrainedModel)):
        raise Refused(f"{folder / 'config.json'}: transformers {transformers.__version__} has no architecture {architecture}")
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    if not isinstance(config, model_class.config_class):
        raise Refused(f"{folder / 'config.json'}: the model_type {raw['model_type']} is not that of {architecture}")
    for part in [config, *(getattr(config, key, None) for key in config.sub_configs)]:
        if part is not None:
            part.dtype = torch.float32
    return model_class, config


def load(model_class, config, folder: Path, attention: str | None) -> tuple[torch.nn.Module, bool, str | None]:
    """The model with the folder's weights in f32, whether its pooler lacks weights, and a remark if it does not take
    all of the folder's tensors. No part but the pooler may lack weights.

    `attention` is the implementation in transformers; `None` for its default.
    """
    dtype = "dtype" if tuple(map(int, transformers.__version__.split(".")[:2])) >= (4, 56) else "torch_dtype"
    options = {dtype: torch.float32, "attn_implementation": attention, "local_files_only": True, "trust_remote_code": False}
    reports = {"ignore_mismatched_sizes": True, "output_loading_info": True}
    try:
        model, said = model_class.from_pretrained(folder, config=config, **options, **reports)
    except pickle.UnpicklingError:
        raise source.runs_code(source.weight_files(folder)[0]) from None
    if mismatched := sorted(said["mismatched_keys"]):
        name, own, wanted = mismatched[0]
        shapes = f"{name} is {list(own)}, and config.json makes it {list(wanted)}"
        raise Refused(f"{folder}: {len(mismatched)} of the weights have other sizes than config.json says, such as {shapes}")
    # Only training uses this tensor, and published wav2vec2 folders lack it.
    missing = sorted(name for name in said["missing_keys"] if not name.endswith("masked_spec_embed"))
    lacks_pooler = bool(missing) and all(name.startswith("pooler.") for name in missing)
    if missing and not lacks_pooler:
        raise Refused(f"{folder}: the weights lack tensors of the architecture ({len(missing)}), such as {missing[0]}")
    unused = sorted(said["unexpected_keys"])
    remark = None
    if unused:
        why = f"{model_class.__name__} has no such part with this config.json"
        remark = f"the folder has tensors that are not used ({len(unused)}), such as {unused[0]}: {why}"
    return model.eval(), lacks_pooler, remark


def ports_of(model_class, config) -> tuple[list[Port], str]:
    """The inputs of a forward pass, and the model's modality."""
    name = model_class.main_input_name
    # A multimodal model has a configuration for each kind of input, and takes more than tokens.
    is_text = hasattr(config, "vocab_size") and not config.is_encoder_decoder
    if is_text and name == "input_ids":
        tokens = Port("input_ids", "i64", ["batch", "sequence"], below=config.vocab_size)
        return [tokens, Port("attention_mask", "i64", ["batch", "sequence"], constant=1)], "text"
    if name == "pixel_values":
        size = getattr(config, "image_size", 224)
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        return [Port("pixel_values", "f32", ["batch", getattr(config, "num_channels", 3), height, width])], "image"
    if name == "input_values" and not config.is_encoder_decoder:
        # Samples of audio, or frames of a spectrogram.
        is_spectrogram = hasattr(config, "max_length") and hasattr(config, "num_mel_bins")
        sizes = [config.max_length, config.num_mel_bins] if is_spectrogram else [16000]
        return [Port("input_values", "f32", ["batch", *sizes])], "audio"
    raise Refused(f"the inputs of {model_class.__name__} are not known: export it to ONNX, and import or run that file")
