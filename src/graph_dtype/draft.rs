//! A graph that is being written: its nodes in memory, small initializers inside it, and the others in one data file
//! beside it.

use std::collections::{HashMap, HashSet};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Result, bail};
use fs_err::File;
use prost::Message;
use prost::bytes::Bytes;

use crate::onnx::Source;
use crate::onnx::proto::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto, ValueInfoProto,
    element, element_bytes,
};

/// Initializers with more bytes than this go to the data file.
const INSIDE: usize = 1024;
/// The alignment of initializers in the data file, so that they can be used from there without a copy.
const ALIGNMENT: u64 = 64;

pub(super) struct Draft<'a> {
    pub source: &'a Source,
    /// The element types of the source's values, by name.
    pub types: HashMap<String, i32>,
    /// The places of the source's initializers, by name.
    pub places: HashMap<&'a str, usize>,
    pub nodes: Vec<NodeProto>,
    /// Sets of operators that the nodes need, besides those of the source.
    pub imports: Vec<OperatorSetIdProto>,
    /// The file to write. Without it, only the size is found, and no weights are read.
    pub destination: Option<&'a Path>,
    /// Names of values that are taken.
    taken: HashSet<String>,
    initializers: Vec<TensorProto>,
    /// The data file, and the bytes in it.
    data: Option<(BufWriter<File>, u64)>,
}

impl<'a> Draft<'a> {
    pub fn new(source: &'a Source, destination: Option<&'a Path>) -> Self {
        let types = element_types(&source.graph);
        Draft {
            source,
            taken: types.keys().cloned().collect(),
            types,
            places: source.graph.places(),
            nodes: Vec::new(),
            imports: Vec::new(),
            destination,
            initializers: Vec::new(),
            data: None,
        }
    }

    /// Whether it is a value of f32.
    pub fn is_float(&self, name: &str) -> bool {
        !name.is_empty() && self.types.get(name) == Some(&element::FLOAT)
    }

    /// The numbers of an initializer of the source; empty if only the size is asked for.
    pub fn floats(&self, place: usize) -> Result<Vec<f32>> {
        match self.destination {
            Some(_) => self.source.floats(&self.source.graph.initializers[place]),
            None => Ok(Vec::new()),
        }
    }

    /// Takes a new name: `name.suffix`, with a number if that is taken.
    pub fn fresh(&mut self, name: &str, suffix: &str) -> String {
        let first = format!("{name}.{suffix}");
        let mut candidates = std::iter::once(first.clone()).chain((2_u64..).map(|number| format!("{first}.{number}")));
        let fresh = candidates.find(|name| !self.taken.contains(name)).unwrap_or(first);
        self.taken.insert(fresh.clone());
        fresh
    }

    /// Adds an initializer under a new name, which it returns. The bytes may be missing if only the size is asked for.
    pub fn add(&mut self, name: &str, suffix: &str, dims: &[i64], data_type: i32, bytes: Vec<u8>) -> Result<String> {
        let name = self.fresh(name, suffix);
        let new = TensorProto { name: name.clone(), dims: dims.to_vec(), data_type, ..TensorProto::default() };
        self.store(new, bytes.into())?;
        Ok(name)
    }

    /// Adds an initializer of one f32.
    pub fn add_number(&mut self, name: &str, suffix: &str, number: f32) -> Result<String> {
        self.add(name, suffix, &[], element::FLOAT, number.to_le_bytes().to_vec())
    }

    fn store(&mut self, mut tensor: TensorProto, bytes: Bytes) -> Result<()> {
        match self.destination {
            Some(destination) if bytes.len() > INSIDE => {
                let path = destination.with_extension("data");
                let (out, written) = match &mut self.data {
                    Some(data) => data,
                    None => self.data.insert((BufWriter::with_capacity(1 << 20, File::create(&path)?), 0)),
                };
                let begin = written.next_multiple_of(ALIGNMENT);
                out.write_all(&vec![0; (begin - *written) as usize])?;
                out.write_all(&bytes)?;
                *written = begin + bytes.len() as u64;
                let entry = |key: &str, value: String| StringStringEntryProto { key: key.into(), value };
                tensor.external_data = vec![
                    entry("location", path.file_name().unwrap_or_default().to_string_lossy().into_owned()),
                    entry("offset", begin.to_string()),
                    entry("length", bytes.len().to_string()),
                ];
                tensor.data_location = 1;
            }
            _ => tensor.raw_data = Some(bytes),
        }
        self.initializers.push(tensor);
        Ok(())
    }

