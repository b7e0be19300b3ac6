"""The models, one file a family."""

from zoo import digits, resnet, tenn, vit

ENTRIES = {entry.name: entry for entry in (resnet.RESNET50, vit.VIT_B_16, tenn.TENN_EEG, digits.DIGITS)}
