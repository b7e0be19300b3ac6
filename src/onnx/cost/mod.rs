//! The cost of one call of a model, counted from its ONNX graphs with the sizes of a case: floating-point operations, and
//! the bytes that cannot but be moved.
//!
//! Operations are those of matrix products and convolutions, attention's among them, two for each multiply-add (published
//! counts of multiply-adds are half of these); nothing else counts, as in published counters (fvcore's `FlopCountAnalysis`
//! and torchvision's table of models). Bytes are the compulsory traffic: each graph's weights, inputs and outputs once, and
//! of a table that is only looked up in the rows that are; what a runtime writes and reads again in between is not in them.
//! Both are those of the f32 graph also where a case runs it in another dtype.
//!
//! A call of `prefill` runs its parts one after the other, and their costs are added. A call of `decode` is counted as
//! the first one after the prefill: one token, with keys and values of the prompt in the cache.

mod graph;
mod shapes;

use anyhow::{Context, Result, bail};
use std::path::PathBuf;

use crate::definition::{Cost, Generation, Model, Origin, Part, Phase, Sizes, TensorSpec, WHOLE};
use crate::onnx::Source;
use graph::Shapes;

/// The numbers of the positions that a decoder reads at once, and what lets each see only those before it.
pub(crate) const POSITIONS: &str = "position_ids";
pub(crate) const BIAS: &str = "attention_bias";

/// Counts one call of the phase.
///
/// # Errors
/// There is no ONNX graph, or a node's cost cannot be known, such as that of an operator that is not among those here; the
/// message names it.
pub fn cost(model: &Model, phase: Phase, sizes: Sizes) -> Result<Cost> {
    let mut given = Shapes::new();
    for input in &model.inputs {
        given.insert(input.name.clone(), input.concrete_shape(sizes)?);
    }
    match (phase, &model.generation) {
        (Phase::Forward | Phase::Encoder, _) => run(model, phase, &mut given),
        (_, None) => bail!("{} does not say how it makes tokens", model.name),
        (_, Some(generation)) => generate(model, generation, phase, sizes, given),
    }
}

/// The shapes are those that the backends' loop over the parts gives them.
fn generate(model: &Model, generation: &Generation, phase: Phase, sizes: Sizes, mut given: Shapes) -> Result<Cost> {
    let unknown = || format!("{}: the length of the prompt is not known", model.name);
    let prompt = model.prompt_positions(sizes.sequence).with_context(unknown)?;
    given.extend(made_inputs(model, Phase::Prefill, sizes.batch, prompt));
    let prefill = run(model, Phase::Prefill, &mut given)?;
    if phase == Phase::Prefill {
        return Ok(prefill);
    }
    given.insert(generation.tokens.clone(), vec![sizes.batch, 1]);
    given.extend(made_inputs(model, Phase::Decode, sizes.batch, prompt));
    run(model, phase, &mut given)
}

/// The inputs that the loop over the parts makes, with their shapes: those that begin without a position, and those for the
/// positions that a decoder reads at once. For `decode`, those that change after the prefill.
pub(crate) fn made_inputs(model: &Model, phase: Phase, batch: usize, prompt: usize) -> Shapes {
    let once = model.generation.as_ref().map(|generation| generation.once.as_slice()).unwrap_or_default();
    let is_empty = |name: &String| if phase == Phase::Decode { once.contains(name) } else { name.starts_with("past.") };
    let empty = model.parts.iter().flat_map(|part| &part.inputs).filter(|input| is_empty(&input.name));
    let open = |input: &TensorSpec| {
        let others = input.shape.iter().skip(1).map(|dimension| dimension.fixed().unwrap_or(0));
        (input.name.clone(), std::iter::once(batch).chain(others).collect())
    };
    let positions = if phase == Phase::Decode { 1 } else { prompt };
    let counted = [(POSITIONS, vec![1, positions]), (BIAS, vec![1, 1, positions, positions])];
    empty.map(open).chain(counted.map(|(name, shape)| (name.to_owned(), shape))).collect()
}

/// Runs the parts of a phase; `given` has the inputs, and then also what the parts have made.
fn run(model: &Model, phase: Phase, given: &mut Shapes) -> Result<Cost> {
    let plan = model.phase(phase).with_context(|| format!("{} has no phase {phase}", model.name))?;
    let mut sum = Cost::default();
    for name in &plan.parts {
        let part = model.parts.iter().find(|part| part.name == *name);
        let file = part.and_then(|part| graph_file(model, part));
        let file = file.with_context(|| format!("there is no ONNX graph of part {name:?}"))?;
        let walked = graph::walk(&Source::read(&file)?.graph, given).with_context(|| file.display().to_string())?;
        let too_many = || format!("{}: more than can be counted", model.name);
        sum = Cost {
            flops: sum.flops.checked_add(walked.cost.flops).with_context(too_many)?,
            bytes: sum.bytes.checked_add(walked.cost.bytes).with_context(too_many)?,
        };
        for (name, shape) in walked.outputs {
            let of_next_step = name.strip_prefix("present.").map(|rest| format!("past.{rest}"));
            given.insert(of_next_step.unwrap_or(name), shape);
        }
    }
    Ok(sum)
}

fn graph_file(model: &Model, part: &Part) -> Option<PathBuf> {
    match &model.origin {
        Origin::Packaged { folder, .. } => Some(folder.join(format!("{}.onnx", part.name))),
        Origin::Files { onnx, .. } if part.name == WHOLE => onnx.clone(),
        Origin::Files { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intensity_is_operations_for_each_byte() {
        assert_eq!(Cost { flops: 30, bytes: 12 }.intensity(), Some(2.5));
        assert_eq!(Cost::default().intensity(), None);
    }
}
