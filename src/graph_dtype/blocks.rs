//! Rewrites an f32 graph so that the weights of its products are blocks of few bits with a scale each, and rewrites
//! such a graph back to f32.
//!
//! A product with a constant matrix `W` becomes ONNX Runtime's operator `MatMulNBits`: the rows of `Wᵀ`, one per output
//! channel, are cut into blocks, and each block has a scale and, if it is not symmetric, a zero point. The numbers are
//! those of ONNX Runtime's own quantiser (`matmul_nbits_quantizer`, which calls `MlasQuantizeBlockwise`). Biases,
//! lookup tables, and rows whose length is not a multiple of the block size stay in f32.
//!
//! The attribute `accuracy_level` gives the type that activations are computed in: 4 for i8, in blocks of their own,
//! and 1 for f32.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::draft::{Draft, little_endian};
use super::products::{Product, Products};
use crate::definition::{Blocks, Dtype, least_share};
use crate::onnx::Source;
use crate::onnx::proto::{AttributeProto, NodeProto, OperatorSetIdProto, TensorProto, element};

/// The set of ONNX Runtime's own operators.
const DOMAIN: &str = "com.microsoft";
const OPERATOR: &str = "MatMulNBits";

/// How many parameters of graphs can be in blocks, and how many there are without tables that are only looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    fitting: u64,
    all: u64,
}

impl Share {
    /// Adds a graph of f32; its data need not exist yet.
    pub fn add(&mut self, path: &Path, blocks: Blocks) -> Result<()> {
        let mut source = Source::read(path)?;
        super::make_constants_initializers(&mut source.graph);
        let graph = &source.graph;
        let products = Products::new(Draft::new(&source, None));
        let mut fitting: HashMap<usize, u64> = HashMap::new();
        for product in graph.nodes.iter().filter_map(|node| fitting_product(&products, node, blocks)) {
            let place = product.weight.source;
            fitting.insert(place, graph.initializers[place].elements().unwrap_or_default());
        }
        self.fitting += fitting.values().sum::<u64>();
        let is_looked_up = |name: &str| {
            let mut users = graph.nodes.iter().filter(|node| node.inputs.iter().any(|input| input == name)).peekable();
            let is_table = |node: &NodeProto| node.op_type == "Gather" && node.inputs[0] == name;
            users.peek().is_some() && users.all(is_table)
        };
        let counted = graph.parameters().into_iter().filter(|it| !is_looked_up(&it.tensor.name));
        self.all += counted.filter_map(|it| it.count).sum::<u64>();
        Ok(())
    }

    /// Checks that most of the parameters can be in blocks.
    ///
    /// # Errors
    /// They cannot; the message says how many can.
    pub fn check(self, blocks: Blocks) -> Result<()> {
        let share = self.fitting as f64 / self.all.max(1) as f64;
        let size = blocks.size();
        ensure!(
            share >= least_share(size),
            "{blocks} needs products with constant matrices whose rows are multiples of {size}, and only {:.0} % of the parameters are in such rows",
            share * 100.0
        );
        Ok(())
    }
}

/// The node as a product, if its weight can be in such blocks.
fn fitting_product(products: &Products<'_>, node: &NodeProto, blocks: Blocks) -> Option<Product> {
    let product = products.find(node).filter(|_| node.op_type != "Conv")?;
    (product.weight_dims[0] as usize).is_multiple_of(blocks.size()).then_some(product)
}

/// Writes the graph with its weights in blocks, and returns the bytes of its initializers.
pub(super) fn rewrite(draft: Draft<'_>, blocks: Blocks, computed_in: Dtype) -> Result<u64> {
    let graph = &draft.source.graph;
    let mut products = Products::new(draft);
    let mut written: HashMap<(usize, bool), Vec<String>> = HashMap::new();
    for node in &graph.nodes {
        let Some(product) = fitting_product(&products, node, blocks) else {
            products.draft.nodes.push(node.clone());
            continue;
        };
        let [inner, channels] = [product.weight_dims[0], product.channels];
        let draft = &mut products.draft;
        let key = (product.weight.source, product.weight.is_transposed);
        let names = match written.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(write(draft, &product, blocks)?),
        };
        let output = &node.outputs[0];
        let result = if product.bias.is_some() { draft.fresh(output, "product") } else { output.clone() };
        let inputs: Vec<&str> = [node.inputs[0].as_str()].into_iter().chain(names.iter().map(String::as_str)).collect();
        let level = if computed_in == Dtype::F32 { 1 } else { 4 };
        let attributes = [
            ("K", inner),
            ("N", channels),
            ("bits", blocks.bits() as i64),
            ("block_size", blocks.size() as i64),
            ("accuracy_level", level),
        ];
        draft.nodes.push(NodeProto {
            domain: DOMAIN.into(),
            attributes: attributes.map(|(name, value)| AttributeProto::int(name, value)).into(),
            ..NodeProto::new(OPERATOR, &inputs, &result)
        });
        if let Some(bias) = &product.bias {
            draft.nodes.push(NodeProto::new("Add", &[&result, bias], output));
        }
    }
    ensure!(
        !written.is_empty(),
        "it has no product with a constant matrix whose rows are multiples of {}",
        blocks.size()
    );
    products.draft.imports.push(OperatorSetIdProto { domain: DOMAIN.into(), version: 1 });
    products.draft.finish()
}

