"""The architectures of transformers in `scripts/export/zoo`, in the sizes of any configuration."""

import transformers
from entry import Entry, Generative
from zoo import bert, causal_lm, clip, t5, vit, wav2vec2, whisper

EMBEDDINGS = tuple(bert.EMBEDDINGS)
# The references have texts of these lengths, as far as the model takes them.
LENGTHS = (32, 128)


def text_lengths(longest: int) -> list[int]:
    return [length for length in LENGTHS if length <= longest] or [longest]


def entry_of(architecture: str, name: str, config, note: str, embedding: str | None) -> Entry | Generative | None:
    """The entry of an architecture, or `None` if the zoo lacks it. `embedding` is the output that is computed from
    BERT's states."""
    lengths = text_lengths(getattr(config, "max_position_embeddings", LENGTHS[-1]))
    match architecture:
        case "BertModel":
            return bert.entry_of(name, config, note, lengths, output=embedding or "pooler_output")
        case "ViTForImageClassification" if config.num_channels == 3 and isinstance(config.image_size, int):
            return vit.entry_of(name, config, note)
        # With another value, the end of a text is not the token with the highest number.
        case "CLIPModel" if config.text_config.eos_token_id == 2:
            return clip.entry_of(name, config, note, text_lengths(config.text_config.max_position_embeddings))
        case "LlamaForCausalLM" | "Qwen2ForCausalLM" if causal_lm.is_same_at_all_lengths(config):
            return causal_lm.entry_of(name, getattr(transformers, architecture), config, note, lengths)
        case "T5ForConditionalGeneration" if not config.is_gated_act and getattr(config, "scale_decoder_outputs", True):
            return t5.entry_of(name, config, note, text_lengths(512))
        case "WhisperForConditionalGeneration":
            return whisper.entry_of(name, config, note)
        case "Wav2Vec2ForCTC" if not config.do_stable_layer_norm and config.feat_extract_norm == "group":
            return wav2vec2.entry_of(name, config, note, [16000])
    return None
