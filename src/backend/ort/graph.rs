//! A part of a model as a session of ONNX Runtime.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use ort::session::builder::SessionBuilder;
use ort::session::{Session as OrtRuntimeSession, SessionInputValue};
use ort::value::DynValue;

use super::library;
use super::provider::Provider;
use super::values::{to_host, to_value};
use crate::backend::graphs::{Runtime, largest_of_rows};
use crate::backend::{LoadRequest, classify};
use crate::definition::{BATCH, CaseFailure, Dimension, Part, Phase, SEQUENCE, read_input_symbols};
use crate::fixture::{HostTensor, TensorData};

pub struct OrtRuntime;

/// How a session is opened.
pub struct Opening<'a> {
    pub request: &'a LoadRequest<'a>,
    pub provider: &'static Provider,
    /// Where the session's profile goes; such a session may use the CPU too, so that the profile shows for what.
    pub profile: Option<&'a Path>,
}

pub struct OrtGraph {
    session: OrtRuntimeSession,
    /// For each input of the session, its place in the part's definition.
    inputs: Vec<usize>,
    /// For each output of the part's definition, its place in the session.
    outputs: Vec<usize>,
}

impl OrtGraph {
    /// # Errors
    /// The provider is not there or does not take the whole graph, or the file is not what the definition says.
    pub fn load(part: &Part, path: &Path, opening: &Opening<'_>) -> Result<Self, CaseFailure> {
        let mut builder = opening.builder()?;
        if opening.provider.device != "cpu" {
            for (symbol, size) in opening.sizes(part, path)? {
                builder = builder.with_dimension_override(symbol, size).map_err(classify)?;
            }
        }
        let session = builder.commit_from_file(path).map_err(classify)?;
        let place = |names: &[&str], name: &str| {
            let missing = || CaseFailure::failed(format!("{}: no {name:?} among {}", path.display(), names.join(", ")));
            names.iter().position(|known| *known == name).ok_or_else(missing)
        };
        let defined: Vec<&str> = part.inputs.iter().map(|input| input.name.as_str()).collect();
        let inputs = session.inputs().iter().map(|input| place(&defined, input.name())).collect::<Result<_, _>>()?;
        let named: Vec<&str> = session.outputs().iter().map(|output| output.name()).collect();
        let outputs = match part.outputs.as_slice() {
            [] => (0..named.len()).collect(),
            outputs => outputs.iter().map(|output| place(&named, &output.name)).collect::<Result<_, _>>()?,
        };
        Ok(OrtGraph { session, inputs, outputs })
    }
}

impl Opening<'_> {
    fn builder(&self) -> Result<SessionBuilder, CaseFailure> {
        let LoadRequest { device, threads, .. } = *self.request;
        let builder = OrtRuntimeSession::builder(library::environment(self.provider)?)
            .and_then(|builder| Ok(builder.with_intra_threads(threads)?))
            .and_then(|builder| Ok(builder.with_inter_threads(1)?))
            .map_err(classify)?;
        let builder = self.provider.register(builder, device, threads)?;
        let builder = match self.profile {
            Some(folder) => builder.with_profiling(folder.join("profile")),
            None if self.provider.device == "cpu" => Ok(builder),
            None => builder.with_disable_cpu_fallback(),
        };
        builder.map_err(classify)
    }

    /// What the case puts in for the open dimensions of the part's inputs, by the names that the file gives them:
    /// accelerators compile for them, and what depends on sizes alone is computed beforehand.
    fn sizes(&self, part: &Part, path: &Path) -> Result<BTreeMap<String, i64>, CaseFailure> {
        let is_whole = matches!(self.request.phase, Phase::Forward | Phase::Encoder);
        let mut sizes = BTreeMap::new();
        for (name, symbols) in read_input_symbols(path).map_err(CaseFailure::failed)? {
            let Some(input) = part.inputs.iter().find(|input| input.name == name) else { continue };
            for (dimension, symbol) in input.shape.iter().zip(symbols) {
                let size = match dimension {
                    Dimension::Symbol(name) if name == BATCH => Some(self.request.sizes.batch),
                    // A generative model's parts see the prompt, and then one token a step.
                    Dimension::Symbol(name) if name == SEQUENCE && is_whole => self.request.sizes.sequence,
                    _ => None,
                };
                if let (Some(size), Some(symbol)) = (size.and_then(|size| i64::try_from(size).ok()), symbol) {
                    sizes.insert(symbol, size);
                }
            }
        }
        Ok(sizes)
    }
}

impl Runtime for OrtRuntime {
    type Graph = OrtGraph;
    type Value = Rc<DynValue>;

    fn upload(&self, tensor: &HostTensor) -> Result<Rc<DynValue>, CaseFailure> {
        to_value(tensor).map(|value| Rc::new(value.into_dyn())).map_err(classify)
    }

    fn download(&self, value: &Rc<DynValue>) -> Result<HostTensor, CaseFailure> {
        to_host(value)
    }

    fn run(&self, graph: &mut OrtGraph, inputs: &[&Rc<DynValue>]) -> Result<Vec<Rc<DynValue>>, CaseFailure> {
        let inputs: Vec<SessionInputValue> = graph.inputs.iter().map(|&place| (&**inputs[place]).into()).collect();
        let computed = graph.session.run(inputs.as_slice()).map_err(classify)?;
        let computed: Vec<Rc<DynValue>> = computed.into_iter().map(|(_, value)| Rc::new(value)).collect();
        Ok(graph.outputs.iter().map(|&place| Rc::clone(&computed[place])).collect())
    }

    fn greedy(&self, logits: &Rc<DynValue>) -> Result<Rc<DynValue>, CaseFailure> {
        let (shape, values) = logits.try_extract_tensor::<f32>().map_err(classify)?;
        let rows = shape.first().map_or(1, |&rows| rows.max(0) as usize);
        self.upload(&HostTensor { shape: vec![rows, 1], data: TensorData::I64(largest_of_rows(values, rows)) })
    }
}
