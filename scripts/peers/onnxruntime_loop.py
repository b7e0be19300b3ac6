"""A plain loop over Python's onnxruntime."""

import onnxruntime
import packaged

asked = packaged.job()
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads = asked.threads, 1
graph = str(packaged.prepared(asked.model) / "model.onnx")
session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
feeds = packaged.batches(asked)
times = packaged.time_calls(lambda position: session.run(None, feeds[position]), asked)
packaged.answer(f"onnxruntime {onnxruntime.__version__}", times)
