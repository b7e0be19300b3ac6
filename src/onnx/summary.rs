//! Reads the inputs and outputs of an ONNX file, without a runtime.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::Source;
use super::proto::{GraphProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, element, place_of_axis};
use crate::definition::{BATCH, Dimension, Dtype, ElementType, TensorSpec};

/// The inputs, outputs, parameters and dtype of an ONNX file.
#[derive(Clone, Debug)]
pub struct OnnxSummary {
    pub inputs: Vec<TensorSpec>,
    pub outputs: Vec<TensorSpec>,
    /// The number of elements of all initializers, without scales, zero points and integers that are not weights.
    pub parameters: u64,
    pub dtype: Dtype,
}

/// Reads the summary of an ONNX file.
///
/// A symbolic first dimension is taken as the batch, whatever the exporter called it, unless its name says that it is a
/// length; so is any other dimension of its name, or with one of the usual names of a batch. Other symbols keep their
/// names, and a dimension without a name is called `<input>.<position>`. An input with an initializer does not count as
/// an input. Integers that index a table are below its length, and a mask is 1 throughout. Outputs that are not tensors
/// of numbers are left out ([`outputs_left_out`]), if there are others.
///
/// # Errors
/// The file cannot be read, is not a whole ONNX model or has no operator; or an input, or every output, is not a tensor
/// of numbers. The message names the file.
pub fn read_summary(path: &Path) -> Result<OnnxSummary> {
    summarise(&Source::read(path)?.graph).with_context(|| path.display().to_string())
}

/// Describes each output of an ONNX file that its summary leaves out:
/// `"label" is a tensor of strings, and not a tensor of …`.
pub fn outputs_left_out(path: &Path) -> Result<Vec<String>> {
    let source = Source::read(path)?;
    let wrong = |output| tensor_spec(output, &BTreeSet::new()).err().map(|why| why.to_string());
    Ok(source.graph.outputs.iter().filter_map(wrong).collect())
}

/// The outputs of an ONNX file that consist, at least in part, of a sigmoid's results, which are at most moved, sliced
/// or cast.
///
/// # Errors
/// The file cannot be read.
pub fn outputs_of_sigmoids(path: &Path) -> Result<Vec<String>> {
    let source = Source::read(path)?;
    let outputs = source.graph.outputs.iter().map(|output| output.name.clone());
    Ok(outputs.filter(|output| source.graph.is_of_sigmoid(output)).collect())
}

fn summarise(graph: &GraphProto) -> Result<OnnxSummary> {
    ensure!(!graph.nodes.is_empty(), "an ONNX model without an operator");
    let batches: BTreeSet<&str> = graph.own_inputs().filter_map(batch_symbol).chain(BATCHES).collect();
    let flat = graph.flat();
    let inputs = graph.own_inputs().map(|input| flat.input_spec(input, &batches).context("an input"));
    let inputs: Result<Vec<_>> = inputs.collect();
    let (inputs, outputs) = (inputs?, graph.outputs.iter().map(|output| tensor_spec(output, &batches)));
    let outputs: Vec<TensorSpec> = match outputs.clone().filter_map(Result::ok).collect::<Vec<_>>() {
        // No output is a tensor of numbers: the first error says why.
        none if none.is_empty() => outputs.map(|output| output.context("an output")).collect::<Result<_>>()?,
        some => some,
    };
    let parameters = flat.parameters().iter().fold(0_u64, |all, found| all.saturating_add(found.count.unwrap_or(0)));
    Ok(OnnxSummary { inputs, outputs, parameters, dtype: flat.dtype() })
}

impl GraphProto {
    fn is_of_sigmoid(&self, value: &str) -> bool {
        let mut open = vec![value];
        // Nodes are in topological order: a node's inputs are made before it.
        for node in self.nodes.iter().rev() {
            if !node.outputs.iter().any(|output| open.contains(&output.as_str())) {
                continue;
            }
            match node.op_type.as_str() {
                "Sigmoid" => return true,
                "Concat" => open.extend(node.inputs.iter().map(String::as_str)),
                "Cast" | "Flatten" | "Identity" | "Reshape" | "Slice" | "Split" | "Squeeze" | "Transpose"
                | "Unsqueeze" => {
                    open.extend(node.inputs.first().map(String::as_str));
                }
                _ => {}
            }
        }
        false
    }

