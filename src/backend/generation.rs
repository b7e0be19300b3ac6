//! Greedy generation, the same loop for every backend: prefill, then steps with a cache that grows.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::interface::{Continuation, LoadRequest, NextTokens, Placement, Session, Stages};
use super::runtime::Runtime;
use crate::definition::{CaseFailure, Phase, TensorSpec};
use crate::fixture::{HostTensor, TensorData};

/// Decoding steps after a prefill whose tokens are compared: references have this many. It is also the default number
/// of steps before decoding starts again from the prompt.
const STEPS: usize = 16;

/// The most logits per row that are compared. Of a larger vocabulary, only every n-th logit is compared.
const COMPARED_LOGITS: usize = 1024;

/// A generative model as a backend runs it.
pub(super) trait Generator<R: Runtime> {
    /// One batch of the model's inputs.
    type Inputs;
    /// Keys and values of all positions so far; a clone does not copy them.
    type Cache: Clone;

    fn upload(&self, runtime: &R, inputs: &[HostTensor]) -> Result<Self::Inputs, CaseFailure>;
    /// The logits of the first new token, `[batch, vocabulary]`, and the cache of all positions before it.
    fn prefill(&mut self, runtime: &R, inputs: &Self::Inputs) -> Result<(R::Value, Self::Cache), CaseFailure>;
    /// The logits after `tokens`, i64 `[batch, 1]`, at `position`, counted from 0.
    fn step(
        &mut self,
        runtime: &R,
        tokens: &R::Value,
        position: usize,
        cache: &mut Self::Cache,
    ) -> Result<R::Value, CaseFailure>;
    /// Time that compilations took, if they are not a part of loading.
    fn compilation(&self, _runtime: &R) -> Option<Duration> {
        None
    }
}

/// The session of the phases `prefill` and `decode`.
///
/// A call of `prefill` goes from the inputs to the first token; a call of `decode` from one token to the next. Choosing
/// the token is part of both, as in every deployment.
pub(super) struct GenerationSession<R: Runtime, G: Generator<R>> {
    runtime: R,
    generator: G,
    phase: Phase,
    lengths: Lengths,
    /// Positions before the prompt.
    prefix_positions: usize,
    /// The index of the prompt's tokens among the inputs.
    tokens_input: usize,
    bound: Vec<Bound<G::Inputs, StateOf<R, G>>>,
    placement: Placement,
}

/// A batch, and the state of its generation.
struct Bound<I, S> {
    inputs: I,
    /// The state after the prefill.
    start: Option<S>,
    now: Option<S>,
}

#[derive(Clone)]
struct State<V, C> {
    tokens: V,
    cache: C,
    steps: usize,
}

type StateOf<R, G> = State<<R as Runtime>::Value, <G as Generator<R>>::Cache>;

impl<R: Runtime, G: Generator<R>> GenerationSession<R, G> {
    /// A session without bound batches.
    pub(super) fn new(
        request: &LoadRequest<'_>,
        runtime: R,
        generator: G,
        placement: Placement,
    ) -> Result<Self, CaseFailure> {
        let lengths = Lengths::of(request)?;
        let phase = request.phase;
        let generation = request.model.generation.as_ref();
        let prefix_positions = generation.map_or(0, |generation| generation.prefix_positions);
        let is_tokens = |input: &TensorSpec| generation.is_some_and(|generation| input.name == generation.tokens);
        let tokens_input = request.model.inputs.iter().position(is_tokens).unwrap_or(0);
        let bound = Vec::new();
        Ok(GenerationSession { runtime, generator, phase, lengths, prefix_positions, tokens_input, bound, placement })
    }

    /// Runs a prefill. Returns its logits, and the state with the first new token.
    fn prefill(&mut self, binding: usize) -> Result<(R::Value, StateOf<R, G>), CaseFailure> {
        let (logits, cache) = self.generator.prefill(&self.runtime, &self.bound[binding].inputs)?;
        let tokens = self.runtime.greedy(&logits)?;
        Ok((logits, State { tokens, cache, steps: 0 }))
    }

