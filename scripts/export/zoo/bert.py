"""BERT: tokens to the pooled state of the first one."""

from transformers import BertConfig, BertModel

import text_masks
from entry import Entry, Port
from published import Published
from transformer_init import transformer_init


def _entry(name: str, config: BertConfig, source: str, sequence_lengths: list[int], quantized: bool = False) -> Entry:
    def original():
        model = BertModel._from_config(config, attn_implementation="eager")
        return Published(model, lambda model, tokens, mask: model(tokens, attention_mask=mask).pooler_output)

    def exportable():
        return Published(BertModel._from_config(config, attn_implementation="sdpa"), _pooled)

    return Entry(
        name=name,
        family="bert",
        modality="text",
        source=f"transformers 5.23.0, BertModel; {source}",
        license="Apache-2.0",
        inputs=[
            Port("input_ids", "i64", ["batch", "sequence"], below=config.vocab_size),
            Port("attention_mask", "i64", ["batch", "sequence"], constant=1),
        ],
        outputs=[Port("pooler_output", "f32", ["batch", config.hidden_size])],
        original=original,
        exportable=exportable,
        init=transformer_init,
        sequence_lengths=sequence_lengths,
        quantized=quantized,
    )


def _pooled(model, tokens, mask):
    # One segment for all tokens: its embedding is looked up once.
    segment = tokens.new_zeros(1, 1)
    return model(tokens, attention_mask=text_masks.padding(mask), token_type_ids=segment).pooler_output


BERT_SMALL = _entry(
    "bert-small",
    BertConfig(
        vocab_size=1000,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=128,
    ),
    "2 layers of width 128",
    [32],
    quantized=True,
)
BERT_BASE = _entry("bert-base", BertConfig(), "configuration of google-bert/bert-base-uncased", [32, 128])
