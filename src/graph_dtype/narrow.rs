//! Rewrites a graph of f32 so that it computes in f16 or bf16; its inputs and outputs stay f32.

use std::collections::{HashMap, HashSet};

use anyhow::{Result, bail, ensure};
use half::{bf16, f16};

use super::draft::Draft;
use super::precision::{Precision, precisions};
use crate::definition::Dtype;
use crate::onnx::proto::{AttributeProto, GraphProto, NodeProto, element};

/// Operators that compute nothing.
const MOVING: [&str; 13] = [
    "Cast",
    "Concat",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "Reshape",
    "Shape",
    "Slice",
    "Split",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
];

/// Writes the graph in `dtype`, which is f16 or bf16, and returns the bytes of its initializers.
pub(super) fn rewrite(draft: Draft<'_>, dtype: Dtype) -> Result<u64> {
    let graph = &draft.source.graph;
    check(graph)?;
    let precisions = precisions(&draft, dtype);
    let computing = graph.nodes.iter().zip(&precisions).filter(|(node, _)| !MOVING.contains(&node.op_type.as_str()));
    let computing: Vec<Precision> = computing.map(|(_, precision)| *precision).collect();
    // If a graph only moves numbers, moving half of the bytes is an effect.
    let is_narrow = |precisions: &[Precision]| precisions.contains(&Precision::Narrow);
    let has_effect = is_narrow(if computing.is_empty() { &precisions } else { &computing });
    ensure!(has_effect, "none of its operators computes in {dtype}");
    let inputs = || graph.own_inputs().map(|input| input.name.as_str());
    let mut rewriter = Rewriter {
        dtype,
        full: inputs().chain(draft.places.keys().copied()).map(str::to_owned).collect(),
        narrow: HashMap::new(),
        wide: inputs().filter(|input| is_added(graph, input)).map(str::to_owned).collect(),
        draft,
        bounds: None,
    };
    for (node, precision) in graph.nodes.iter().zip(precisions) {
        rewriter.add(node, precision)?;
    }
    for output in &graph.outputs {
        if rewriter.draft.is_float(&output.name) {
            rewriter.full(&output.name);
        }
    }
    rewriter.draft.finish()
}

fn check(graph: &GraphProto) -> Result<()> {
    ensure!(graph.sparse_initializers.is_empty(), "it has sparse weights");
    // Sequences and optional values are not tensors.
    let is_of_tensors = |node: &NodeProto| {
        let takes_sequences = node.op_type.contains("Sequence") && node.op_type != "ReverseSequence";
        !node.has_subgraph() && !takes_sequences && !node.op_type.starts_with("Optional")
    };
    if let Some(node) = graph.nodes.iter().find(|node| !is_of_tensors(node)) {
        bail!("operator {} (node {:?}) works on something other than tensors", node.op_type, node.name);
    }
    Ok(())
}

/// Rewrites the nodes of a graph. A value of f32 keeps its name in f32, and gets another name in the narrow type.
struct Rewriter<'a> {
    dtype: Dtype,
    draft: Draft<'a>,
    /// Values that exist in f32.
    full: HashSet<String>,
    /// By value: its name in the narrow type, if it exists there.
    narrow: HashMap<String, String>,
    /// Values that may exceed the range of the narrow type, such as an attention mask with the least f32.
    wide: HashSet<String>,
    bounds: Option<[String; 2]>,
}