    /// Runs one decoding step of a binding. Returns the logits and the new tokens.
    fn step(&mut self, binding: usize) -> Result<(R::Value, R::Value), CaseFailure> {
        let Bound { start, now, .. } = &mut self.bound[binding];
        if now.is_none() {
            now.clone_from(start);
        }
        let Some(state) = now else { return Err(CaseFailure::failed("no prefill")) };
        let position = self.lengths.prompt + state.steps;
        let logits = self.generator.step(&self.runtime, &state.tokens, position, &mut state.cache)?;
        state.tokens = self.runtime.greedy(&logits)?;
        state.steps += 1;
        Ok((logits, state.tokens.clone()))
    }
}

/// How long the texts of a case are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lengths {
    /// Positions of the prompt.
    pub prompt: usize,
    /// Decoding steps after the prompt, before decoding starts again from it.
    pub steps: usize,
    /// Steps whose tokens are compared: as many as a reference has, even if fewer are timed.
    pub compared_steps: usize,
}

impl Lengths {
    /// # Errors
    /// The length of the prompt is not known, the model has too few positions for it, or decoding would make no token.
    pub fn of(request: &LoadRequest<'_>) -> Result<Self, CaseFailure> {
        let unknown = || CaseFailure::failed("the length of the prompt is not known: set `seq_lens`");
        let prompt = request.model.prompt_positions(request.sizes.sequence).ok_or_else(unknown)?;
        let generation = request.model.generation.as_ref();
        let wanted = generation.and_then(|generation| generation.new_tokens).unwrap_or(STEPS);
        if wanted == 0 && request.phase == Phase::Decode {
            return Err(CaseFailure::failed("`new_tokens` is 0, and decoding makes at least 1 token"));
        }
        let compared = if request.artifacts.reference.is_some() { STEPS } else { STEPS.min(wanted) };
        let Some(positions) = generation.and_then(|generation| generation.positions) else {
            return Ok(Lengths { prompt, steps: wanted, compared_steps: compared });
        };
        // After a prompt that fills all positions, one token can be computed, and no more.
        let least = usize::from(request.phase == Phase::Decode);
        let left = positions.checked_sub(prompt).filter(|left| *left >= least);
        let left = left.ok_or_else(|| {
            CaseFailure::unsupported(format!(
                "the prompt's length ({prompt}) reaches the model's number of positions ({positions}): set shorter `--seq-lens`"
            ))
        })?;
        Ok(Lengths { prompt, steps: wanted.min(left), compared_steps: compared.min(left) })
    }
}

impl<R: Runtime, G: Generator<R>> Session for GenerationSession<R, G> {
    fn bind(&mut self, inputs: &[HostTensor]) -> Result<usize, CaseFailure> {
        let inputs = self.generator.upload(&self.runtime, inputs)?;
        self.bound.push(Bound { inputs, start: None, now: None });
        let binding = self.bound.len() - 1;
        if self.phase == Phase::Decode {
            let (_, state) = self.prefill(binding)?;
            self.bound[binding].start = Some(state);
        }
        Ok(binding)
    }

    fn reset(&mut self, request: &LoadRequest<'_>) -> Result<(), CaseFailure> {
        self.lengths = Lengths::of(request)?;
        self.bound.clear();
        Ok(())
    }

    fn calls_in_a_row(&self) -> usize {
        if self.phase == Phase::Decode { self.lengths.steps } else { 1 }
    }

    fn rewind(&mut self, binding: usize) {
        self.bound[binding].now = None;
    }

    fn run(&mut self, binding: usize) -> Result<(), CaseFailure> {
        match self.phase {
            Phase::Decode => self.step(binding).map(drop),
            _ => self.prefill(binding).map(drop),
        }
    }

    fn sync(&mut self) -> Result<(), CaseFailure> {
        self.runtime.sync()
    }

