"""Writes `tests/data/judges.json`: answers, and what others make of them.

    python tests/data/judges.py

The figures are those of pycocotools 2.0.11 (mean average precision), jiwer 4.0 (error rates), scikit-learn 1.9.1 (Jaccard index, area under the
curve, percentage error), SciPy 1.17 (Somers' D), scikit-image 0.26.0 (signal to noise) and numpy 2.4 (retrieval, cosine, perplexity), none of
which shares code with inferbench. The same bytes every time.
"""

import contextlib
import io
import json
from pathlib import Path

import jiwer
import numpy
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from scipy.stats import somersd
from skimage.metrics import peak_signal_noise_ratio
from sklearn.metrics import jaccard_score, mean_absolute_percentage_error, roc_auc_score

DATA = Path(__file__).with_name("judges.json")
RANDOM = numpy.random.default_rng(20260101)


def rounded(values, digits=4):
    return numpy.round(values, digits).tolist()


def random_box():
    left, top = RANDOM.uniform(0, 60, 2)
    width, height = RANDOM.uniform(8, 40, 2)
    return [left, top, left + width, top + height]


def boxes(pictures=12, classes=4):
    """Right boxes, and found ones near them, elsewhere, twice and of other classes; scores come more than once."""
    right, found = [], []
    for _ in range(pictures):
        of_picture = [(random_box(), int(RANDOM.integers(classes))) for _ in range(RANDOM.integers(0, 6))]
        answers = []
        for corners, kind in of_picture:
            for _ in range(RANDOM.integers(0, 3)):
                moved = numpy.array(corners) + RANDOM.normal(0, 2.0, 4)
                named = kind if RANDOM.uniform() < 0.85 else int(RANDOM.integers(classes))
                answers.append((moved, named, RANDOM.uniform(0.3, 1.0)))
        for _ in range(RANDOM.integers(0, 4)):
            answers.append((random_box(), int(RANDOM.integers(classes)), RANDOM.uniform(0.0, 0.7)))
        right.append([{"corners": rounded(corners, 2), "class": kind} for corners, kind in of_picture])
        found.append(
            [{"corners": rounded(it[0], 2), "class": it[1], "score": round(float(it[2]), 1)} for it in answers]
        )
    precision = coco(found, right, classes)
    return {"found": found, "right": right, "map": precision[0], "map50": precision[1]}


