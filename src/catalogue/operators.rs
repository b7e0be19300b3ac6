//! The graphs of the suite `operators`: each repeats one operator, or the few nodes that exporters write for it. From
//! their times, `predict` learns the cost of operators in networks that were never measured.
//!
//! The files are made when the suite is read: their weights are random numbers, which the package need not contain.

use std::path::Path;

use anyhow::Result;
use prost::Message;

use crate::definition::{BATCH, SuiteModel};
use crate::onnx::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ShapeProto, TensorProto,
    ValueInfoProto, element,
};
use crate::run_data::write_whole;
use crate::statistics::uniform;

/// The family of all these graphs, which are not networks to deploy.
pub const OPERATORS: &str = "one-operator";

/// The folder of the files has this name, so the number has to change whenever the graphs change.
const EDITION: u32 = 1;
const IR_VERSION: i64 = 8;
const OPSET: i64 = 16;

/// An operator that a chain repeats, with the nodes that exporters write for it.
#[derive(Clone, Copy)]
enum Step {
    /// A convolution: the size of the kernel, the output channels, the stride, the groups. It is one-dimensional on
    /// values of `[channels, length]`.
    Conv(i64, i64, i64, i64),
    /// A transposed convolution with these output channels, kernel 2 and stride 2.
    ConvTranspose(i64),
    /// `MatMul` with weights, and `Add`; the output has this width.
    Dense(i64),
    /// Dot products of all rows with each other, their `Softmax`, and sums of the rows weighted by it.
    Attention,
    /// `LSTM` or `GRU`, the number of its gates, and the size of its state.
    Recurrent(&'static str, i64, i64),
    /// Enlargement to twice the height and width, and `MaxPool` back to the original size.
    Resize(&'static str),
    /// `LayerNormalization` as exporters write it for this opset.
    LayerNormalization,
    InstanceNormalization,
    /// An operator with one input, whose output has the same shape.
    Unary(&'static str),
    /// `Mul` and `Add` of a constant per channel.
    Affine,
    /// `MaxPool` or `AveragePool` with a kernel of 3.
    Pool(&'static str),
    /// Each channel times the `Sigmoid` of its mean.
    Gate,
    /// Rows in another order.
    Gather,
    /// `Concat` with itself, and `Slice`.
    Concat,
}

use Step::*;

const RELU: Step = Unary("Relu");

/// Per chain: its name, the sizes of the input without the batch, the number of repetitions, and the repeated steps.
const CHAINS: [(&str, &[i64], usize, &[Step]); 40] = [
    ("conv1-64", &[64, 56, 56], 8, &[Conv(1, 64, 1, 1), RELU]),
    ("conv1-256", &[256, 14, 14], 8, &[Conv(1, 256, 1, 1), RELU]),
    ("conv1-480", &[480, 7, 7], 4, &[Conv(1, 480, 1, 1), RELU]),
    ("conv3-16", &[16, 112, 112], 4, &[Conv(3, 16, 1, 1), RELU]),
    ("conv3-64", &[64, 28, 28], 4, &[Conv(3, 64, 1, 1), RELU]),
    ("conv3-256", &[256, 7, 7], 3, &[Conv(3, 256, 1, 1), RELU]),
    ("conv3-halved", &[32, 112, 112], 3, &[Conv(3, 48, 2, 1), RELU]),
    ("conv3-stem", &[3, 192, 192], 1, &[Conv(3, 32, 2, 1), RELU]),
    ("conv7-stem", &[3, 128, 128], 1, &[Conv(7, 64, 2, 1), RELU]),
    ("conv3-groups", &[128, 28, 28], 4, &[Conv(3, 128, 1, 8), RELU]),
    ("conv5-line", &[128, 400], 4, &[Conv(5, 128, 1, 1), RELU]),
    ("depthwise3-32", &[32, 112, 112], 6, &[Conv(3, 32, 1, 32), RELU]),
    ("depthwise3-240", &[240, 14, 14], 8, &[Conv(3, 240, 1, 240), RELU]),
    ("depthwise5-96", &[96, 28, 28], 6, &[Conv(5, 96, 1, 96), RELU]),
    ("depthwise7-96", &[96, 28, 28], 3, &[Conv(7, 96, 1, 96)]),
    ("transposed-64", &[64, 14, 14], 2, &[ConvTranspose(64)]),
    ("dense-128", &[128, 128], 12, &[Dense(128)]),
    ("dense-384", &[64, 384], 3, &[Dense(1536), Dense(384)]),
    ("dense-768", &[16, 768], 1, &[Dense(1536), Dense(768)]),
    ("dense-one-row", &[1024], 2, &[Dense(1024)]),
    ("attention-32", &[8, 49, 32], 8, &[Attention]),
    ("attention-64", &[4, 128, 64], 4, &[Attention]),
    ("lstm-128", &[64, 128], 2, &[Recurrent("LSTM", 4, 128)]),
    ("gru-64", &[50, 64], 3, &[Recurrent("GRU", 3, 64)]),
    ("resize-nearest", &[32, 56, 56], 3, &[Resize("nearest")]),
    ("resize-linear", &[32, 56, 56], 3, &[Resize("linear")]),
    ("layer-norm", &[196, 384], 6, &[LayerNormalization]),
    ("instance-norm", &[64, 32, 32], 4, &[InstanceNormalization]),
    ("softmax", &[12, 256, 256], 2, &[Unary("Softmax")]),
    ("relu", &[64, 56, 56], 8, &[RELU, Affine]),
    ("sigmoid", &[64, 56, 56], 6, &[Unary("Sigmoid")]),
    ("tanh", &[64, 56, 56], 6, &[Unary("Tanh")]),
    ("erf", &[64, 56, 56], 6, &[Unary("Erf")]),
    ("hard-swish", &[64, 56, 56], 6, &[Unary("HardSwish")]),
    ("affine", &[96, 28, 28], 8, &[Affine]),
    ("max-pool", &[64, 56, 56], 4, &[Pool("MaxPool")]),
    ("average-pool", &[64, 28, 28], 4, &[Pool("AveragePool")]),
    ("gate", &[96, 28, 28], 8, &[Gate]),
    ("gather", &[196, 384], 8, &[Gather]),
    ("concat", &[196, 384], 8, &[Concat]),
];

/// The models of the suite. Files that the folder lacks are written.
///
/// # Errors
/// A file cannot be written.
pub fn operators(folder: &Path) -> Result<Vec<SuiteModel>> {
    let folder = folder.join(EDITION.to_string());
    fs_err::create_dir_all(&folder)?;
    let model = |place: usize| {
        let path = folder.join(format!("{}.onnx", CHAINS[place].0));
        if !path.is_file() {
            write_whole(&path, &graph(place).encode_to_vec())?;
        }
        let (name, family) = (format!("op-{}", CHAINS[place].0), Some(OPERATORS.to_owned()));
        Ok(SuiteModel { name, path: Some(path), family, ..SuiteModel::default() })
    };
    (0..CHAINS.len()).map(model).collect()
}

/// The file of a chain.
fn graph(place: usize) -> ModelProto {
    let (name, sizes, repeats, steps) = CHAINS[place];
    let mut chain =
        Chain { graph: GraphProto::default(), sizes: sizes.to_vec(), value: "x".into(), state: place as u64 };
    let input = chain.described("x");
    for _ in 0..repeats {
        steps.iter().for_each(|step| chain.add(*step));
    }
    let output = chain.described(&chain.value);
    let graph = GraphProto { name: name.into(), inputs: vec![input], outputs: vec![output], ..chain.graph };
    let opset = OperatorSetIdProto { domain: String::new(), version: OPSET };
    ModelProto { ir_version: IR_VERSION, graph: Some(graph), opset_imports: vec![opset], ..ModelProto::default() }
}

/// A graph that is being written, up to its last value.
struct Chain {
    graph: GraphProto,
    /// The sizes of the value without the batch.
    sizes: Vec<i64>,
    value: String,
    /// The state of the generator of random numbers.
    state: u64,
}

impl Chain {
    fn add(&mut self, step: Step) {
        let ints = AttributeProto::ints;
        match step {
            Conv(kernel, channels, stride, groups) => {
                let (dimensions, own) = (self.sizes.len() - 1, self.sizes[0]);
                let of_filter = [vec![own / groups], vec![kernel; dimensions]].concat();
                let weights = self.weights(&[vec![channels], of_filter.clone()].concat(), of_filter.iter().product());
                let bias = self.weights(&[channels], channels);
                let attributes = vec![
                    ints("kernel_shape", &vec![kernel; dimensions]),
                    ints("strides", &vec![stride; dimensions]),
                    ints("pads", &vec![kernel / 2; 2 * dimensions]),
                    AttributeProto::int("group", groups),
                ];
                self.node("Conv", &[&weights, &bias], attributes);
                self.sizes[1..].iter_mut().for_each(|size| *size = (*size - 1) / stride + 1);
                self.sizes[0] = channels;
            }
            ConvTranspose(channels) => {
                let weights = self.weights(&[self.sizes[0], channels, 2, 2], self.sizes[0]);
                self.node("ConvTranspose", &[&weights], vec![ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])]);
                self.sizes = vec![channels, 2 * self.sizes[1], 2 * self.sizes[2]];
            }
            Dense(width) => {
                let own = self.sizes.pop().unwrap_or(1);
                let (weights, bias) = (self.weights(&[own, width], own), self.weights(&[width], width));
                self.node("MatMul", &[&weights], vec![]);
                self.node("Add", &[&bias], vec![]);
                self.sizes.push(width);
            }
            Attention => {
                let (values, scale) = (self.value.clone(), self.floats(&[], vec![(self.sizes[2] as f32).powf(-0.5)]));
                let turned = self.node("Transpose", &[], vec![ints("perm", &[0, 1, 3, 2])]);
                self.value.clone_from(&values);
                self.node("MatMul", &[&turned], vec![]);
                self.node("Mul", &[&scale], vec![]);
                self.node("Softmax", &[], vec![AttributeProto::int("axis", -1)]);
                self.node("MatMul", &[&values], vec![]);
            }
            Recurrent(operator, gates, state) => {
                let of_input = self.weights(&[1, gates * state, self.sizes[1]], self.sizes[1]);
                let of_state = self.weights(&[1, gates * state, state], state);
                let (bias, axis) = (self.weights(&[1, 2 * gates * state], state), self.whole(&[1]));
                let mut attributes = vec![AttributeProto::int("hidden_size", state)];
                if operator == "GRU" {
                    attributes.push(AttributeProto::int("linear_before_reset", 1));
                }
                // Time comes before the batch.
                self.node("Transpose", &[], vec![ints("perm", &[1, 0, 2])]);
                self.node(operator, &[&of_input, &of_state, &bias], attributes);
                self.node("Squeeze", &[&axis], vec![]);
                self.node("Transpose", &[], vec![ints("perm", &[1, 0, 2])]);
                self.sizes[1] = state;
            }
            Resize(mode) => {
                let scales = self.floats(&[4], vec![1.0, 1.0, 2.0, 2.0]);
                let coordinates = if mode == "nearest" { "asymmetric" } else { "half_pixel" };
                let mut attributes = vec![text("mode", mode), text("coordinate_transformation_mode", coordinates)];
                if mode == "nearest" {
                    attributes.push(text("nearest_mode", "floor"));
                }
                self.node("Resize", &["", &scales], attributes);
                self.node("MaxPool", &[], vec![ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])]);
            }
            LayerNormalization => {
                let width = self.sizes[1];
                let (two, epsilon) = (self.floats(&[], vec![2.0]), self.floats(&[], vec![1e-5]));
                let (gamma, beta) = (self.near_one(&[width]), self.weights(&[width], width));
                let mean = || vec![ints("axes", &[-1])];
                let own = self.value.clone();
                let of_rows = self.node("ReduceMean", &[], mean());
                self.value = own;
                let centred = self.node("Sub", &[&of_rows], vec![]);
                self.node("Pow", &[&two], vec![]);
                self.node("ReduceMean", &[], mean());
                self.node("Add", &[&epsilon], vec![]);
                let deviation = self.node("Sqrt", &[], vec![]);
                self.value = centred;
                self.node("Div", &[&deviation], vec![]);
                self.node("Mul", &[&gamma], vec![]);
                self.node("Add", &[&beta], vec![]);
            }
            InstanceNormalization => {
                let channels = self.sizes[0];
                let (gamma, beta) = (self.near_one(&[channels]), self.weights(&[channels], channels));
                self.node("InstanceNormalization", &[&gamma, &beta], vec![]);
            }
            Unary(operator) => drop(self.node(operator, &[], vec![])),
            Affine => {
                let channels = [self.sizes[0], 1, 1];
                let (factor, offset) = (self.near_one(&channels), self.weights(&channels, channels[0]));
                self.node("Mul", &[&factor], vec![]);
                self.node("Add", &[&offset], vec![]);
            }
            Pool(operator) => drop(self.node(
                operator,
                &[],
                vec![ints("kernel_shape", &[3, 3]), ints("pads", &[1; 4]), ints("strides", &[1, 1])],
            )),
            Gate => {
                let own = self.value.clone();
                self.node("ReduceMean", &[], vec![ints("axes", &[2, 3])]);
                self.node("Sigmoid", &[], vec![]);
                self.node("Mul", &[&own], vec![]);
            }
            Gather => {
                let rows: Vec<i64> = (0..self.sizes[0]).rev().collect();
                let rows = self.whole(&rows);
                self.node("Gather", &[&rows], vec![AttributeProto::int("axis", 1)]);
            }
            Concat => {
                let bounds = [[0], [self.sizes[0]], [1]].map(|number| self.whole(&number));
                let own = self.value.clone();
                self.node("Concat", &[&own], vec![AttributeProto::int("axis", 1)]);
                self.node("Slice", &bounds.each_ref().map(String::as_str), vec![]);
            }
        }
    }