    fn outputs(&mut self, binding: usize) -> Result<Vec<HostTensor>, CaseFailure> {
        if self.phase != Phase::Decode {
            let (logits, state) = self.prefill(binding)?;
            let mut token = self.runtime.download(&state.tokens)?;
            token.shape.truncate(1);
            return Ok(vec![token, compared_logits(&self.runtime.download(&logits)?)?]);
        }
        self.rewind(binding);
        let (mut steps, mut last) = (Vec::new(), None);
        for _ in 0..self.lengths.compared_steps {
            let (logits, tokens) = self.step(binding)?;
            steps.push(self.runtime.download(&tokens)?);
            last = Some(logits);
        }
        self.rewind(binding);
        let logits = last.ok_or_else(|| CaseFailure::failed("no step"))?;
        Ok(vec![side_by_side(&steps)?, compared_logits(&self.runtime.download(&logits)?)?])
    }

    fn follow(
        &mut self,
        inputs: &[HostTensor],
        continuation: Continuation<'_>,
    ) -> Result<Vec<NextTokens>, CaseFailure> {
        check_makes_tokens(self.phase)?;
        let inputs = self.generator.upload(&self.runtime, inputs)?;
        let (first, mut cache) = self.generator.prefill(&self.runtime, &inputs)?;
        followed(continuation, |before| {
            let Some((number, tokens)) = before else { return self.runtime.download(&first).map(Some) };
            let tokens = HostTensor { shape: vec![tokens.len(), 1], data: TensorData::I64(tokens) };
            let (tokens, position) = (self.runtime.upload(&tokens)?, self.lengths.prompt + number);
            let logits = self.generator.step(&self.runtime, &tokens, position, &mut cache)?;
            self.runtime.download(&logits).map(Some)
        })
    }

    fn first_tokens(&mut self, binding: usize) -> Result<Option<Vec<i64>>, CaseFailure> {
        check_makes_tokens(self.phase)?;
        let Some(start) = &self.bound[binding].start else { return Ok(None) };
        let tokens = self.runtime.download(&start.tokens)?;
        Ok(if let TensorData::I64(tokens) = tokens.data { Some(tokens) } else { None })
    }

    fn generate(
        &mut self,
        inputs: &[HostTensor],
        tokens: usize,
        made: &mut dyn FnMut(&HostTensor),
    ) -> Result<(), CaseFailure> {
        check_makes_tokens(self.phase)?;
        let prompt = inputs.get(self.tokens_input).and_then(|input| input.shape.get(1)).copied();
        let prompt = self.prefix_positions + prompt.ok_or_else(|| CaseFailure::failed("a request without a prompt"))?;
        let inputs = self.generator.upload(&self.runtime, inputs)?;
        let (mut logits, mut cache) = self.generator.prefill(&self.runtime, &inputs)?;
        for number in 0..tokens {
            let token = self.runtime.greedy(&logits)?;
            made(&self.runtime.download(&token)?);
            if number + 1 < tokens {
                logits = self.generator.step(&self.runtime, &token, prompt + number, &mut cache)?;
            }
        }
        Ok(())
    }

    /// A call of `prefill` goes from the inputs on the host to the first token on the host.
    fn call_from_host(
        &mut self,
        binding: usize,
        inputs: &[HostTensor],
    ) -> Result<(Vec<HostTensor>, Stages), CaseFailure> {
        check_takes_inputs(self.phase)?;
        let begin = Instant::now();
        self.bound[binding].inputs = self.generator.upload(&self.runtime, inputs)?;
        self.runtime.sync()?;
        let uploaded = Instant::now();
        let (_, state) = self.prefill(binding)?;
        self.runtime.sync()?;
        let computed = Instant::now();
        let tokens = black_box(self.runtime.download(&state.tokens)?);
        let to_host = computed.elapsed();
        Ok((vec![tokens], Stages { to_device: uploaded - begin, compute: computed - uploaded, to_host }))
    }

    fn compilation(&self) -> Option<Duration> {
        self.generator.compilation(&self.runtime)
    }

    fn placement(&self) -> Placement {
        self.placement.clone()
    }
}

