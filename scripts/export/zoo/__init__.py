"""The models, one file a family."""

from zoo import bert, causal_lm, clap, clip, detr, digits, resnet, t5, tenn, vit, wav2vec2, whisper, xclip

_ALL = (
    resnet.RESNET50,
    vit.VIT_B_16,
    tenn.TENN_EEG,
    digits.DIGITS,
    bert.BERT_SMALL,
    vit.VIT_SMALL,
    clip.CLIP_SMALL,
    wav2vec2.WAV2VEC2_SMALL,
    detr.DETR_SMALL,
    clap.CLAP_SMALL,
    xclip.XCLIP_SMALL,
    causal_lm.LLAMA_SMALL,
    t5.T5_TINY,
    whisper.WHISPER_MINI,
    bert.BERT_BASE,
    vit.VIT_BASE,
    clip.CLIP_B32,
    wav2vec2.WAV2VEC2_BASE,
    detr.DETR_R50,
    clap.CLAP,
    xclip.XCLIP_B32,
)
ENTRIES = {entry.name: entry for entry in _ALL}