    /// Adds a node that reads the last value and `others`. Returns the name of its output.
    fn node(&mut self, operator: &str, others: &[&str], attributes: Vec<AttributeProto>) -> String {
        let made = format!("v{}", self.graph.nodes.len());
        let inputs = [&[self.value.as_str()], others].concat();
        self.graph.nodes.push(NodeProto { attributes, ..NodeProto::new(operator, &inputs, &made) });
        self.value.clone_from(&made);
        made
    }

    fn constant(&mut self, dims: &[i64], data_type: i32, bytes: Vec<u8>) -> String {
        let name = format!("c{}", self.graph.initializers.len());
        self.graph.initializers.push(TensorProto {
            name: name.clone(),
            dims: dims.to_vec(),
            data_type,
            raw_data: Some(bytes.into()),
            ..TensorProto::default()
        });
        name
    }

    fn floats(&mut self, dims: &[i64], numbers: Vec<f32>) -> String {
        self.constant(dims, element::FLOAT, numbers.into_iter().flat_map(f32::to_le_bytes).collect())
    }

    fn whole(&mut self, numbers: &[i64]) -> String {
        self.constant(&[numbers.len() as i64], element::INT64, numbers.iter().flat_map(|it| it.to_le_bytes()).collect())
    }

    /// Random numbers that keep the magnitude of the values if each output is a sum of `summed` products.
    fn weights(&mut self, dims: &[i64], summed: i64) -> String {
        let most = (6.0 / summed as f64).sqrt();
        self.random(dims, -most, most)
    }