impl Rewriter<'_> {
    fn element(&self) -> i32 {
        if self.dtype == Dtype::F16 { element::FLOAT16 } else { element::BFLOAT16 }
    }

    fn add(&mut self, node: &NodeProto, precision: Precision) -> Result<()> {
        let mut node = node.clone();
        let is_narrow = precision == Precision::Narrow;
        for (place, value) in node.inputs.iter_mut().enumerate() {
            if !self.draft.is_float(value) {
                continue;
            }
            // The regions and scales of Resize are f32 whatever it computes in; the values are its first input.
            let stays = !is_narrow || node.op_type == "Resize" && place > 0;
            *value = if stays { self.full(value) } else { self.narrow(value)? };
        }
        if is_narrow && node.op_type == "Cast" && node.int("to") == Some(element::FLOAT.into()) {
            node.attributes = vec![AttributeProto::int("to", self.element().into())];
        }
        let is_bounded = matches!(node.op_type.as_str(), "Sin" | "Cos" | "Tanh" | "Sigmoid" | "Softmax");
        for output in &mut node.outputs {
            if !self.draft.is_float(output) {
                continue;
            }
            if precision == Precision::Exact && !is_bounded {
                self.wide.insert(output.clone());
            }
            if is_narrow {
                let name = self.draft.fresh(output, self.dtype.name());
                self.narrow.insert(std::mem::replace(output, name.clone()), name);
            } else {
                self.full.insert(output.clone());
            }
        }
        self.draft.nodes.push(node);
        Ok(())
    }

    /// The name of the value in f32, which is converted if needed.
    fn full(&mut self, value: &str) -> String {
        if self.full.insert(value.to_owned())
            && let Some(narrow) = self.narrow.get(value)
        {
            self.draft.nodes.push(NodeProto::cast(narrow, value, element::FLOAT));
        }
        value.to_owned()
    }

    /// The name of the value in the narrow type, to which it is converted if needed.
    fn narrow(&mut self, value: &str) -> Result<String> {
        if let Some(name) = self.narrow.get(value) {
            return Ok(name.clone());
        }
        let (dtype, element) = (self.dtype.name(), self.element());
        let name = if let Some(&place) = self.draft.places.get(value) {
            let numbers = self.draft.floats(place)?.into_iter();
            let bytes = match self.dtype {
                Dtype::F16 => numbers.flat_map(|number| to_f16(number).to_le_bytes()).collect(),
                _ => numbers.flat_map(|number| to_bf16(number).to_le_bytes()).collect(),
            };
            let dims = &self.draft.source.graph.initializers[place].dims;
            self.draft.add(value, dtype, dims, element, bytes)?
        } else {
            let from = if self.wide.contains(value) { self.clipped(value)? } else { value.to_owned() };
            let name = self.draft.fresh(value, dtype);
            self.draft.nodes.push(NodeProto::cast(&from, &name, element));
            name
        };
        self.narrow.insert(value.to_owned(), name.clone());
        Ok(name)
    }

    /// Clips a value to the range of the narrow type, and returns the new name.
    fn clipped(&mut self, name: &str) -> Result<String> {
        let [least, largest] = match &self.bounds {
            Some(bounds) => bounds.clone(),
            None => {
                let largest = if self.dtype == Dtype::F16 { f16::MAX.to_f32() } else { bf16::MAX.to_f32() };
                let mut add = |name, bound| self.draft.add_number(name, self.dtype.name(), bound);
                self.bounds.insert([add("least", -largest)?, add("largest", largest)?]).clone()
            }
        };
        let clipped = self.draft.fresh(name, "clipped");
        self.draft.nodes.push(NodeProto::new("Clip", &[name, &least, &largest], &clipped));
        Ok(clipped)
    }
}

/// Whether a graph's input is added to something, such as an attention bias, whose values may be the least f32.
fn is_added(graph: &GraphProto, input: &str) -> bool {
    const MOVING: [&str; 9] =
        ["Concat", "Expand", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"];
    let same = graph.same_as(input, &MOVING);
    graph.nodes.iter().any(|node| {
        let is_sum = matches!(node.op_type.as_str(), "Add" | "Sub" | "Where" | "Min" | "Max");
        is_sum && node.inputs.iter().any(|name| same.contains(name.as_str()))
    })
}

/// The nearest f16. A finite number stays finite, and a number other than 0 does not become 0: a small constant under a
/// root has to keep its quotient finite.
fn to_f16(value: f32) -> f16 {
    if value.is_infinite() {
        return f16::from_f32(value);
    }
    let nearest = f16::from_f32(value.clamp(f16::MIN.to_f32(), f16::MAX.to_f32()));
    if value != 0.0 && nearest.to_f32() == 0.0 {
        return if value > 0.0 { f16::MIN_POSITIVE_SUBNORMAL } else { -f16::MIN_POSITIVE_SUBNORMAL };
    }
    nearest
}

/// The nearest bf16; a finite number stays finite.
fn to_bf16(value: f32) -> bf16 {
    bf16::from_f32(if value.is_infinite() { value } else { value.clamp(bf16::MIN.to_f32(), bf16::MAX.to_f32()) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_becomes_the_nearest_that_is_as_finite_and_as_much_zero(value in any::<f32>()) {
            let narrow = [to_f16(value).to_f32(), to_bf16(value).to_f32()];
            for narrow in narrow {
                prop_assert_eq!((narrow.is_nan(), narrow.is_infinite()), (value.is_nan(), value.is_infinite()));
                prop_assert!(value.is_nan() || narrow.is_sign_positive() == value.is_sign_positive());
            }
            prop_assert_eq!(narrow[0] == 0.0, value == 0.0);
            if value.abs() > 1e-4 && value.abs() < 65504.0 {
                prop_assert!((narrow[0] - value).abs() <= value.abs() / 2048.0);
            }
            if value.is_normal() && value.abs() < 3.38e38 {
                prop_assert!((narrow[1] - value).abs() <= value.abs() / 256.0);
            }
        }
    }

    #[test]
    fn an_attention_bias_of_the_least_f32_is_the_least_f16() {
        assert_eq!(to_f16(f32::MIN).to_f32(), -65504.0);
        assert_eq!(to_bf16(f32::MIN), bf16::MIN);
        assert_eq!(to_f16(f32::NEG_INFINITY), f16::NEG_INFINITY);
        assert_eq!(to_f16(1e-12), f16::MIN_POSITIVE_SUBNORMAL);
    }
}
