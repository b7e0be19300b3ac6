//! Sessions of ONNX graphs that `candle-onnx` evaluates.

use std::collections::{BTreeSet, HashMap};

use candle_core::{DType, Device, Tensor};
use candle_onnx::onnx::{GraphProto, ValueInfoProto};

use super::plan::Plan;
use super::tensor::{Forward, Place, dtype_of, placement};
use super::{fusion, graph};
use crate::backend::artifact::{Format, parts_of};
use crate::backend::graphs;
use crate::backend::interface::{LoadRequest, Session};
use crate::backend::recorder::Recorder;
use crate::backend::shared::Shared;
use crate::definition::{CaseFailure, TensorSpec};

/// A session of the model's graphs, on the CPU. With a recorder, each node is evaluated alone, and noted.
///
/// # Errors
/// A graph cannot be read, or has an operator that is not evaluated.
pub fn open_session(
    request: &LoadRequest<'_>,
    device: Device,
    recorder: Option<&Recorder>,
) -> Result<Box<dyn Session>, CaseFailure> {
    let parts = parts_of(request, Format::Onnx)?;
    let (mut own, mut fused, mut weight_dtype) = (BTreeSet::new(), BTreeSet::new(), None);
    let mut forwards = Vec::new();
    for (part, file) in &parts {
        let (mut graph, mut constants) = if request.instances > 1 {
            static READ: Shared<(GraphProto, HashMap<String, Tensor>)> = Shared::new();
            (*READ.get(file.display().to_string(), || graph::read(file))?).clone()
        } else {
            graph::read(file)?
        };
        graph.input = names(&part.inputs);
        // The definition may leave the outputs to the file.
        if !part.outputs.is_empty() {
            graph.output = names(&part.outputs);
        }
        weight_dtype = weight_dtype.or_else(|| dtype_of_most(&constants));
        fused.extend(fusion::fuse(&mut graph, &mut constants));
        let plan = Plan::new(&graph, &constants, recorder.cloned())?;
        own.extend(plan.own_operators());
        // candle computes on the CPU before it returns.
        forwards.push(Box::new(move |given: &[Tensor]| plan.run(given)) as Forward);
    }
    let effective_dtype = weight_dtype.map_or(Some(request.dtype), dtype_of);
    let placement = placement(request, effective_dtype, executor(own, fused));
    // The graphs convert their inputs themselves.
    graphs::open_session(request, Place { device, dtype: DType::F32 }, &parts, forwards, placement)
}

/// The type of most floating-point constants of a graph; the wider one if two types are equally frequent. A graph of
/// f16 keeps f32 where it computes from integers or sizes.
fn dtype_of_most(constants: &HashMap<String, Tensor>) -> Option<DType> {
    let mut counts: HashMap<DType, usize> = HashMap::new();
    for tensor in constants.values().filter(|tensor| tensor.dtype().is_float()) {
        *counts.entry(tensor.dtype()).or_default() += tensor.elem_count();
    }
    counts.into_iter().max_by_key(|(dtype, count)| (*count, dtype.size_in_bytes())).map(|(dtype, _)| dtype)
}

fn names(values: &[TensorSpec]) -> Vec<ValueInfoProto> {
    values.iter().map(|value| ValueInfoProto { name: value.name.clone(), ..ValueInfoProto::default() }).collect()
}

fn executor(own: BTreeSet<&str>, fused: BTreeSet<&str>) -> String {
    let list = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(", ");
    let own = if own.is_empty() { String::new() } else { format!(" with own {}", list(own)) };
    let fused = if fused.is_empty() { String::new() } else { format!(" and fused {}", list(fused)) };
    format!("candle-onnx{own}{fused}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_computes_in_the_type_of_most_of_its_numbers() {
        let tensor = |dtype, count: usize| Tensor::zeros(count, dtype, &Device::Cpu).unwrap();
        // The weights are one constant of many.
        let mut constants = HashMap::from([("w".to_owned(), tensor(DType::F16, 100))]);
        constants.extend((0..50).map(|number| (format!("scale{number}"), tensor(DType::F32, 1))));
        constants.insert("shape".to_owned(), tensor(DType::I64, 1000));
        assert_eq!(dtype_of_most(&constants), Some(DType::F16));
        // Weights that are stored in f16, and cast where they are used.
        let cast = [("w", DType::F16), ("cast", DType::F32)].map(|(name, dtype)| (name.to_owned(), tensor(dtype, 4)));
        assert_eq!(dtype_of_most(&HashMap::from(cast)), Some(DType::F32));
        assert_eq!(dtype_of_most(&HashMap::new()), None);
    }
}
