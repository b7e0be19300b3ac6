//! The cost of one call of a model, counted from its ONNX graphs with the sizes of a case: floating-point operations,
//! and the bytes that have to be moved.
//!
//! Operations are those of matrix products and convolutions, also within attention and recurrent networks: two for each
//! multiply-add (published counts of multiply-adds are half of these). Nothing else counts, as in published counters
//! (fvcore's `FlopCountAnalysis` and torchvision's table of models). Bytes are the compulsory traffic: each graph's
//! weights, inputs and outputs once, and only those rows of a table that are looked up. What a runtime writes and reads
//! again in between does not count. Both are those of the graph in the model's file, with the element types that it has
//! there, even if a case runs it in another dtype. For a variant with weights in blocks, no bytes are counted.
//!
//! The body of a `Loop` or `Scan` counts as often as it runs, if sizes and constants say how often. Of an `If`, the
//! branch that runs counts. If the values of inputs decide which, the cost is known only if both branches cost the
//! same.
//!
//! A call of `prefill` runs its parts one after the other, and their costs are added. A call of `decode` is counted as
//! the first one after the prefill: one token, with the keys and values of the prompt in the cache.

mod control;
mod graph;
mod operations;
mod shapes;

use std::collections::BTreeSet;
use std::ops::Range;

use anyhow::{Context, Result, bail};

use crate::definition::{Cost, Dimension, Generation, Model, Phase, Sizes, value_name};
use crate::onnx::Source;
use graph::{Shapes, Walked};

/// The input with the numbers of the positions that a decoder reads in a call.
pub(crate) const POSITIONS: &str = "position_ids";
/// The input with the mask that lets each position see only those before it.
pub(crate) const BIAS: &str = "attention_bias";
/// As [`POSITIONS`], but without a batch dimension.
pub(crate) const PLACES: &str = "cache_position";
/// The inputs with a one for each position so far.
pub(crate) const MASKS: [&str; 2] = ["attention_mask", "decoder_attention_mask"];
/// The input that says whether the cache is in use, for a file that has the graphs of both phases.
pub(crate) const BRANCH: &str = "use_cache_branch";

/// The input with the number of positions whose logits are asked for.
pub(crate) const KEPT: &str = "num_logits_to_keep";

/// Whether the loop over the parts makes the input of that name, if the model has none.
pub(crate) fn is_made(name: &str) -> bool {
    [POSITIONS, BIAS, PLACES, BRANCH, KEPT].contains(&name) || MASKS.contains(&name)
}

/// Counts one call of the phase.
///
/// # Errors
/// There is no ONNX graph, or the cost of a node cannot be found, such as that of an unknown operator; the message
/// names the node.
pub fn cost(model: &Model, phase: Phase, sizes: Sizes) -> Result<Cost> {
    Ok(count(model, phase, sizes)?.0)
}

/// Counts one call of the phase, and names the operators of its graphs. It fails as [`cost`] does.
pub fn count(model: &Model, phase: Phase, sizes: Sizes) -> Result<(Cost, BTreeSet<String>)> {
    let (mut sum, mut operators) = (Cost::default(), BTreeSet::new());
    for walked in walked(model, phase, sizes)? {
        let too_many = || format!("{}: more than can be counted", model.name);
        sum = sum.plus(walked.cost).with_context(too_many)?;
        operators.extend(walked.operators);
    }
    // The graph that was walked has f32 weights, and no blocks.
    if model.blocks().is_some() {
        sum.bytes = 0;
    }
    Ok((sum, operators))
}

/// The cost of each node in one call of the phase: a list per part, in the order of its graph's nodes. The bytes of a
/// node are its inputs and outputs, as if their elements were f32, but only those rows of a table that are looked up.
pub fn node_costs(model: &Model, phase: Phase, sizes: Sizes) -> Result<Vec<Vec<Cost>>> {
    Ok(walked(model, phase, sizes)?.into_iter().map(|walked| walked.nodes).collect())
}