    /// Takes over an initializer of the source.
    fn keep(&mut self, tensor: &TensorProto) -> Result<()> {
        // Texts and packed numbers in the source's own file are kept as they are.
        let is_as_it_is = element_bytes(tensor.data_type).is_none() && tensor.data_location == 0;
        if self.destination.is_none() || is_as_it_is {
            self.initializers.push(tensor.clone());
            return Ok(());
        }
        let TensorProto { name, dims, data_type, .. } = tensor.clone();
        self.store(TensorProto { name, dims, data_type, ..TensorProto::default() }, self.source.bytes(tensor)?)
    }

    /// Writes the graph of the source with the draft's nodes and the initializers that they need. Returns the bytes of
    /// all initializers.
    pub fn finish(self) -> Result<u64> {
        let outputs = self.source.graph.outputs.clone();
        self.finish_with_outputs(outputs)
    }

    /// The same, with other outputs than those of the source.
    pub fn finish_with_outputs(mut self, outputs: Vec<ValueInfoProto>) -> Result<u64> {
        let graph = &self.source.graph;
        // The file names of data inside nodes would be taken for files beside the new graph.
        let flat = graph.flat();
        let mut inside = flat.initializers.iter().filter(|tensor| !self.places.contains_key(tensor.name.as_str()));
        if let Some(tensor) = inside.find(|tensor| tensor.data_location != 0) {
            bail!(
                "{:?} is inside a node, and its values are in another file; save the graph with all values in one file",
                tensor.name
            );
        }
        let mut used: HashSet<String> = outputs.iter().map(|output| output.name.clone()).collect();
        // If a graph inside a node cannot be read, it is not known which values it uses.
        let mut keeps_all = false;
        let attributes = self.nodes.iter().flat_map(|node| &node.attributes);
        for bytes in attributes.flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs)) {
            let Ok(inner) = GraphProto::decode(bytes.clone()) else {
                keeps_all = true;
                continue;
            };
            used.extend(inner.outputs.iter().map(|output| output.name.clone()));
            used.extend(inner.flat().nodes.into_iter().flat_map(|node| node.inputs));
        }
        let mut nodes = std::mem::take(&mut self.nodes);
        nodes.reverse();
        nodes.retain(|node| {
            // Weights that were written transposed need no `Transpose` any more.
            let is_needed = keeps_all || !matches!(node.op_type.as_str(), "Transpose" | "Identity");
            let is_needed = is_needed || node.outputs.iter().any(|name| used.contains(name));
            used.extend(node.inputs.iter().filter(|_| is_needed).cloned());
            is_needed
        });
        nodes.reverse();
        for tensor in graph.initializers.iter().filter(|tensor| keeps_all || used.contains(&tensor.name)) {
            self.keep(tensor)?;
        }
        let Draft { source, initializers, .. } = self;
        let bytes = |tensor: &TensorProto| tensor.elements()?.checked_mul(element_bytes(tensor.data_type)? as u64);
        let size = initializers.iter().filter_map(bytes).fold(0, u64::saturating_add);
        if let Some(destination) = self.destination {
            if let Some((mut out, _)) = self.data {
                out.flush()?;
            }
            let inputs = graph.own_inputs().cloned().collect();
            let graph = GraphProto { nodes, initializers, value_info: Vec::new(), inputs, outputs, ..graph.clone() };
            // From version 4 on, an initializer need not be an input too.
            let ir_version = source.model.ir_version.max(4);
            let mut model = ModelProto { ir_version, graph: Some(graph), ..source.model.clone() };
            let known: HashSet<String> = model.opset_imports.iter().map(|import| import.domain.clone()).collect();
            model.opset_imports.extend(self.imports.into_iter().filter(|import| !known.contains(&import.domain)));
            fs_err::write(destination, model.encode_to_vec())?;
        }
        Ok(size)
    }
}

