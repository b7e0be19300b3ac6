"""The models, one file a family."""

from zoo import bert, causal_lm, clap, clip, detr, digits, gpt2, llava, resnet, t5, tenn, vit, wav2vec2, whisper, xclip

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
    causal_lm.QWEN2_SMALL,
    gpt2.GPT2_TINY,
    llava.LLAVA_SMALL,
    llava.LLAVA_NEXT_SMALL,
    bert.BERT_BASE,
    vit.VIT_BASE,
    clip.CLIP_B32,
    wav2vec2.WAV2VEC2_BASE,
    detr.DETR_R50,
    clap.CLAP,
    xclip.XCLIP_B32,
    causal_lm.QWEN2_05B,
    causal_lm.TINYLLAMA,
    gpt2.GPT2,
    t5.T5_SMALL,
    whisper.WHISPER_TINY,
    llava.LLAVA_05B,
    llava.LLAVA_NEXT_05B,
)
ENTRIES = {entry.name: entry for entry in _ALL}