/// Walks the graphs of the phase's parts with the shapes of a call.
fn walked(model: &Model, phase: Phase, sizes: Sizes) -> Result<Vec<Walked>> {
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

/// Walks the parts with the shapes that the backends' loop over the parts gives them.
fn generate(
    model: &Model,
    generation: &Generation,
    phase: Phase,
    sizes: Sizes,
    mut given: Shapes,
) -> Result<Vec<Walked>> {
    let unknown = || format!("{}: the length of the prompt is not known", model.name);
    let prompt = model.prompt_positions(sizes.sequence).with_context(unknown)?;
    given.extend(made_inputs(model, Phase::Prefill, sizes.batch, 0..prompt));
    let prefill = run(model, Phase::Prefill, &mut given)?;
    if phase == Phase::Prefill {
        return Ok(prefill);
    }
    given.insert(generation.tokens.clone(), vec![sizes.batch, 1]);
    given.extend(made_inputs(model, Phase::Decode, sizes.batch, prompt..prompt + 1));
    run(model, phase, &mut given)
}

/// The values that the loop over the parts makes for a call that reads these positions, with their shapes: empty
/// caches, and the inputs that [`is_made`] names. For `decode`, only the values that change after the prefill.
pub(crate) fn made_inputs(model: &Model, phase: Phase, batch: usize, positions: Range<usize>) -> Shapes {
    let mut made = Shapes::new();
    let Some(generation) = &model.generation else { return made };
    let (new, all) = (positions.len(), positions.end);
    for (part, input) in model.parts.iter().flat_map(|part| part.inputs.iter().map(move |input| (part, input))) {
        let name = generation.value_of(&part.name, &input.name);
        let is_empty = match phase {
            Phase::Decode => generation.once.contains(&name),
            _ => generation.is_cache(part, &input.name),
        };
        let shape = match name.as_str() {
            _ if is_empty => {
                let others = input.shape.iter().skip(1).map(|dimension| dimension.fixed().unwrap_or(0));
                std::iter::once(batch).chain(others).collect()
            }
            _ if model.inputs.iter().any(|own| own.name == name) => continue,
            POSITIONS => vec![input.shape.first().and_then(Dimension::fixed).unwrap_or(batch), new],
            PLACES => vec![new],
            BIAS => vec![1, 1, new, new],
            BRANCH => vec![1],
            KEPT => Vec::new(),
            name if MASKS.contains(&name) => vec![batch, all],
            _ => continue,
        };
        made.insert(name, shape);
    }
    made
}

/// Walks the parts of a phase. `given` has the shapes of the inputs; those of the parts' outputs are added to it.
fn run(model: &Model, phase: Phase, given: &mut Shapes) -> Result<Vec<Walked>> {
    let plan = model.phase(phase).with_context(|| format!("{} has no phase {phase}", model.name))?;
    let mut all = Vec::new();
    for name in &plan.parts {
        let part = model.parts.iter().find(|part| part.name == *name);
        let (part, file) = part
            .and_then(|part| Some((part, model.onnx_file(part)?)))
            .with_context(|| format!("there is no ONNX graph of part {name:?}"))?;
        let value = |input: &str| match &model.generation {
            Some(generation) => generation.value_of(name, input),
            None => input.to_owned(),
        };
        let taken =
            part.inputs.iter().filter_map(|input| Some((input.name.clone(), given.get(&value(&input.name))?.clone())));
        let branch = Some((BRANCH, i64::from(phase == Phase::Decode)));
        let walked = graph::walk(&Source::read(&file)?.graph, &taken.collect(), branch);
        let walked = walked.with_context(|| file.display().to_string())?;
        given.extend(walked.outputs.iter().map(|(name, shape)| (value_name(name), shape.clone())));
        all.push(walked);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intensity_is_operations_for_each_byte() {
        assert_eq!(Cost { flops: 30, bytes: 12, ..Cost::default() }.intensity(), Some(2.5));
        assert_eq!(Cost::default().intensity(), None);
    }
}
