"""optimum-benchmark's latency of a network of the same architecture, on PyTorch in eager mode, with weights of its own.

It takes a model by a configuration of transformers: that of the packaged model, or here that of resnet50.
"""

import json
import shutil
import tempfile
from pathlib import Path

import packaged
import torch
import transformers
from optimum_benchmark import Benchmark, BenchmarkConfig, InferenceConfig, InlineConfig, PyTorchConfig

RESNET50 = {
    "architectures": ["ResNetForImageClassification"],
    "model_type": "resnet",
    "num_channels": 3,
    "embedding_size": 64,
    "hidden_sizes": [256, 512, 1024, 2048],
    "depths": [3, 4, 6, 3],
    "layer_type": "bottleneck",
    "hidden_act": "relu",
    "num_labels": 1000,
}
PICTURES = {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 224}}

asked = packaged.job()
with tempfile.TemporaryDirectory() as folder:
    if asked.model == "resnet50":
        task, network = "image-classification", transformers.AutoModelForImageClassification
        Path(folder, "config.json").write_text(json.dumps(RESNET50))
        Path(folder, "preprocessor_config.json").write_text(json.dumps(PICTURES))
    else:
        # Its generator of inputs for `feature-extraction` adds pictures. The head of this task is one small product.
        task, network = "text-classification", transformers.AutoModelForSequenceClassification
        shutil.copy(packaged.ROOT / "models/zoo" / asked.model / "config.json", folder)
    # With `no_weights` it would ask the hub for the configuration.
    network.from_config(transformers.AutoConfig.from_pretrained(folder)).save_pretrained(folder)
    backend = PyTorchConfig(
        model=folder,
        task=task,
        library="transformers",
        device="cpu",
        intra_op_num_threads=asked.threads,
        inter_op_num_threads=1,
    )
    shapes = {"batch_size": asked.batch_size, "num_channels": 3, "height": 224, "width": 224}
    if asked.sequence:
        shapes["sequence_length"] = asked.sequence
    scenario = InferenceConfig(
        input_shapes=shapes, warmup_runs=asked.warmup, iterations=packaged.LEAST_CALLS, duration=asked.seconds, latency=True, memory=True
    )
    config = BenchmarkConfig(name="peer", launcher=InlineConfig(), scenario=scenario, backend=backend)
    report = Benchmark.launch(config)
values = report.to_dict()["forward"]["latency"]["values"]
packaged.answer(f"torch {torch.__version__}", [seconds * 1e9 for seconds in values])
