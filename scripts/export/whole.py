"""Exports a model with a single graph, and its variants."""

import calibration
import description
import network
import package
import seeded
import train_digits
import variants
from entry import Entry


def export(entry: Entry) -> list[dict]:
    """Writes the model's files. Returns its row of the table, and one for each variant."""
    original = entry.original().eval()
    tried = package.tried_lengths(entry.sequence_lengths)
    inputs = [{p.name: seeded.samples(p, 0, package.SAMPLES, length) for p in entry.inputs} for length in tried]
    recorded, extra = {}, dict(entry.extra)
    if entry.init:
        shapes = network.layout_of(original).shapes
        weights = {n: seeded.tensor(network.SEED, n, shape, entry.init(n, shape)) for n, shape in shapes.items()}
    else:
        trained = train_digits.train(original)
        weights, extra["trained"] = trained.tensors, trained.note
        pictures = {"input": trained.pictures[: package.SAMPLES]}
        inputs.insert(0, pictures)
        recorded = {"input.input": pictures["input"], "label": trained.labels[: package.SAMPLES]}

    exported = network.export(entry, entry.name, original, entry.exportable, weights, inputs, recorded)
    if not entry.init:
        package.write_trained(f"{entry.name}.safetensors", exported.layout, weights)
        package.write_held_out(f"{entry.name}-held-out.safetensors", {"input": trained.pictures}, trained.labels)
    made = [variants.export(entry, variant, original, exported, inputs, recorded) for variant in entry.variants]
    model_toml = description.model_toml(
        entry, exported.parameters, exported.tolerance, extra, [variant.table for variant in made]
    )
    package.write(entry.name, {"model.toml": model_toml, **exported.files})
    if entry.quantized:
        calibration.write(entry)
    return [exported.row, *(variant.row for variant in made)]