    /// The dtype that a flat graph computes in: the type of most of the weights, or i8 if operators work on quantised
    /// numbers.
    pub fn dtype(&self) -> Dtype {
        let elements = |wanted: i32| {
            let of_type = self.initializers.iter().filter(|tensor| tensor.data_type == wanted);
            of_type.filter_map(|tensor| tensor.elements()).fold(0, u64::saturating_add)
        };
        let is_quantised = self.nodes.iter().any(|node| {
            let op_type = node.op_type.as_str();
            let starts = |word: &str| op_type.starts_with(word);
            // Some of ONNX Runtime's own operators round their activations first, such as `DynamicQuantizeLSTM`.
            let is_own = starts("QLinear") || starts("DynamicQuantize") || matches!(op_type, "QAttention" | "QGemm");
            let is_in_blocks = op_type == "MatMulNBits" && node.int("accuracy_level") == Some(ROUNDED_TO_I8);
            // Weights that are dequantised round no activation. Products with weights of four bits may: ONNX Runtime
            // has an operator of its own for them.
            let is_packed = |name: &String| {
                let is_of_four_bits = |it: &TensorProto| matches!(it.data_type, element::INT4 | element::UINT4);
                self.initializer(name).is_some_and(is_of_four_bits)
            };
            let is_rounded = match op_type {
                "DequantizeLinear" => node.inputs.first().is_some_and(is_packed),
                _ => op_type.contains("QuantizeLinear"),
            };
            is_own || is_in_blocks || is_rounded || op_type.contains("Integer")
        });
        match [element::FLOAT, element::FLOAT16, element::BFLOAT16].map(elements) {
            _ if is_quantised => Dtype::I8,
            [full, half, brain] if half > full && half >= brain => Dtype::F16,
            [full, _, brain] if brain > full => Dtype::Bf16,
            _ => Dtype::F32,
        }
    }

    /// The input, with the values that it can take if the graph shows them.
    fn input_spec(&self, value: &ValueInfoProto, batches: &BTreeSet<&str>) -> Result<TensorSpec> {
        let mut spec = tensor_spec(value, batches)?;
        match spec.dtype {
            dtype if dtype.is_floating() || dtype == ElementType::Bool => {}
            _ if value.name.contains("mask") => spec.constant = Some(1.0),
            _ => spec.below = self.rows_that_it_looks_up(&value.name),
        }
        Ok(spec)
    }