/// Numbers as files store them.
pub(super) fn little_endian(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// The element types of a graph's values, by name, as the operators' specifications give them.
///
/// Types that the file gives come first; the rest follows from the operators. Most operators of other domains are taken
/// to keep the type of their input.
pub(super) fn element_types(graph: &GraphProto) -> HashMap<String, i32> {
    let said = |value: &ValueInfoProto| {
        let element = value.r#type.as_ref()?.tensor.as_ref()?.element;
        (element != 0).then(|| (value.name.clone(), element))
    };
    let mut types: HashMap<String, i32> =
        graph.inputs.iter().chain(&graph.outputs).chain(&graph.value_info).filter_map(said).collect();
    types.extend(graph.initializers.iter().map(|tensor| (tensor.name.clone(), tensor.data_type)));
    // Nodes are in topological order.
    for node in &graph.nodes {
        for (place, output) in node.outputs.iter().enumerate() {
            if !output.is_empty() && !types.contains_key(output) {
                types.insert(output.clone(), output_type(node, place, &types));
            }
        }
    }
    types
}

fn output_type(node: &NodeProto, place: usize, types: &HashMap<String, i32>) -> i32 {
    let of_input = |place: usize| {
        let named = node.inputs.get(place).filter(|name| !name.is_empty());
        named.and_then(|name| types.get(name)).copied().unwrap_or(element::FLOAT)
    };
    let attribute = |name: &str| node.int(name).and_then(|number| i32::try_from(number).ok());
    let of_tensor = || node.attribute("value").and_then(|attribute| attribute.t.as_ref()).map(|value| value.data_type);
    if !node.is_standard() {
        match (node.op_type.as_str(), place) {
            // Labels, which are integers or texts.
            ("LinearClassifier" | "SVMClassifier" | "TreeEnsembleClassifier", 0) => return element::INT64,
            (
                "FeatureVectorizer"
                | "LinearClassifier"
                | "LinearRegressor"
                | "Normalizer"
                | "OneHotEncoder"
                | "SVMClassifier"
                | "SVMRegressor"
                | "Scaler"
                | "TreeEnsembleClassifier"
                | "TreeEnsembleRegressor",
                _,
            ) => return element::FLOAT,
            ("EmbedLayerNormalization", 1) => return element::INT32,
            ("EmbedLayerNormalization", _) => return of_input(2),
            _ => {}
        }
    }
    match (node.op_type.as_str(), place) {
        ("If" | "Loop" | "Scan", _) => {
            let graph = node.attributes.iter().find_map(|attribute| GraphProto::decode(attribute.g.clone()?).ok());
            // The first output of a loop's body is its condition.
            let place = place + usize::from(node.op_type == "Loop");
            let said =
                graph.and_then(|graph| Some(graph.outputs.get(place)?.r#type.as_ref()?.tensor.as_ref()?.element));
            said.filter(|element| *element != 0).unwrap_or(element::FLOAT)
        }
        ("Cast", _) => attribute("to").unwrap_or(element::FLOAT),
        ("Shape" | "Size" | "NonZero" | "ArgMax" | "ArgMin" | "NonMaxSuppression", _) => element::INT64,
        ("TopK" | "MaxPool", 1) | ("Unique", 1..) => element::INT64,
        (
            "Equal" | "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" | "And" | "Or" | "Xor" | "Not" | "IsNaN"
            | "IsInf",
            _,
        )
        | ("Dropout", 1) => element::BOOL,
        ("MatMulInteger" | "ConvInteger", _) => element::INT32,
        ("DynamicQuantizeLinear", 0 | 2) => element::UINT8,
        ("QuantizeLinear", _) if node.inputs.len() < 3 => element::UINT8,
        ("QuantizeLinear", _) => of_input(2),
        ("QLinearConv" | "QLinearMatMul", _) => of_input(7),
        ("DequantizeLinear" | "Where" | "CastLike", _) => of_input(1),
        ("OneHot", _) => of_input(2),
        ("Multinomial", _) => attribute("dtype").unwrap_or(element::INT32),
        ("HannWindow" | "HammingWindow" | "BlackmanWindow" | "MelWeightMatrix", _) => {
            attribute("output_datatype").unwrap_or(element::FLOAT)
        }
        ("ConstantOfShape", _) => of_tensor().unwrap_or(element::FLOAT),
        ("Constant", _) if node.attribute("value_int").or(node.attribute("value_ints")).is_some() => element::INT64,
        ("Constant", _) => of_tensor().unwrap_or(element::FLOAT),
        // Random numbers and the like.
        _ => attribute("dtype").unwrap_or_else(|| of_input(0)),
    }
}