/// Writes a weight, and returns the names of its integers, scales and zero points.
fn write(draft: &mut Draft<'_>, product: &Product, blocks: Blocks) -> Result<Vec<String>> {
    let [inner, channels] = [product.weight_dims[0] as usize, product.channels as usize];
    let numbers = draft.floats(product.weight.source)?;
    let name = &draft.source.graph.initializers[product.weight.source].name;
    ensure!(
        numbers.iter().all(|number| number.is_finite()),
        "initializer {name:?} has a value that is not finite: it has no {blocks} form"
    );
    let quantised = if numbers.is_empty() {
        Quantised::default()
    } else if product.weight.channels_are_rows {
        Quantised::of(&numbers, inner, blocks)
    } else {
        let column = |channel: usize| (0..inner).map(move |row| row * channels + channel);
        let rows: Vec<f32> = (0..channels).flat_map(column).map(|place| numbers[place]).collect();
        Quantised::of(&rows, inner, blocks)
    };
    let per_row = inner / blocks.size();
    let Quantised { integers, scales, zero_points } = quantised;
    let bytes = (blocks.size() * blocks.bits() / 8) as i64;
    let dims = [channels as i64, per_row as i64, bytes];
    let mut names = vec![
        draft.add(name, blocks.name(), &dims, element::UINT8, integers)?,
        draft.add(name, "scales", &[(channels * per_row) as i64], element::FLOAT, little_endian(&scales))?,
    ];
    if !blocks.is_symmetric() {
        let count = channels * (per_row * blocks.bits()).div_ceil(8);
        names.push(draft.add(name, "zeros", &[count as i64], element::UINT8, zero_points)?);
    }
    Ok(names)
}

/// A matrix in blocks, as `MatMulNBits` takes it.
#[derive(Debug, Default, PartialEq)]
struct Quantised {
    /// Row after row. Of two numbers of four bits, the first is in the lower half of the byte.
    integers: Vec<u8>,
    /// One per block.
    scales: Vec<f32>,
    /// One per block, packed as the integers are; each row begins with a new byte. Empty if the blocks are symmetric.
    zero_points: Vec<u8>,
}

impl Quantised {
    /// Quantises rows of `row` numbers, which are whole blocks.
    fn of(numbers: &[f32], row: usize, blocks: Blocks) -> Self {
        let most = ((1_u32 << blocks.bits()) - 1) as f32;
        let middle = 1_u8 << (blocks.bits() - 1);
        let mut quantised = Quantised::default();
        for row in numbers.chunks_exact(row) {
            let mut zero_points = Vec::new();
            for block in row.chunks_exact(blocks.size()) {
                let least = block.iter().copied().fold(f32::INFINITY, f32::min);
                let largest = block.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let (scale, zero_point) = if blocks.is_symmetric() {
                    let farthest = if largest.abs() > least.abs() { largest } else { least };
                    // The number farthest from 0 becomes the integer that has no counterpart on the other side of 0.
                    (farthest / -f32::from(middle), middle)
                } else {
                    let (least, largest) = (least.min(0.0), largest.max(0.0));
                    let scale = (largest - least) / most;
                    let zero_point = if scale == 0.0 { 0.0 } else { -least / scale };
                    (scale, zero_point.round().clamp(0.0, most) as u8)
                };
                let inverse = if scale == 0.0 { 0.0 } else { scale.recip() };
                let integer = |number: &f32| (number * inverse + f32::from(zero_point)).round().clamp(0.0, most) as u8;
                quantised.integers.extend(block.iter().map(integer));
                quantised.scales.push(scale);
                zero_points.push(zero_point);
            }
            if !blocks.is_symmetric() {
                // An unused half byte at the end of a row holds the zero point of symmetric blocks, as in ONNX
                // Runtime's own files.
                if !zero_points.len().is_multiple_of(2) {
                    zero_points.push(middle);
                }
                quantised.zero_points.extend(packed(&zero_points, blocks.bits()));
            }
        }
        quantised.integers = packed(&quantised.integers, blocks.bits());
        quantised
    }
}

