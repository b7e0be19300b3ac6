"""BERT: computes the pooled state of the first token, or an embedding of all tokens."""

import torch
from transformers import BertConfig, BertModel

import text_masks
from entry import Entry, Port
from published import Published
from transformer_init import transformer_init
from zoo.clip import normalized


def _mean(output, mask: torch.Tensor) -> torch.Tensor:
    """The mean of the states of all tokens, [batch, width]."""
    tokens = mask.to(torch.float32)[:, :, None]
    return (output.last_hidden_state * tokens).sum(1) / tokens.sum(1)


# Embeddings of a text, by the name of the output. `sentence_embedding` is that of sentence-transformers, with length 1.
EMBEDDINGS = {
    "pooler_output": lambda output, mask: output.pooler_output,
    "mean_state": _mean,
    "sentence_embedding": lambda output, mask: normalized(_mean(output, mask)),
}


def entry_of(
    name: str,
    config: BertConfig,
    source: str,
    sequence_lengths: list[int],
    quantized: bool = False,
    output: str = "pooler_output",
) -> Entry:
    embed = EMBEDDINGS[output]

    def build(attention: str, call) -> Published:
        pooler = output == "pooler_output"
        model = BertModel._from_config(config, attn_implementation=attention, add_pooling_layer=pooler)
        return Published(model, lambda model, tokens, mask: embed(call(model, tokens, mask), mask))

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
        outputs=[Port(output, "f32", ["batch", config.hidden_size])],
        original=lambda: build("eager", lambda model, tokens, mask: model(tokens, attention_mask=mask)),
        exportable=lambda: build("sdpa", _exportable),
        init=transformer_init,
        sequence_lengths=sequence_lengths,
        quantized=quantized,
    )


def _exportable(model, tokens, mask):
    # All tokens have the same segment, so its embedding is looked up once.
    segment = tokens.new_zeros(1, 1)
    return model(tokens, attention_mask=text_masks.padding(mask), token_type_ids=segment)


BERT_SMALL = entry_of(
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
BERT_BASE = entry_of("bert-base", BertConfig(), "configuration of google-bert/bert-base-uncased", [32, 128])
