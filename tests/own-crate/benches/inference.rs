//! `cargo bench` measures the engine of this crate beside those of inferbench.

use digits_engine::{CLASSES, Network, parse_picture};
use inferbench::{Backend, CaseFailure, Harness, LoadRequest, Session, Tensor, TensorData};

const PICTURE: &str = "00580000 07990000 09009000 09000800 08000800 09007900 06899000 00580000";

fn main() -> std::process::ExitCode {
    Harness::new()
        .backend("digits-engine", Engine)
        .model("digits")
        .batch_sizes([1, 8])
        .metric("margin", "logits", |answer| margin(answer.outputs))
        .bench("parse-picture", 64, "points", || parse_picture(PICTURE))
        .main()
}

/// How much the best score is above the second best.
fn margin(outputs: &[Tensor]) -> Option<f64> {
    let [Tensor { data: TensorData::F32(scores), .. }] = outputs else { return None };
    let mut scores = scores.clone();
    scores.sort_by(f32::total_cmp);
    let [.., second, best] = scores.as_slice() else { return None };
    Some(f64::from(best - second))
}

struct Engine;

impl Backend for Engine {
    fn version(&self) -> Option<&'static str> {
        Some(env!("CARGO_PKG_VERSION"))
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        let weights = request.artifacts.weights.as_ref().filter(|_| request.model.name == "digits");
        let weights = weights.ok_or_else(|| CaseFailure::unsupported("it knows the network `digits` only"))?;
        let network = Network::read(weights).map_err(|error| CaseFailure::failed(format!("{error:#}")))?;
        Ok(Box::new(Loaded { network, bound: Vec::new(), scores: Vec::new() }))
    }
}

struct Loaded {
    network: Network,
    bound: Vec<Vec<f32>>,
    scores: Vec<f32>,
}

impl Session for Loaded {
    fn bind(&mut self, inputs: &[Tensor]) -> Result<usize, CaseFailure> {
        self.bound.push(pictures(inputs)?);
        Ok(self.bound.len() - 1)
    }

    fn rebind(&mut self, binding: usize, inputs: &[Tensor]) -> Result<(), CaseFailure> {
        self.bound[binding] = pictures(inputs)?;
        Ok(())
    }

    fn run(&mut self, binding: usize) -> Result<(), CaseFailure> {
        self.scores = self.network.scores(&self.bound[binding]);
        Ok(())
    }

    fn outputs(&mut self, binding: usize) -> Result<Vec<Tensor>, CaseFailure> {
        self.run(binding)?;
        let shape = vec![self.scores.len() / CLASSES, CLASSES];
        Ok(vec![Tensor { shape, data: TensorData::F32(self.scores.clone()) }])
    }
}

fn pictures(inputs: &[Tensor]) -> Result<Vec<f32>, CaseFailure> {
    match inputs {
        [Tensor { data: TensorData::F32(values), .. }] => Ok(values.clone()),
        _ => Err(CaseFailure::failed("the input of `digits` is f32")),
    }
}
