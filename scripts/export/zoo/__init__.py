"""The models, one file a family."""

from zoo import bert, clip, digits, resnet, tenn, vit, wav2vec2

_ALL = (
    resnet.RESNET50,
    vit.VIT_B_16,
    tenn.TENN_EEG,
    digits.DIGITS,
    bert.BERT_SMALL,
    vit.VIT_SMALL,
    clip.CLIP_SMALL,
    wav2vec2.WAV2VEC2_SMALL,
    bert.BERT_BASE,
    vit.VIT_BASE,
    clip.CLIP_B32,
    wav2vec2.WAV2VEC2_BASE,
)
ENTRIES = {entry.name: entry for entry in _ALL}