def coco(found, right, classes):
    def listed(pictures):
        for picture, answers in enumerate(pictures):
            for it in answers:
                x1, y1, x2, y2 = numpy.array(it["corners"], dtype=numpy.float32).astype(float).tolist()
                box = [x1, y1, x2 - x1, y2 - y1]
                yield {"image_id": picture + 1, "category_id": it["class"] + 1, "bbox": box, "area": box[2] * box[3]}

    annotations = [{**it, "id": number + 1, "iscrowd": 0} for number, it in enumerate(listed(right))]
    scores = [it["score"] for answers in found for it in answers]
    results = [{**it, "score": score} for it, score in zip(listed(found), scores)]
    dataset = COCO()
    dataset.dataset = {
        "info": {},
        "images": [{"id": number + 1} for number in range(len(right))],
        "annotations": annotations,
        "categories": [{"id": number + 1, "name": str(number)} for number in range(classes)],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        dataset.createIndex()
        evaluation = COCOeval(dataset, dataset.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation.stats[:2].tolist()


def transcripts(sounds=10, words=8):
    """Transcripts of words that are numbers, with words added, left out and replaced."""
    right = [RANDOM.integers(words, size=RANDOM.integers(1, 9)).tolist() for _ in range(sounds)]
    said = []
    for sentence in right:
        heard = []
        for word in sentence:
            chance = RANDOM.uniform()
            if chance < 0.1:
                continue
            heard.append(word if chance < 0.8 else int(RANDOM.integers(words)))
            if chance > 0.93:
                heard.append(int(RANDOM.integers(words)))
        said.append(heard)
    # One sound of which nothing is heard.
    said[0] = []
    text = [[" ".join(map(str, sentence)) for sentence in sentences] for sentences in (right, said)]
    return {"right": right, "said": said, "error_rate": jiwer.wer(*text)}


def embeddings(samples=40, width=11, groups=6):
    centres = RANDOM.normal(size=(groups, width))
    labels = RANDOM.integers(groups, size=samples)
    original = (centres[labels] + RANDOM.normal(size=(samples, width))).astype(numpy.float32)
    variant = (original + 0.9 * RANDOM.normal(size=(samples, width))).astype(numpy.float32)
    original, variant = (numpy.array(rounded(rows), dtype=numpy.float32) for rows in (original, variant))
    unit = [rows.astype(float) / numpy.linalg.norm(rows.astype(float), axis=1, keepdims=True) for rows in (original, variant)]
    cosines = unit[1] @ unit[0].T
    own = unit[1] @ unit[1].T
    numpy.fill_diagonal(own, -2)
    return {
        "original": rounded(original),
        "variant": rounded(variant),
        "labels": labels.tolist(),
        "of_group": float((labels[own.argmax(1)] == labels).mean()),
        "of_sample": float((cosines.argmax(1) == numpy.arange(samples)).mean()),
        "cosine": float(numpy.diag(cosines).mean()),
    }


def texts(samples=5, vocabulary=9):
    lengths = RANDOM.integers(3, 8, size=samples)

    def read(logits, tokens):
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_probabilities = shifted - numpy.log(numpy.exp(shifted).sum(axis=1, keepdims=True))
        losses = -log_probabilities[numpy.arange(len(tokens)), tokens]
        return {"likeliest": logits.argmax(axis=1).tolist(), "loss": float(losses.sum())}

    logits = [RANDOM.normal(size=(length, vocabulary)) for length in lengths]
    others = [rows + 0.4 * RANDOM.normal(size=rows.shape) for rows in logits]
    tokens = [RANDOM.integers(vocabulary, size=length) for length in lengths]
    original = [read(*both) for both in zip(logits, tokens)]
    variant = [read(*both) for both in zip(others, tokens)]
    count = int(lengths.sum())
    perplexity = [float(numpy.exp(sum(text["loss"] for text in read) / count)) for read in (original, variant)]
    same = sum(
        one == other
        for pair in zip(original, variant)
        for one, other in zip(pair[0]["likeliest"], pair[1]["likeliest"])
    )
    return {
        "original": original,
        "variant": variant,
        "perplexity": perplexity[1],
        "perplexity_change": perplexity[1] / perplexity[0] - 1,
        "token_agreement": same / count,
    }


def masks(samples=7, classes=5, height=4, width=6):
    """Masks of pixels, some of which are ignored; one class is in no mask, and one is found only where there is none."""
    right = RANDOM.integers(classes - 2, size=(samples, height, width))
    scores = RANDOM.normal(size=(samples, classes - 1, height, width)) + 2.0 * (
        right[:, None] == numpy.arange(classes - 1)[:, None, None]
    )
    scores = numpy.array(rounded(scores, 2))
    found = scores.argmax(1)
    right[RANDOM.uniform(size=right.shape) < 0.15] = 255
    known = right != 255
    original = numpy.where(RANDOM.uniform(size=found.shape) < 0.1, 1, found)
    return {
        # The last class has no pixel.
        "scores": numpy.concatenate([scores, numpy.full((samples, 1, height, width), -9.0)], 1).reshape(samples, -1).tolist(),
        "classes": classes,
        "right": right.reshape(samples, -1).tolist(),
        "original": original.reshape(samples, -1).tolist(),
        "mean_iou": jaccard_score(right[known], found[known], average="macro"),
        "mean_iou_of_original": jaccard_score(right[known], original[known], average="macro"),
        "mean_iou_beside": jaccard_score(original.ravel(), found.ravel(), average="macro"),
    }


def depths(samples=9, pixels=20):
    """Depths of pixels, some of which are not known and 0."""
    right = numpy.array(rounded(RANDOM.uniform(0.5, 9.0, size=(samples, pixels))))
    found = numpy.array(rounded(right * RANDOM.normal(1.0, 0.1, size=right.shape)))
    right[RANDOM.uniform(size=right.shape) < 0.2] = 0
    errors = [mean_absolute_percentage_error(row[row > 0], other[row > 0]) for row, other in zip(right, found)]
    return {"right": right.tolist(), "found": found.tolist(), "abs_rel": float(numpy.mean(errors))}


def rankings(samples=60):
    """Scores with equal ones among them, and what was chosen."""
    labels = RANDOM.integers(2, size=samples)
    scores = numpy.round(RANDOM.normal(labels * 0.8, 1.0), 1)
    original = numpy.round(scores + RANDOM.normal(0, 0.4, size=samples), 1)
    return {
        "labels": labels.tolist(),
        "scores": scores.tolist(),
        "original": original.tolist(),
        "auc": roc_auc_score(labels, scores),
        "auc_of_original": roc_auc_score(labels, original),
        # Of the pairs that the original orders: those in the same order and half of the equal ones.
        "concordance": float((somersd(original, scores).statistic + 1) / 2),
    }


def signals(samples=6, length=30):
    right = numpy.array(rounded(RANDOM.normal(size=(samples, length))), dtype=numpy.float32)
    found = numpy.array(rounded(right + 0.05 * RANDOM.normal(size=right.shape)), dtype=numpy.float32)
    ratios = [
        peak_signal_noise_ratio(row.astype(float), other.astype(float), data_range=float(row.max()) - float(row.min()))
        for row, other in zip(right, found)
    ]
    return {"right": rounded(right), "found": rounded(found), "psnr": float(numpy.mean(ratios))}


if __name__ == "__main__":
    known = {
        "boxes": boxes(),
        "transcripts": transcripts(),
        "embeddings": embeddings(),
        "texts": texts(),
        "masks": masks(),
        "depths": depths(),
        "rankings": rankings(),
        "signals": signals(),
    }
    DATA.write_text(json.dumps(known) + "\n")
    for name, judged in known.items():
        print(name, {key: value for key, value in judged.items() if isinstance(value, float)})
