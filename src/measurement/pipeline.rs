//! A call from the bytes of pictures or from texts to the classes that a model finds in them.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::backend::{Session, Stages};
use crate::definition::{CaseFailure, is_scores};
use crate::fixture::{HostTensor, TensorData, TimedSamples};
use crate::run_data::places_of_largest;

/// The parts of a call that is more than the computation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallParts {
    /// Making the inputs from pictures or texts, in a pipeline.
    pub preprocess: Option<Duration>,
    pub stages: Stages,
    /// Choosing the largest outputs, in a pipeline.
    pub postprocess: Option<Duration>,
}

impl CallParts {
    /// The whole call.
    pub fn total(&self) -> Duration {
        let Stages { to_device, compute, to_host } = self.stages;
        to_device + compute + to_host + self.preprocess.unwrap_or_default() + self.postprocess.unwrap_or_default()
    }
}

/// The work around a session's calls from host to host, by the thread that makes the call.
pub struct Pipeline {
    samples: TimedSamples,
    /// The index of the output whose largest numbers are looked for.
    scores: Option<usize>,
}

impl Pipeline {
    /// `outputs` are those of one call, and `names` are their names. The largest scores are looked for in the first
    /// output with a score per class: for pictures, one with a list of numbers per sample; for texts, one whose name
    /// contains `logits` or `prob`. Without such an output, as for an embedding, nothing is looked for.
    pub fn new(samples: TimedSamples, outputs: &[HostTensor], names: &[String]) -> Self {
        let are_pictures = samples.are_pictures();
        let is_named = |place: usize| names.get(place).is_some_and(|name| is_scores(name));
        let has_scores = |(place, output): (usize, &HostTensor)| {
            let is_kind = if are_pictures { output.has_list_per_sample() } else { is_named(place) };
            matches!(output.data, TensorData::F32(_)) && is_kind
        };
        let scores = outputs.iter().enumerate().position(has_scores);
        Pipeline { samples, scores }
    }

    /// The number of batches.
    #[allow(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Makes the inputs of a batch, runs the session over them, and finds the largest scores of each row.
    pub fn call(&self, session: &mut dyn Session, batch: usize) -> Result<CallParts, CaseFailure> {
        let begin = Instant::now();
        let inputs = self.samples.inputs(batch)?;
        let preprocess = begin.elapsed();
        let (outputs, stages) = session.call_from_host(batch, &inputs)?;
        let computed = Instant::now();
        if let Some(scores) = self.scores.and_then(|place| outputs.get(place)) {
            black_box(largest_of_rows(scores));
        }
        drop((inputs, outputs));
        Ok(CallParts { preprocess: Some(preprocess), stages, postprocess: Some(computed.elapsed()) })
    }
}

/// The indices of the largest numbers of each row of an f32 tensor, the largest first. A row lies along the last
/// dimension of more than 1.
fn largest_of_rows(scores: &HostTensor) -> Vec<Vec<usize>> {
    let TensorData::F32(values) = &scores.data else { return Vec::new() };
    let width = scores.shape.iter().skip(1).rev().find(|&&size| size > 1).copied().unwrap_or(1);
    values.chunks(width).map(places_of_largest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_each_row_are_in_order() {
        let row = [0.5, 3.0, -1.0, 9.0, 4.0, 2.0, 1.0];
        let of = |shape: &[usize], values: &[f32]| {
            largest_of_rows(&HostTensor { shape: shape.to_vec(), data: values.to_vec().into() })
        };
        assert_eq!(of(&[1, 7], &row), [[3, 4, 1, 5, 6]]);
        assert_eq!(of(&[2, 7, 1, 1], &[row, row].concat()), [[3, 4, 1, 5, 6]; 2]);
        assert_eq!(of(&[1, 2, 2], &[1.0, 2.0, 4.0, 3.0]), [[1, 0], [0, 1]]);
    }
}
