//! The operators that libtorch executes, and the modules that they belong to.

use std::collections::BTreeSet;
use std::time::Instant;

use inferbench::backend::{self, LoadRequest};
use inferbench::catalogue::read_catalogue;
use inferbench::definition::{Dtype, Phase, Sizes};
use inferbench::fixture::{batch, prepare_and_hold};
use inferbench::run_data::{OperatorCall, RecordedCall};

use crate::support::checkout;

/// Calls of a packaged model under the profiler, each with how many nanoseconds it took.
fn profile(
    model: &str,
    variant: &str,
    dtype: Dtype,
    phase: Phase,
    sequence: Option<usize>,
) -> Vec<(RecordedCall, u64)> {
    let catalogue = read_catalogue(&checkout().join("models")).unwrap();
    let models = catalogue.into_iter().filter_map(|entry| entry.model.ok());
    let model = models.into_iter().find(|found| found.name == model && found.variant == variant).unwrap();
    let prepared = tempfile::tempdir().unwrap();
    let held = prepare_and_hold(&model, prepared.path(), dtype).unwrap();
    let sizes = Sizes { batch: 2, sequence };
    let (model, artifacts) = (&model, &held.artifacts);
    let request =
        LoadRequest { model, artifacts, phase, sizes, device: "cpu", dtype, threads: 1, instances: 1, callers: 1 };
    let mut session = backend::find("tch").unwrap().load_profiled(&request).unwrap();
    let binding = session.bind(&batch(model, None, 0, sizes).unwrap()).unwrap();
    (0..4).for_each(|_| session.run(binding).unwrap());
    session.begin().unwrap();
    let times: Vec<u64> = (0..3)
        .map(|_| {
            let begin = Instant::now();
            session.run(binding).unwrap();
            begin.elapsed().as_nanos() as u64
        })
        .collect();
    let calls = session.end().unwrap();
    assert_eq!(calls.len(), times.len());
    calls.into_iter().zip(times).collect()
}

fn modules(calls: &[(RecordedCall, u64)]) -> BTreeSet<&str> {
    calls[0].0.operators.iter().filter_map(|operator| operator.module.as_deref()).collect()
}

/// Operators follow each other within the call, and are the same in each.
fn check(calls: &[(RecordedCall, u64)]) {
    let known = |operator: &OperatorCall| OperatorCall { start_ns: None, duration_ns: 0, ..operator.clone() };
    for (call, nanoseconds) in calls {
        let mut end = 0;
        for operator in &call.operators {
            assert!(operator.start_ns.unwrap() >= end, "{operator:?}");
            end = operator.start_ns.unwrap() + operator.duration_ns;
        }
        assert!(end <= *nanoseconds, "{end} of {nanoseconds} ns");
        assert!(call.operators.iter().map(known).eq(calls[0].0.operators.iter().map(known)));
    }
}

#[test]
fn every_operator_of_a_network_of_modules_has_its_module_and_kernel() {
    let calls = profile("digits", "original", Dtype::F32, Phase::Forward, None);
    check(&calls);
    let found: Vec<(&str, &str)> =
        calls[0].0.operators.iter().map(|one| (&*one.operator, one.module.as_deref().unwrap())).collect();
    let expected = [
        ("aten::_convolution", "conv1"),
        ("aten::relu", "relu1"),
        ("aten::max_pool2d", "pool1"),
        ("aten::_convolution", "conv2"),
        ("aten::relu", "relu2"),
        ("aten::max_pool2d", "pool2"),
        ("aten::flatten", "flatten"),
        ("aten::linear", "fc1"),
        ("aten::relu", "relu3"),
        ("aten::linear", "fc2"),
    ];
    assert_eq!(found, expected);
    // In an operator as small as the last linear layer, copying the bias may take longer than the product.
    assert_eq!(calls[0].0.operators[0].kernel.as_deref(), Some("aten::mkldnn_convolution"));
    let last = calls[0].0.operators.last().unwrap();
    // The output of the first convolution: 2 x 8 x 8 x 8 numbers at least.
    assert!(last.memory_bytes.unwrap() >= 4096, "{last:?}");
}

#[test]
fn parameters_tell_the_modules_of_a_network_that_is_one_function() {
    let calls = profile("bert-small", "original", Dtype::Bf16, Phase::Forward, Some(16));
    check(&calls);
    let found = modules(&calls);
    for module in ["embeddings.word_embeddings", "encoder.layer.1.attention.self.query", "pooler.dense"] {
        assert!(found.contains(module), "{found:?}");
    }
}

#[test]
fn the_phases_of_a_language_model_have_their_own_operators() {
    let prefill = profile("llama-small", "original", Dtype::F32, Phase::Prefill, Some(8));
    let decode = profile("llama-small", "original", Dtype::F32, Phase::Decode, Some(8));
    for calls in [&prefill, &decode] {
        check(calls);
        assert!(modules(calls).contains("model.layers.1.mlp.down_proj"), "{:?}", modules(calls));
        // The choice of the token.
        assert_eq!(calls[0].0.operators.last().unwrap().operator, "aten::argmax");
    }
}