    /// The number of rows, along the axis that is looked up, of the shortest table that the value indexes, directly or
    /// after a change of its shape.
    fn rows_that_it_looks_up(&self, name: &str) -> Option<u64> {
        let indices = self.same_as(name, &["Cast", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Transpose"]);
        let lookups = self.nodes.iter().flat_map(|node| {
            // The positions of each table and its indices, and the attribute with the axis.
            let (places, axis): (&[(usize, usize)], &str) = match node.op_type.as_str() {
                "Gather" => (&[(0, 1)], "axis"),
                "GatherBlockQuantized" => (&[(0, 1)], "gather_axis"),
                "EmbedLayerNormalization" | "QEmbedLayerNormalization" => (&[(2, 0), (4, 1), (3, 8)], ""),
                _ => (&[], ""),
            };
            places.iter().map(move |&(table, index)| (node, table, index, axis))
        });
        let rows = |(node, table, index, axis): (&NodeProto, usize, usize, &str)| {
            node.inputs.get(index).filter(|index| indices.contains(index.as_str()))?;
            let sizes = &self.table(node.inputs.get(table)?)?.dims;
            Some(sizes[place_of_axis(node.int(axis).unwrap_or(0), sizes.len())?].max(1) as u64)
        };
        lookups.filter_map(rows).min()
    }

    /// A table, which may be dequantised or cast before it is looked up.
    fn table(&self, name: &str) -> Option<&TensorProto> {
        self.initializer(name).or_else(|| {
            let node = self.nodes.iter().find(|node| node.outputs.first().is_some_and(|own| own == name))?;
            let is_same = matches!(node.op_type.as_str(), "Cast" | "DequantizeLinear" | "Identity");
            self.initializer(node.inputs.first().filter(|_| is_same)?)
        })
    }
}

/// The `accuracy_level` of a `MatMulNBits` that rounds its activations to i8.
const ROUNDED_TO_I8: i64 = 4;

/// Parts of names of dimensions that are lengths, not the batch.
const LENGTHS: [&str; 10] = ["seq", "len", "time", "frame", "sample", "token", "height", "width", "num_", "point"];

/// Usual names of the batch, which may come after the time. An expression such as `batch_size * heads` is another size.
const BATCHES: [&str; 4] = ["batch_size", "batchsize", "BatchSize", "Batch"];

/// Whether a symbol identifies its dimension: some exporters call every dimension `?`.
fn is_name(symbol: &str) -> bool {
    !matches!(symbol, "" | "?")
}

/// The name of the first dimension, if it is the batch's.
fn batch_symbol(value: &ValueInfoProto) -> Option<&str> {
    let first = value.dimensions().first()?;
    let symbol = first.symbol.as_deref().filter(|symbol| is_name(symbol) && first.value.is_none())?;
    let name = symbol.to_lowercase();
    // PyTorch's own name, `length_dynamic_axes_1`, begins with the name of the input, which says nothing about the
    // dimension.
    let is_batch = name.contains("batch") || name.ends_with("_dynamic_axes_1");
    (is_batch || !LENGTHS.iter().any(|word| name.contains(word))).then_some(symbol)
}

/// The kind of a value that is not a tensor, for messages.
fn kind_of(kind: &TypeProto) -> &'static str {
    match kind {
        TypeProto { sequence: Some(_), .. } => "a sequence",
        TypeProto { map: Some(_), .. } => "a map",
        TypeProto { sparse_tensor: Some(_), .. } => "a sparse tensor",
        TypeProto { optional_type: Some(_), .. } => "an optional value",
        _ => "of a kind of its own",
    }
}

fn tensor_spec(value: &ValueInfoProto, batches: &BTreeSet<&str>) -> Result<TensorSpec> {
    let Some(kind) = &value.r#type else { return Ok(TensorSpec::of_any_shape(&value.name, ElementType::F32)) };
    let refused = |what: String| format!("{:?} is {what}, and not a tensor of {}", value.name, ElementType::NAMES);
    let tensor = kind.tensor.as_ref().with_context(|| refused(kind_of(kind).to_owned()))?;
    let dtype = element::known(tensor.element);
    let dtype = dtype.with_context(|| refused(format!("a tensor of {}", element::name(tensor.element))))?;
    if tensor.shape.is_none() {
        return Ok(TensorSpec::of_any_shape(&value.name, dtype));
    }
    let shape = value
        .dimensions()
        .iter()
        .enumerate()
        .map(|(position, dim)| match (dim.value, dim.symbol.as_deref()) {
            (Some(size), _) if size > 0 => Dimension::Fixed(size as usize),
            (_, Some(symbol)) if batches.contains(symbol) => Dimension::Symbol(BATCH.into()),
            (_, Some(symbol)) if is_name(symbol) => Dimension::Symbol(symbol.into()),
            _ if position == 0 => Dimension::Symbol(BATCH.into()),
            _ => Dimension::Symbol(format!("{}.{position}", value.name)),
        })
        .collect();
    Ok(TensorSpec::new(&value.name, dtype, shape))
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::super::proto::{AttributeProto, DimensionProto, ModelProto, ShapeProto, SparseTensorProto, TensorProto};
    use super::*;

    fn dimension(value: Option<i64>, symbol: Option<&str>) -> DimensionProto {
        DimensionProto { value, symbol: symbol.map(Into::into) }
    }

    fn value(name: &str, dims: Vec<DimensionProto>) -> ValueInfoProto {
        ValueInfoProto::tensor(name, element::FLOAT, Some(ShapeProto { dims }))
    }

    #[test]
    fn an_output_of_a_sigmoid_is_one_also_if_it_was_moved_and_not_if_it_was_computed_with() {
        let nodes =
            [("Sigmoid", "x", "s"), ("Reshape", "s", "moved"), ("Concat", "moved", "all"), ("Exp", "all", "other")];
        let nodes = nodes.map(|(op_type, input, output)| NodeProto::new(op_type, &[input], output)).to_vec();
        let graph = GraphProto { nodes, ..GraphProto::default() };
        assert!(["s", "moved", "all"].into_iter().all(|output| graph.is_of_sigmoid(output)));
        assert!(!["x", "other"].into_iter().any(|output| graph.is_of_sigmoid(output)));
    }

    fn graph() -> GraphProto {
        let dims = vec![dimension(None, Some("N")), dimension(Some(3), None), dimension(None, None)];
        GraphProto {
            nodes: vec![NodeProto { op_type: "Relu".into(), ..NodeProto::default() }],
            initializers: vec![TensorProto {
                dims: vec![4, 5],
                data_type: 1,
                name: "w".into(),
                ..TensorProto::default()
            }],
            inputs: vec![value("x", dims), value("w", vec![dimension(Some(4), None), dimension(Some(5), None)])],
            outputs: vec![value("y", vec![])],
            ..GraphProto::default()
        }
    }

    #[test]
    fn symbolic_dimensions_are_named_and_the_first_is_the_batch() {
        let summary = summarise(&graph()).unwrap();
        assert_eq!(summary.parameters, 20);
        assert_eq!(summary.inputs.len(), 1);
        assert_eq!(summary.inputs[0].to_string(), "x:f32[batch,3,x.2]");
        let dims = ["seq_len", "batch_size", "batch_size * 2"].map(|name| dimension(None, Some(name)));
        let time_first = GraphProto { inputs: vec![value("x", dims.to_vec())], ..graph() };
        assert_eq!(summarise(&time_first).unwrap().inputs[0].to_string(), "x:f32[seq_len,batch,batch_size * 2]");
    }

    #[test]
    fn a_first_dimension_that_has_the_name_of_a_length_is_no_batch_but_its_input_may_be_called_so() {
        let is_batch = |symbol| batch_symbol(&value("length", vec![dimension(None, Some(symbol))])).is_some();
        assert!(["length_dynamic_axes_1", "num_batches", "N"].into_iter().all(is_batch));
        assert!(!["sequence_length", "length_dynamic_axes_2"].into_iter().any(is_batch));
    }

    #[test]
    fn more_weights_than_can_be_counted_have_a_dtype() {
        let half = |name: &str| TensorProto {
            name: name.into(),
            dims: vec![i64::MAX],
            data_type: 10,
            ..TensorProto::default()
        };
        let initializers = vec![half("a"), half("b"), half("c")];
        assert_eq!(GraphProto { initializers, ..graph() }.dtype(), Dtype::F16);
    }

    #[test]
    fn weights_that_are_written_sparsely_count_as_those_that_are_not() {
        let values = TensorProto { name: "s".into(), dims: vec![2], data_type: 1, ..TensorProto::default() };
        let sparse = SparseTensorProto { values: Some(values), indices: None, dims: vec![10, 10] };
        let graph = GraphProto { sparse_initializers: vec![sparse], ..graph() };
        assert_eq!(summarise(&graph).unwrap().parameters, 120);
    }

    #[test]
    fn operators_that_round_their_activations_are_of_integers() {
        let lstm = NodeProto::new("DynamicQuantizeLSTM", &["x", "w", "r"], "y");
        assert_eq!(GraphProto { nodes: vec![lstm], ..graph() }.dtype(), Dtype::I8);
        for (level, dtype) in [(1, Dtype::F32), (4, Dtype::I8)] {
            let product = NodeProto {
                attributes: vec![AttributeProto::int("accuracy_level", level)],
                ..NodeProto::new("MatMulNBits", &["x", "w", "scales"], "y")
            };
            assert_eq!(GraphProto { nodes: vec![product], ..graph() }.dtype(), dtype);
        }
    }

    #[test]
    fn a_quantised_file_has_the_parameters_of_the_original() {
        let quantized = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/quantized");
        for variant in ["int8-dynamic", "int8-static"] {
            let summary = read_summary(&quantized.join(format!("digits.{variant}.onnx"))).unwrap();
            assert_eq!(summary.parameters, 13_706, "{variant}");
        }
    }

    #[test]
    fn what_is_inside_of_branches_and_of_constants_is_seen() {
        let dynamic = ["integers", "scale", "zero"].map(String::from);
        let inner = GraphProto {
            nodes: vec![
                NodeProto::new("Gather", &["table", "ids"], "rows"),
                NodeProto { outputs: dynamic.into(), ..NodeProto::new("DynamicQuantizeLinear", &["rows"], "") },
                NodeProto::new("MatMulInteger", &["integers", "own", "zero"], "sums"),
            ],
            initializers: vec![TensorProto {
                name: "own".into(),
                dims: vec![4, 5],
                data_type: 3,
                ..TensorProto::default()
            }],
            ..GraphProto::default()
        };
        let branch = |name: &str| AttributeProto {
            name: name.into(),
            g: Some(inner.encode_to_vec().into()),
            ..AttributeProto::default()
        };
        let constant = |dims: &[i64]| {
            let t = Some(TensorProto { dims: dims.to_vec(), data_type: 1, ..TensorProto::default() });
            vec![AttributeProto { name: "value".into(), t, ..AttributeProto::default() }]
        };
        let nodes = vec![
            NodeProto { attributes: constant(&[11, 4]), ..NodeProto::new("Constant", &[], "table") },
            NodeProto { attributes: constant(&[]), ..NodeProto::new("Constant", &[], "half") },
            NodeProto {
                attributes: ["then_branch", "else_branch"].map(branch).into(),
                ..NodeProto::new("If", &["x"], "z")
            },
            NodeProto::new("Mul", &["z", "half"], "y"),
        ];
        let mut ids = value("ids", vec![dimension(Some(2), None)]);
        ids.r#type.as_mut().unwrap().tensor.as_mut().unwrap().element = 7;
        let merged = GraphProto { nodes, initializers: Vec::new(), inputs: vec![ids], ..graph() };
        let summary = summarise(&merged).unwrap();
        assert_eq!((summary.dtype, summary.parameters, summary.inputs[0].below), (Dtype::I8, 20 + 44, Some(11)));
    }

    #[test]
    fn tokens_are_below_the_length_of_their_table_and_a_mask_is_all_ones() {
        let mut graph = graph();
        let integer = |name: &str| {
            let dims = vec![dimension(Some(2), None)];
            ValueInfoProto::tensor(name, element::INT64, Some(ShapeProto { dims }))
        };
        let node = |op_type: &str, inputs: &[&str], output: &str| NodeProto {
            inputs: inputs.iter().map(|&name| name.into()).collect(),
            outputs: vec![output.into()],
            op_type: op_type.into(),
            ..NodeProto::default()
        };
        graph.inputs.extend(["ids", "attention_mask", "count", "columns", "words"].map(integer));
        graph.nodes.push(node("EmbedLayerNormalization", &["words", "", "w"], "embedded"));
        graph.nodes.extend([node("Cast", &["ids"], "cast"), node("Gather", &["w", "cast"], "rows")]);
        let columns = node("Gather", &["w", "columns"], "some");
        graph.nodes.push(NodeProto { attributes: vec![AttributeProto::int("axis", -1)], ..columns });
        let summary = summarise(&graph).unwrap();
        let values: Vec<_> = summary.inputs[1..].iter().map(|input| (input.below, input.constant)).collect();
        // The table has 4 rows of 5 numbers.
        assert_eq!(values, [(Some(4), None), (None, Some(1.0)), (None, None), (Some(5), None), (Some(4), None)]);
    }

    #[test]
    fn inputs_and_outputs_have_any_type_of_numbers_and_others_are_named() {
        let of = |element: i32| {
            let mut graph = graph();
            let change = |value: &mut ValueInfoProto| {
                value.r#type.as_mut().unwrap().tensor.as_mut().unwrap().element = element;
            };
            change(&mut graph.inputs[0]);
            change(&mut graph.outputs[0]);
            summarise(&graph).map(|summary| [summary.inputs[0].dtype, summary.outputs[0].dtype])
        };
        let known = [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16];
        let known = known.map(|element| of(element).unwrap()[0].to_string()).join(" ");
        assert_eq!(known, "f32 u8 i8 u16 i16 i32 i64 bool f16 f64 u32 u64 bf16");
        for (element, name) in
            [(8, "strings"), (17, "float8"), (22, "int4"), (26, "int2"), (99, "ONNX's element type 99")]
        {
            let error = format!("{:#}", of(element).unwrap_err());
            assert!(
                error.starts_with(&format!("an input: \"x\" is a tensor of {name}, and not a tensor of f32")),
                "{error}"
            );
        }
        let mut graph = graph();
        let sequence = TypeProto { sequence: Some(Vec::new().into()), ..TypeProto::default() };
        graph.outputs.push(ValueInfoProto { name: "parts".into(), r#type: Some(sequence) });
        assert_eq!(summarise(&graph).unwrap().outputs.len(), 1, "one of two");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("parts.onnx");
        let model = ModelProto { graph: Some(graph.clone()), ..ModelProto::default() };
        std::fs::write(&path, model.encode_to_vec()).unwrap();
        let left_out = outputs_left_out(&path).unwrap();
        assert!(left_out.len() == 1 && left_out[0].starts_with("\"parts\" is a sequence, and not"), "{left_out:?}");
        graph.outputs.remove(0);
        let error = format!("{:#}", summarise(&graph).unwrap_err());
        assert!(error.starts_with("an output: \"parts\" is a sequence, and not a tensor"), "{error}");
    }

    #[test]
    fn a_truncated_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cut.onnx");
        let bytes = ModelProto { graph: Some(graph()), ..ModelProto::default() }.encode_to_vec();
        for bytes in [&bytes[..bytes.len() - 3], &[]] {
            std::fs::write(&path, bytes).unwrap();
            assert!(read_summary(&path).unwrap_err().to_string().contains("cut.onnx"));
        }
    }
}