pub(super) fn check_makes_tokens(phase: Phase) -> Result<(), CaseFailure> {
    match phase {
        Phase::Decode => Ok(()),
        _ => Err(CaseFailure::unsupported("a session of this phase makes no further tokens")),
    }
}

pub(super) fn check_takes_inputs(phase: Phase) -> Result<(), CaseFailure> {
    match phase {
        Phase::Decode => {
            Err(CaseFailure::unsupported("a step of decode takes its token from the step before, on the device"))
        }
        _ => Ok(()),
    }
}

impl Continuation<'_> {
    /// The most tokens that the continuation can have.
    pub(super) fn count(&self) -> usize {
        match self {
            Continuation::Given { text, .. } => text.shape.get(1).copied().unwrap_or(0),
            Continuation::Likeliest { most, .. } => *most,
        }
    }
}

/// Follows the continuation of a prompt, from the logits of each next token. `logits` gets `None` directly after the
/// prompt, and later the last tokens with their index in the continuation. The text ends where it returns `None`.
pub(super) fn followed(
    continuation: Continuation<'_>,
    mut logits: impl FnMut(Option<(usize, Vec<i64>)>) -> Result<Option<HostTensor>, CaseFailure>,
) -> Result<Vec<NextTokens>, CaseFailure> {
    let (mut all, mut has_ended, mut before) = (Vec::new(), Vec::new(), None);
    for number in 0..continuation.count() {
        let Some(logits) = logits(before)? else { break };
        let (next, tokens) = match continuation {
            Continuation::Given { text, log_probabilities } => {
                let given = column(text, number)?;
                (next_tokens(&logits, Some(&given), log_probabilities)?, given)
            }
            Continuation::Likeliest { ends, .. } => {
                let next = next_tokens(&logits, None, false)?;
                let tokens = next.likeliest.clone();
                has_ended.resize(tokens.len(), false);
                has_ended.iter_mut().zip(&tokens).for_each(|(ended, token)| *ended |= ends.contains(token));
                (next, tokens)
            }
        };
        all.push(next);
        if !has_ended.is_empty() && has_ended.iter().all(|ended| *ended) {
            break;
        }
        before = Some((number, tokens));
    }
    Ok(all)
}

/// A column of a text `[batch, length]`.
fn column(text: &HostTensor, number: usize) -> Result<Vec<i64>, CaseFailure> {
    let (&[_, length], TensorData::I64(tokens)) = (text.shape.as_slice(), &text.data) else {
        return Err(CaseFailure::failed("a text that is not i64 [batch, length]"));
    };
    Ok(tokens.chunks_exact(length.max(1)).filter_map(|row| row.get(number)).copied().collect())
}

/// How likely the next tokens are: the given ones, or else the likeliest. The logits are `[batch, vocabulary]`, or
/// `[batch, positions, vocabulary]`, of which the last position counts. The logarithms of all probabilities are as many
/// numbers as the logits, and are computed only if they are wanted.
fn next_tokens(logits: &HostTensor, given: Option<&[i64]>, log_probabilities: bool) -> Result<NextTokens, CaseFailure> {
    let mut next =
        NextTokens { likeliest: Vec::new(), losses: Vec::new(), gaps: Vec::new(), log_probabilities: Vec::new() };
    for (place, row) in last_rows(logits)?.enumerate() {
        let best = likeliest(row);
        let token = given.map_or(Some(best), |given| usize::try_from(*given.get(place)?).ok());
        let logits = || row.iter().map(|&logit| f64::from(logit));
        let logit = token.and_then(|token| row.get(token)).map(|&logit| f64::from(logit)).ok_or_else(|| {
            CaseFailure::failed(format!("the text has a token that is not among the model's {} tokens", row.len()))
        })?;
        next.likeliest.push(best as i64);
        let largest = f64::from(row[best]);
        let log_of_all = largest + logits().map(|logit| (logit - largest).exp()).sum::<f64>().ln();
        next.losses.push(log_of_all - logit);
        if log_probabilities {
            next.log_probabilities.push(logits().map(|logit| (logit - log_of_all) as f32).collect());
        }
        let finite = logits().filter(|logit| logit.is_finite());
        let largest_absolute = finite.fold(f64::MIN_POSITIVE, |largest, logit| largest.max(logit.abs()));
        let gap = (largest - logit) / largest_absolute;
        // The comparisons above skip NaN, which has to show in the gap.
        next.gaps.push(if logits().any(f64::is_nan) { f64::NAN } else { gap });
    }
    Ok(next)
}