/// Packs numbers of `bits` bits, the first of a byte in its lower half.
fn packed(numbers: &[u8], bits: usize) -> Vec<u8> {
    if bits == 8 {
        return numbers.to_vec();
    }
    numbers.chunks(2).map(|pair| pair[0] | pair.get(1).map_or(0, |second| second << 4)).collect()
}

/// The packed number at a position.
fn unpacked(bytes: &[u8], place: usize, bits: usize) -> Option<u8> {
    if bits == 8 {
        return bytes.get(place).copied();
    }
    bytes.get(place / 2).map(|byte| if place.is_multiple_of(2) { byte & 15 } else { byte >> 4 })
}

/// Writes a graph with weights in blocks as an f32 graph with the same weights: what a runtime has to compute from the
/// blocks.
///
/// # Errors
/// A file cannot be read or written, or its blocks do not match its operators.
pub fn dequantise(source: &Path, destination: &Path) -> Result<()> {
    let source = Source::read(source)?;
    let mut draft = Draft::new(&source, Some(destination));
    let mut written: HashMap<&str, String> = HashMap::new();
    for node in &source.graph.nodes {
        if node.op_type != OPERATOR || node.domain != DOMAIN {
            draft.nodes.push(node.clone());
            continue;
        }
        let [activation, weight, _, others @ ..] = node.inputs.as_slice() else {
            bail!("{OPERATOR} (node {:?}) has too few inputs", node.name);
        };
        ensure!(
            others.iter().skip(1).all(String::is_empty),
            "{OPERATOR} (node {:?}) has a bias or an order of its own, which is not read here",
            node.name
        );
        let name = match written.entry(weight.as_str()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let (dims, numbers) = numbers_of(&source, node).with_context(|| format!("initializer {weight:?}"))?;
                new.insert(draft.add(weight, "f32", &dims, element::FLOAT, little_endian(&numbers))?)
            }
        };
        draft.nodes.push(NodeProto::new("MatMul", &[activation, name], &node.outputs[0]));
    }
    draft.finish().map(drop)
}

/// The matrix of f32 `[K, N]` of a `MatMulNBits`.
fn numbers_of(source: &Source, node: &NodeProto) -> Result<([i64; 2], Vec<f32>)> {
    let size = |name: &str| node.int(name).and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0);
    let sizes = ["K", "N", "bits", "block_size"].map(size);
    let [Some(inner), Some(channels), Some(bits @ (4 | 8)), Some(block)] = sizes else {
        bail!("{OPERATOR} with sizes {sizes:?}")
    };
    let tensor = |place: usize| -> Result<Option<&TensorProto>> {
        let Some(name) = node.inputs.get(place).filter(|name| !name.is_empty()) else { return Ok(None) };
        source.graph.initializer(name).with_context(|| format!("{name:?} is not constant")).map(Some)
    };
    let missing = "an input is missing";
    let integers = source.bytes(tensor(1)?.context(missing)?)?;
    let scales = source.floats(tensor(2)?.context(missing)?)?;
    let zero_points = tensor(3)?.map(|tensor| source.bytes(tensor)).transpose()?;
    let per_row = inner.div_ceil(block);
    let zeros_of_row = (per_row * bits).div_ceil(8);
    let mut numbers = vec![0.0; inner * channels];
    for (place, number) in numbers.iter_mut().enumerate() {
        let (row, channel) = (place / channels, place % channels);
        let of_row = row / block;
        let integer = unpacked(&integers, (channel * per_row + of_row) * block + row % block, bits);
        let zero_point = match &zero_points {
            Some(zeros) => zeros.get(channel * zeros_of_row..).and_then(|zeros| unpacked(zeros, of_row, bits)),
            None => Some(1 << (bits - 1)),
        };
        let scale = scales.get(channel * per_row + of_row);
        let [integer, zero_point] = [integer, zero_point].map(|number| number.map(f32::from));
        let (integer, zero_point, scale) =
            (integer.context(missing)?, zero_point.context(missing)?, scale.context(missing)?);
        *number = (integer - zero_point) * scale;
    }
    Ok(([inner as i64, channels as i64], numbers))
}
