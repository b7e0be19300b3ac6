//! In lower precision, one of two nearly equally likely tokens may replace the other: how far their logits are apart.

use super::Verification;
use crate::backend::{self, Continuation, LoadRequest, Session};
use crate::definition::{CaseFailure, Dtype, Phase};
use crate::fixture::{self, HostTensor, NamedTensors, TensorData};

impl Verification<'_> {
    /// How far the logits of the expected tokens are below the largest ones, at most, each after the expected tokens
    /// before it, as a fraction of the largest absolute logit. In lower precision, the other of two nearly equally
    /// likely tokens may be taken, and then all later tokens differ.
    ///
    /// Returns `None` in f32, in phases that make no tokens, and if the first token of a text, made by the prefill, is
    /// unknown.
    pub(super) fn gap_of_tokens(
        &self,
        session: &mut dyn Session,
        inputs: &[HostTensor],
        (outputs, first): (&[HostTensor], Option<&[i64]>),
        (binding, batch_size): (usize, usize),
        expected: &NamedTensors,
    ) -> Result<Option<f64>, CaseFailure> {
        match self.case.phase {
            _ if most_gap(self.rounded_to(session)) == 0.0 => return Ok(None),
            Phase::Prefill => {
                let shown = outputs.get(1).and_then(|logits| logits.shape.last()).copied();
                if shown.is_some() && shown == self.vocabulary() {
                    return Ok(gap_of_first_tokens(outputs, expected));
                }
                // If no decoding session can be loaded, the gap is not known.
                return Ok(self.gap_of_unseen_tokens(inputs, expected).unwrap_or(None));
            }
            Phase::Decode => {}
            Phase::Forward | Phase::Encoder => return Ok(None),
        }
        let samples = fixture::sample_indices(binding, batch_size);
        let samples = self.reference.map_or_else(|| samples.clone(), |reference| reference.again(&samples));
        let length = self.case.sequence_length;
        let first_of_reference = self.reference.and_then(|reference| reference.output(Phase::Prefill, "token", length));
        let first_of_other = first.map(|first| TensorData::I64(first.to_vec()));
        let first = first_of_reference.map(|first| first.rows(&samples).data).or(first_of_other);
        let further = expected.iter().map(|(_, tensor)| &tensor.data).find(|data| matches!(data, TensorData::I64(_)));
        let (Some(TensorData::I64(first)), Some(TensorData::I64(further))) = (first, further) else { return Ok(None) };
        let steps = further.len() / first.len().max(1);
        let rows = first.iter().zip(further.chunks_exact(steps.max(1)));
        let tokens: Vec<i64> =
            rows.flat_map(|(first, further)| std::iter::once(first).chain(further)).copied().collect();
        let tokens = HostTensor { shape: vec![first.len(), steps + 1], data: TensorData::I64(tokens) };
        let next = session.follow(inputs, Continuation::Given { text: &tokens, log_probabilities: false })?;
        Ok(largest_gap(next.iter().flat_map(|next| &next.gaps).copied()))
    }

    /// The size of the vocabulary, by the width of the logits in the model's definition.
    fn vocabulary(&self) -> Option<usize> {
        let mut outputs = self.request.model.parts.iter().flat_map(|part| &part.outputs);
        outputs.find(|output| output.name == "logits")?.shape.last()?.fixed()
    }

    /// The gap of first tokens, from a decoding session, if the outputs lack logits because the vocabulary is large.
    fn gap_of_unseen_tokens(&self, inputs: &[HostTensor], expected: &NamedTensors) -> Result<Option<f64>, CaseFailure> {
        let Some((_, HostTensor { data: TensorData::I64(tokens), .. })) = expected.first() else { return Ok(None) };
        let tokens = HostTensor { shape: vec![tokens.len(), 1], data: TensorData::I64(tokens.clone()) };
        let request = LoadRequest { phase: Phase::Decode, ..self.request };
        let mut decoding = backend::find(&self.case.backend)?.load(&request)?;
        let next = decoding.follow(inputs, Continuation::Given { text: &tokens, log_probabilities: false })?;
        Ok(largest_gap(next.iter().flat_map(|next| &next.gaps).copied()))
    }
}

/// The gap up to which two tokens count as nearly equally likely: how far a logit is below the largest one, as a
/// fraction of the largest absolute one. It is four times what ONNX Runtime's own arithmetic gave for most of the
/// packaged models.
pub(super) fn most_gap(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F32 => 0.0,
        Dtype::F16 => 4e-2,
        Dtype::Bf16 => 2e-1,
        Dtype::I8 => 4e-1,
    }
}

/// The largest gap of the expected tokens, by the outputs `token` and `logits`.
fn gap_of_first_tokens(outputs: &[HostTensor], expected: &NamedTensors) -> Option<f64> {
    let (logits, tokens) = (outputs.get(1)?.to_f64(), expected.first()?.1.to_f64());
    let rows = logits.chunks(logits.len().checked_div(tokens.len())?.max(1));
    let gap = |(row, token): (&[f64], f64)| {
        if row.iter().any(|logit| logit.is_nan()) {
            return Some(f64::NAN);
        }
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let size = row.iter().filter(|logit| logit.is_finite()).fold(0.0_f64, |size, logit| size.max(logit.abs()));
        Some((largest - row.get(token as usize)?) / size.max(f64::MIN_POSITIVE))
    };
    largest_gap(rows.zip(tokens).map(gap).collect::<Option<Vec<f64>>>()?.into_iter())
}

/// The largest of these gaps. A gap that is NaN, like its logits, is larger than any other.
fn largest_gap(gaps: impl Iterator<Item = f64>) -> Option<f64> {
    gaps.map(|gap| if gap.is_nan() { f64::INFINITY } else { gap }).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_that_are_no_numbers_are_farther_from_a_token_than_any() {
        let tensor = |data| HostTensor { shape: vec![1, 2], data };
        let expected = vec![("token".to_owned(), HostTensor { shape: vec![1, 1], data: TensorData::I64(vec![1]) })];
        let gap = |logits: [f32; 2]| {
            let token = HostTensor { shape: vec![1, 1], data: TensorData::I64(vec![0]) };
            gap_of_first_tokens(&[token, tensor(TensorData::F32(logits.to_vec()))], &expected)
        };
        assert_eq!(gap([2.0, 1.0]), Some(0.5));
        assert_eq!([gap([f32::NAN, f32::NAN]), gap([f32::NAN, 1.0])], [Some(f64::INFINITY); 2]);
    }
}