/// The logits of each row at its last position.
fn last_rows(logits: &HostTensor) -> Result<impl Iterator<Item = &[f32]>, CaseFailure> {
    let (&[batch, .., vocabulary], TensorData::F32(values)) = (logits.shape.as_slice(), &logits.data) else {
        return Err(CaseFailure::failed(format!("logits of shape {:?} instead of [batch, vocabulary]", logits.shape)));
    };
    Ok(rows_at_end(values, batch, vocabulary))
}

/// The numbers at the last position of each row: of `[rows, columns]` or `[rows, positions, columns]`.
pub(super) fn rows_at_end<T>(values: &[T], rows: usize, columns: usize) -> impl Iterator<Item = &[T]> {
    let rows = values.chunks_exact((values.len() / rows.max(1)).max(1));
    rows.filter_map(move |row| row.rchunks_exact(columns.max(1)).next())
}

/// The index of the largest number; the first if several are equal.
pub(super) fn likeliest<T: Copy + Into<f32>>(row: &[T]) -> usize {
    let mut best = (0, f32::NEG_INFINITY);
    for (place, &value) in row.iter().enumerate() {
        let value: f32 = value.into();
        if value > best.1 {
            best = (place, value);
        }
    }
    best.0
}

/// Joins columns `[batch, 1]` to `[batch, columns]`.
pub(super) fn side_by_side(columns: &[HostTensor]) -> Result<HostTensor, CaseFailure> {
    let columns = columns.iter().map(|column| match &column.data {
        TensorData::I64(tokens) => Ok(tokens),
        _ => Err(CaseFailure::failed("tokens that are not i64")),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let rows = columns.first().map_or(0, |column| column.len());
    let tokens = (0..rows).flat_map(|row| columns.iter().map(move |column| column[row])).collect();
    Ok(HostTensor { shape: vec![rows, columns.len()], data: TensorData::I64(tokens) })
}

/// Every n-th logit at each row's last position, at most [`COMPARED_LOGITS`] per row. The logits are
/// `[batch, vocabulary]` or `[batch, positions, vocabulary]`.
pub(super) fn compared_logits(logits: &HostTensor) -> Result<HostTensor, CaseFailure> {
    let rows = last_rows(logits)?;
    let (batch, vocabulary) = (logits.shape[0], logits.shape[logits.shape.len() - 1]);
    let step = vocabulary.div_ceil(COMPARED_LOGITS).max(1);
    let kept = rows.flat_map(|row| row.iter().step_by(step)).copied().collect();
    Ok(HostTensor { shape: vec![batch, vocabulary.div_ceil(step)], data: TensorData::F32(kept) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{Dimension, Dtype, ElementType, Generation, Model, Sizes};
    use crate::fixture::Artifacts;

    #[test]
    fn every_nth_logit_of_a_large_vocabulary_is_compared() {
        let logits = |vocabulary: usize| HostTensor {
            shape: vec![2, vocabulary],
            data: TensorData::F32((0..2 * vocabulary).map(|value| value as f32).collect()),
        };
        assert_eq!(compared_logits(&logits(1000)).unwrap(), logits(1000));
        let large = compared_logits(&logits(2049)).unwrap();
        assert_eq!(large.shape, [2, 683]);
        let TensorData::F32(values) = large.data else { panic!() };
        assert_eq!((values[1], values[683]), (3.0, 2049.0));
        let of_positions = HostTensor { shape: vec![2, 3, 2], data: logits(6).data };
        assert_eq!(compared_logits(&of_positions).unwrap().data, TensorData::F32(vec![4.0, 5.0, 10.0, 11.0]));
    }

    #[test]
    fn decoding_has_room_for_a_token_or_is_refused() {
        let shape = vec![Dimension::Fixed(1), Dimension::Fixed(8)];
        let mut model = Model::of_tensors("m", vec![TensorSpec::new("tokens", ElementType::I64, shape)], Vec::new());
        let mut lengths = |phase, new_tokens, positions| {
            let (new_tokens, positions) = (Some(new_tokens), Some(positions));
            model.generation =
                Some(Generation { tokens: "tokens".into(), new_tokens, positions, ..Generation::default() });
            let lengths = Lengths::of(&LoadRequest {
                model: &model,
                artifacts: &Artifacts::default(),
                phase,
                sizes: Sizes { batch: 1, sequence: None },
                device: "cpu",
                dtype: Dtype::F32,
                threads: 1,
                instances: 1,
                callers: 1,
            });
            lengths.ok().map(|lengths| (lengths.prompt, lengths.steps))
        };
        assert_eq!(lengths(Phase::Decode, 4, 10), Some((8, 2)));
        assert_eq!([lengths(Phase::Decode, 4, 8), lengths(Phase::Prefill, 4, 8)], [None, Some((8, 0))]);
        assert_eq!([lengths(Phase::Decode, 0, 10), lengths(Phase::Prefill, 0, 10)], [None, Some((8, 0))]);
    }

    #[test]
    fn the_loss_is_that_of_the_token_that_is_given() {
        let logits = HostTensor { shape: vec![2, 3], data: TensorData::F32(vec![1.0, 2.0, 0.5, -100.0, 700.0, 700.0]) };
        let NextTokens { likeliest, losses, gaps, log_probabilities } =
            next_tokens(&logits, Some(&[2, 0]), true).unwrap();
        assert_eq!((likeliest, gaps), (vec![1, 1], vec![0.75, 800.0 / 700.0]));
        let sum = [1.0_f64, 2.0, 0.5].map(f64::exp).iter().sum::<f64>();
        assert!((losses[0] - (sum.ln() - 0.5)).abs() < 1e-12, "{losses:?}");
        assert!((losses[1] - (800.0 + 2.0_f64.ln())).abs() < 1e-9, "{losses:?}");
        let probabilities: f64 = log_probabilities[0].iter().map(|&it| f64::from(it).exp()).sum();
        assert!((probabilities - 1.0).abs() < 1e-6, "{log_probabilities:?}");
        // The graph rules out the first token.
        let ruled_out = HostTensor { shape: vec![1, 3], data: TensorData::F32(vec![f32::NEG_INFINITY, 2.0, 2.0]) };
        let next = next_tokens(&ruled_out, Some(&[2]), true).unwrap();
        assert!((next.losses[0] - 2.0_f64.ln()).abs() < 1e-12 && next.likeliest == [1], "{next:?}");
        let one_is_no_number = HostTensor { shape: vec![1, 3], data: TensorData::F32(vec![f32::NAN, 2.0, 1.0]) };
        assert!(next_tokens(&one_is_no_number, Some(&[1]), false).unwrap().gaps[0].is_nan());
        let own = next_tokens(&logits, None, false).unwrap();
        assert!(own.log_probabilities.is_empty(), "{own:?}");
        assert!((own.losses[0] - (sum.ln() - 2.0)).abs() < 1e-12, "{own:?}");
        let error = next_tokens(&logits, Some(&[3, 0]), true).unwrap_err().message;
        assert_eq!(error, "the text has a token that is not among the model's 3 tokens");
    }

    #[test]
    fn tokens_of_steps_become_rows() {
        let column = |tokens: [i64; 2]| HostTensor { shape: vec![2, 1], data: TensorData::I64(tokens.to_vec()) };
        let tokens = side_by_side(&[column([1, 4]), column([2, 5]), column([3, 6])]).unwrap();
        assert_eq!(tokens, HostTensor { shape: vec![2, 3], data: TensorData::I64(vec![1, 2, 3, 4, 5, 6]) });
    }
}