    fn near_one(&mut self, dims: &[i64]) -> String {
        self.random(dims, 0.9, 1.1)
    }

    fn random(&mut self, dims: &[i64], least: f64, most: f64) -> String {
        let count = dims.iter().product::<i64>();
        let numbers = (0..count).map(|_| (least + (most - least) * uniform(&mut self.state)) as f32).collect();
        self.floats(dims, numbers)
    }

    /// The last value, as an input or output of this name.
    fn described(&self, name: &str) -> ValueInfoProto {
        let batch = DimensionProto { symbol: Some(BATCH.into()), value: None };
        let sizes = self.sizes.iter().map(|size| DimensionProto { symbol: None, value: Some(*size) });
        let shape = ShapeProto { dims: std::iter::once(batch).chain(sizes).collect() };
        ValueInfoProto::tensor(name, element::FLOAT, Some(shape))
    }
}

/// An attribute of the type `STRING`.
fn text(name: &str, word: &'static str) -> AttributeProto {
    AttributeProto { name: name.into(), s: Some(word.as_bytes().into()), r#type: 3, ..AttributeProto::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{add_models_of_suite, read_suite};
    use crate::definition::{Phase, Sizes};
    use crate::onnx::count;

    #[test]
    fn every_chain_is_a_graph_whose_cost_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let mut suite = read_suite("operators", &Path::new(env!("CARGO_MANIFEST_DIR")).join("models")).unwrap();
        assert!(suite.include_operators);
        suite.models = operators(folder.path()).unwrap();
        let mut catalogue = Vec::new();
        add_models_of_suite(&mut catalogue, &mut suite).unwrap();
        let all: Vec<_> = catalogue.into_iter().filter(|entry| entry.variant == "original").collect();
        assert_eq!(all.len(), CHAINS.len());
        for entry in all {
            let model = entry.model.unwrap();
            assert_eq!(model.family, OPERATORS);
            let [one, four] =
                [1, 4].map(|batch| count(&model, Phase::Forward, Sizes { batch, sequence: None }).unwrap());
            assert!(one.0.nodes > 0 && one.0.flops < 1_000_000_000, "{}: {:?}", entry.name, one.0);
            assert_eq!(four.0.flops, 4 * one.0.flops, "{}", entry.name);
        }
    }
}
