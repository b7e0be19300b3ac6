//! Profiled sessions of the backends: they compute what plain ones do, and name the operators of each call.

use std::fs;
use std::path::{Path, PathBuf};

use inferbench::backend;
use inferbench::catalogue::read_catalogue;
use inferbench::definition::{Dtype, Model, Phase, Sizes, Status};
use inferbench::fixture::{Held, batch, prepare_and_hold};
use inferbench::run_data::{OperatorCall, RecordedCall};

use crate::support::{checkout, on_one_thread, real_backends};

/// A packaged model, prepared in a folder.
struct Prepared {
    model: Model,
    held: Held,
    _folder: tempfile::TempDir,
}

impl Prepared {
    fn new(name: &str) -> Self {
        let entries = read_catalogue(&checkout().join("models")).unwrap();
        let model = entries.into_iter().find(|entry| entry.name == name && entry.variant == "original").unwrap().model;
        let (model, folder) = (model.unwrap(), tempfile::tempdir().unwrap());
        Prepared { held: prepare_and_hold(&model, folder.path(), Dtype::F32).unwrap(), model, _folder: folder }
    }

    /// What a profiled session records of calls after one of warm-up; checks that it computes what a plain session does.
    fn recorded(&self, backend: &str, phase: Phase) -> Result<Vec<RecordedCall>, (Status, String)> {
        let sizes = Sizes { batch: 1, sequence: self.model.sequence_lengths.first().copied() };
        let (model, artifacts) = (&self.model, &self.held.artifacts);
        let request = on_one_thread(model, artifacts, phase, sizes);
        let inputs = batch(model, None, 0, sizes).unwrap();
        let backend = backend::find(backend).unwrap();
        let mut profiled = backend.load_profiled(&request).map_err(|failure| (failure.status, failure.message))?;
        let mut plain = backend.load(&request).unwrap();
        for session in [&mut *plain, &mut *profiled] {
            assert_eq!(session.bind(&inputs).unwrap(), 0);
        }
        assert_eq!(profiled.outputs(0).unwrap(), plain.outputs(0).unwrap());
        profiled.run(0).unwrap();
        profiled.begin().unwrap();
        for _ in 0..CALLS {
            profiled.run(0).unwrap();
        }
        Ok(profiled.end().unwrap())
    }

    fn graph(&self) -> PathBuf {
        self.held.artifacts.parts[0].onnx.clone().unwrap()
    }
}

const CALLS: usize = 3;

/// What the backends call products with weights.
const PRODUCTS: [&str; 5] = ["EinSum", "FullyConnected", "MatMul", "OptMatMul", "linear"];

/// The backends of this build and machine whose profiled sessions are looked at here.
fn backends() -> impl Iterator<Item = &'static str> {
    let has = |(name, is_there): &(&str, bool)| *is_there && ["candle", "openvino", "tract"].contains(name);
    real_backends().into_iter().filter(has).map(|(name, _)| name)
}

/// Whether a file has a name in it.
fn has_name(file: &Path, name: &str) -> bool {
    fs::read(file).unwrap().windows(name.len()).any(|bytes| bytes == name.as_bytes())
}

/// Checks what holds for the calls of every backend, and returns one of them.
fn checked<'a>(backend: &str, calls: &'a [RecordedCall]) -> &'a [OperatorCall] {
    assert_eq!(calls.iter().map(|call| call.calls).sum::<usize>(), CALLS, "{backend}");
    let names = |call: &RecordedCall| -> Vec<_> {
        call.operators.iter().map(|own| (own.node.clone(), own.module.clone(), own.operator.clone())).collect()
    };
    for RecordedCall { operators, .. } in calls {
        assert!(operators.iter().any(|own| own.duration_ns > 0), "{backend}");
        for pair in operators.windows(2) {
            let ends = pair[0].start_ns.map(|start| start + pair[0].duration_ns);
            assert!(ends <= pair[1].start_ns, "{backend}: {pair:?}");
        }
    }
    assert!(
        calls.windows(2).all(|pair| names(&pair[0]) == names(&pair[1])),
        "{backend}: other operators in another call"
    );
    &calls[0].operators
}

#[test]
fn the_nodes_of_a_graph_are_those_of_its_file() {
    let digits = Prepared::new("digits");
    for backend in backends().filter(|backend| *backend != "candle" || cfg!(feature = "candle-onnx")) {
        let calls = digits.recorded(backend, Phase::Forward).unwrap();
        let operators = checked(backend, &calls);
        // A node that is made of one of the file has its name and a suffix.
        let in_file = |own: &&OperatorCall| has_name(&digits.graph(), own.node.split(['.', '/']).next().unwrap());
        let found = operators.iter().filter(in_file).count();
        // The others change the layout of a tensor between two of these.
        assert!(found * 2 > operators.len(), "{backend}: {found} of {operators:?}");
        for product in ["Conv_0", "Conv_1"] {
            assert!(
                operators.iter().any(|own| own.node.starts_with(product)),
                "{backend}: no {product} in {operators:?}"
            );
        }
        assert!(operators.iter().any(|own| own.kernel.is_some()), "{backend}");
    }
}

#[test]
fn each_phase_of_a_language_model_has_its_operators() {
    let llama = Prepared::new("llama-small");
    for backend in backends() {
        for phase in [Phase::Prefill, Phase::Decode] {
            let calls = llama.recorded(backend, phase).unwrap_or_else(|why| panic!("{backend}: {why:?}"));
            let operators = checked(backend, &calls);
            let products = operators.iter().filter(|own| PRODUCTS.contains(&own.operator.as_str()));
            let kinds: Vec<_> = operators.iter().map(|own| &own.operator).collect();
            // Seven in each of the two layers, and the head.
            assert!(products.count() >= 15, "{backend} {phase}: {kinds:?}");
        }
    }
}

#[cfg(feature = "candle")]
#[test]
fn candles_modules_are_named_as_their_weights_and_those_without_spans_say_so() {
    let llama = Prepared::new("llama-small");
    let modules = |calls: &[RecordedCall]| -> Vec<String> {
        calls[0].operators.iter().filter_map(|own| own.module.clone()).collect()
    };
    let found = modules(&llama.recorded("candle", Phase::Decode).unwrap());
    for module in ["model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj", "lm_head"] {
        assert!(found.iter().any(|own| own == module), "{module} among {found:?}");
    }
    let (status, why) = Prepared::new("clip-small").recorded("candle", Phase::Forward).unwrap_err();
    assert_eq!((status, why.as_str()), (Status::Unsupported, "candle's module of clip has no spans around its layers"));
}
