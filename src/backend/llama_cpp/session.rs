//! Prefill and decode. Each row of a batch is a sequence of llama.cpp's cache, and each bound batch has its own
//! sequences. So decoding can start again after a prompt without reading it again.

use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use super::context::{Context, LoadedModel, MOST_SEQUENCES, Placed};
use super::declarations::Token;
use super::library::llama;
use super::operators::Watch;
use super::settings::Settings;
use crate::backend::generation::{
    Lengths, check_makes_tokens, check_takes_inputs, compared_logits, followed, likeliest, side_by_side,
};
use crate::backend::interface::{Continuation, LoadRequest, NextTokens, Placement, Session, Stages};
use crate::backend::recorder::Recorder;
use crate::backend::shared::Shared;
use crate::definition::{CaseFailure, Dtype, Phase, device_kind};
use crate::fixture::{HostTensor, RING, TensorData};
use crate::gguf::Header;

/// Architectures of files whose activation is GELU, which ggml looks up in a table of f16 on the CPU.
const GELU: &str = "gpt2 gemma gemma2 gemma3 gemma3n gemma4 starcoder starcoder2 codeshell falcon gptneox bloom mpt phi2 grok \
                    spark2_5";

/// The least number of tokens after a prompt for which the cache has room, so that short texts can be followed.
const ROOM: usize = 64;

pub(super) struct LlamaSession {
    model: Arc<LoadedModel>,
    /// Made for the first batch, and made anew when there is no room for another batch.
    context: Option<Context>,
    settings: Settings,
    threads: usize,
    phase: Phase,
    lengths: Lengths,
    bound: Vec<Bound>,
    /// Whether outputs were requested. Batches that are bound afterwards are only compared, never timed.
    is_compared: bool,
    /// The likeliest tokens after the last call, one per row.
    tokens: Vec<Token>,
    placement: Placement,
    watch: Option<Rc<Watch>>,
}

/// A batch, and the state of its generation.
struct Bound {
    /// By row, all of one length.
    prompts: Rc<[Vec<Token>]>,
    sequences: Range<usize>,
    /// Whether its calls are timed, so that they must not read the prompt.
    is_timed: bool,
    /// Whether the cache still has the prompt in these sequences.
    is_read: bool,
    /// The first token after the prompt of each row.
    start: Vec<Token>,
    /// The last tokens, and the steps so far; `None` if the next step is the first.
    now: Option<(Vec<Token>, usize)>,
}

impl LlamaSession {
    /// Loads the file of a request.
    ///
    /// # Errors
    /// The model has other inputs than tokens, or the file cannot be read, or llama.cpp refuses it.
    pub fn load(request: &LoadRequest<'_>, file: PathBuf, settings: Settings) -> Result<Self, CaseFailure> {
        if request.model.inputs.len() != 1 {
            return Err(CaseFailure::unsupported("only models whose only input is tokens are run as GGUF files"));
        }
        let lengths = Lengths::of(request)?;
        let header = Header::read(&file)?;
        let load = || LoadedModel::load(&file, request.device, &settings);
        let model = if request.instances > 1 {
            static MODELS: Shared<LoadedModel> = Shared::new();
            MODELS.get(format!("{} {} {settings:?}", file.display(), request.device), load)?
        } else {
            Arc::new(load()?)
        };
        let llama = llama()?;
        let is_cpu = device_kind(request.device) == "cpu";
        let kernels = llama.kernels.trim_start_matches("libggml-").split('.').next().unwrap_or_default().to_owned();
        let architecture = header.architecture()?;
        let has_table = is_cpu && GELU.split(' ').any(|own| own == architecture);
        let rounded = if has_table { ", GELU from a table of f16" } else { "" };
        let (description, kinds, words) = (model.description(), header.kinds_in_words(), settings.in_words());
        let executor = format!("llama.cpp {}: {description} ({kinds}), {words}{rounded}", llama.version);
        let placement = Placement {
            // The other dtypes are not finer than f16 anyway.
            rounded_to: (has_table && request.dtype == Dtype::F32).then_some(Dtype::F16),
            effective_device: request.device.into(),
            // The types in the file decide those of the products, whatever dtype was requested.
            effective_dtype: Some(header.dtype()),
            providers: if is_cpu { kernels } else { request.device.to_owned() },
            threads: is_cpu.then_some(request.threads),
            parameters: Some(model.parameters()),
            gguf_scheme: Some(header.scheme().to_owned()),
            artifacts: vec![file],
            executor: Some(executor),
            serves_other_sizes: true,
            ..Placement::default()
        };
        Ok(LlamaSession {
            model,
            context: None,
            settings,
            threads: request.threads,
            phase: request.phase,
            lengths,
            bound: Vec::new(),
            is_compared: false,
            tokens: Vec::new(),
            placement,
            watch: None,
        })
    }

    /// This session, but with its operators noted by the recorder.
    pub fn watched_by(self, recorder: Recorder) -> Self {
        LlamaSession { watch: Some(Rc::new(Watch::new(recorder))), ..self }
    }

    /// Makes room for a batch as a part of loading.
    pub fn reserve(&mut self, batch: usize) -> Result<(), CaseFailure> {
        self.make_room(batch, self.lengths.prompt + self.room())
    }

    /// The positions to keep free after a prompt.
    fn room(&self) -> usize {
        if self.phase == Phase::Decode { self.lengths.steps.max(ROOM) } else { 0 }
    }

    /// Makes room for `length` positions in each of `sequences` sequences. If this takes a new cache, the timed batches
    /// are read into it again.
    fn make_room(&mut self, sequences: usize, length: usize) -> Result<(), CaseFailure> {
        let has_room = |context: &Context| context.sequences >= sequences && context.length >= length;
        if self.context.as_ref().is_some_and(has_room) {
            return Ok(());
        }
        if sequences > MOST_SEQUENCES {
            let largest = |batch: usize| format!("the largest batch is {batch}");
            let (what, advice) = match self.phase {
                Phase::Decode if self.bound.len() < RING => {
                    (format!("decoding keeps {RING} batches, "), largest(MOST_SEQUENCES / RING))
                }
                Phase::Decode => ("decoding keeps all batches, ".to_owned(), "smaller or fewer batches fit".to_owned()),
                _ => (String::new(), largest(MOST_SEQUENCES)),
            };
            return Err(CaseFailure::unsupported(format!(
                "{what}{sequences} sequences in all, and llama.cpp keeps {MOST_SEQUENCES} at most: {advice}"
            )));
        }
        let before = self.context.take().map_or((0, 0), |context| (context.sequences, context.length));
        let exact = (sequences.max(before.0), length.max(before.1));
        // A new cache has to read all timed prompts again, so it grows seldom and by much, if memory allows.
        let size = (exact.0, if length > before.1 { length.max(2 * before.1) } else { before.1 });
        let place = (self.placement.effective_device.as_str(), self.threads);
        let new = |size| Context::new(Arc::clone(&self.model), place, &self.settings, size, self.watch.clone());
        let context = new(size).or_else(|why| if size == exact { Err(why) } else { new(exact) })?;
        self.context = Some(context);
        self.take_over(&(0..MOST_SEQUENCES));
        self.restore()
    }

    fn context(&mut self) -> Result<&mut Context, CaseFailure> {
        self.context.as_mut().ok_or_else(nothing_is_bound)
    }

    /// Sequences for a batch beside those of the bound batches.
    fn sequences_beside(&self, batch: usize, is_timed: bool) -> Range<usize> {
        let is_kept = self.phase == Phase::Decode;
        let end = self.bound.iter().map(|bound| bound.sequences.end).max().filter(|_| is_kept).unwrap_or(0);
        sequences_after(end, batch, is_timed)
    }

    /// Notes that these sequences get other prompts than those of their bound batches.
    fn take_over(&mut self, sequences: &Range<usize>) {
        for bound in &mut self.bound {
            if bound.sequences.start < sequences.end && sequences.start < bound.sequences.end {
                (bound.is_read, bound.now) = (false, None);
            }
        }
    }

    /// Reads the prompts of those timed batches again whose sequences were taken over.
    fn restore(&mut self) -> Result<(), CaseFailure> {
        for binding in 0..self.bound.len() {
            let Bound { is_timed, is_read, .. } = self.bound[binding];
            if self.phase == Phase::Decode && is_timed && !is_read {
                self.read_prompt(binding)?;
            }
        }
        Ok(())
    }

    /// Reads prompts into these sequences, and leaves the tokens that follow them in `tokens`.
    fn prefill(&mut self, prompts: &[Vec<Token>], sequences: Range<usize>) -> Result<(), CaseFailure> {
        let context = self.context()?;
        for sequence in sequences.clone() {
            context.forget(sequence, 0)?;
        }
        context.decode(prompts.iter().zip(sequences).flat_map(|(prompt, sequence)| {
            prompt.iter().enumerate().map(move |(position, &token)| Placed {
                token,
                position,
                sequence,
                is_asked: position + 1 == prompt.len(),
            })
        }))?;
        self.choose(Self::first_places(prompts.len(), prompts.first().map_or(0, Vec::len)))
    }

    /// Adds one token to each of these sequences, and leaves the tokens that follow in `tokens`.
    fn step(&mut self, tokens: &[Token], position: usize, sequences: Range<usize>) -> Result<(), CaseFailure> {
        let placed = tokens.iter().zip(sequences);
        let placed = placed.map(|(&token, sequence)| Placed { token, position, sequence, is_asked: true });
        self.context()?.decode(placed)?;
        self.choose(0..tokens.len())
    }

    /// Leaves the likeliest tokens after these places of the last call in `tokens`.
    fn choose(&mut self, places: impl Iterator<Item = usize>) -> Result<(), CaseFailure> {
        let context = self.context.as_mut().ok_or_else(nothing_is_bound)?;
        self.tokens.clear();
        for place in places {
            self.tokens.push(likeliest(context.logits(place)?) as Token);
        }
        Ok(())
    }

    /// The logits of the last call at these places, f32 `[rows, vocabulary]`.
    fn logits(&mut self, places: impl Iterator<Item = usize>) -> Result<HostTensor, CaseFailure> {
        let (mut values, mut rows) = (Vec::new(), 0);
        let vocabulary = self.model.vocabulary;
        let context = self.context()?;
        for place in places {
            values.extend_from_slice(context.logits(place)?);
            rows += 1;
        }
        Ok(HostTensor { shape: vec![rows, vocabulary], data: TensorData::F32(values) })
    }

    /// Reads the prompt of a bound batch into its sequences.
    fn read_prompt(&mut self, binding: usize) -> Result<(), CaseFailure> {
        let Bound { prompts, sequences, .. } = &self.bound[binding];
        let (prompts, sequences) = (Rc::clone(prompts), sequences.clone());
        self.take_over(&sequences);
        self.prefill(&prompts, sequences)?;
        let bound = &mut self.bound[binding];
        (bound.start, bound.now, bound.is_read) = (self.tokens.clone(), None, true);
        Ok(())
    }

    /// Makes one decoding step of a binding, and leaves the new tokens in `tokens`.
    fn decode(&mut self, binding: usize) -> Result<(), CaseFailure> {
        let sequences = self.bound[binding].sequences.clone();
        let (tokens, steps) = match self.bound[binding].now.take() {
            Some(now) => now,
            None => {
                if !self.bound[binding].is_read {
                    self.read_prompt(binding)?;
                }
                let prompt = self.prompt_of(binding);
                let context = self.context()?;
                for sequence in sequences.clone() {
                    context.forget(sequence, prompt)?;
                }
                (self.bound[binding].start.clone(), 0)
            }
        };
        let position = self.prompt_of(binding) + steps;
        self.step(&tokens, position, sequences)?;
        self.bound[binding].now = Some((self.tokens.clone(), steps + 1));
        Ok(())
    }

    fn prompt_of(&self, binding: usize) -> usize {
        self.bound[binding].prompts.first().map_or(0, Vec::len)
    }

    /// Reads prompts beside the bound batches, with room for `more` tokens after them. Returns their sequences and the
    /// length of a prompt.
    fn read_beside(&mut self, inputs: &[HostTensor], more: usize) -> Result<(Range<usize>, usize), CaseFailure> {
        let prompts = prompts(inputs)?;
        let sequences = self.sequences_beside(prompts.len(), false);
        let length = prompts.first().map_or(0, Vec::len);
        self.make_room(sequences.end, length + more)?;
        self.take_over(&sequences);
        self.prefill(&prompts, sequences.clone())?;
        Ok((sequences, length))
    }

    fn first_places(prompts: usize, length: usize) -> impl Iterator<Item = usize> {
        (1..=prompts).map(move |row| row * length - 1)
    }
}

/// Sequences for a batch, if those before `end` are taken. If llama.cpp cannot keep as many, a batch that is not timed
/// gets the first sequences, whose prompts are read again afterwards.
fn sequences_after(end: usize, batch: usize, is_timed: bool) -> Range<usize> {
    let begin = if end + batch > MOST_SEQUENCES && !is_timed { 0 } else { end };
    begin..begin + batch
}

fn nothing_is_bound() -> CaseFailure {
    CaseFailure::failed("nothing is bound")
}

/// The rows of i64 `[batch, length]`.
fn prompts(inputs: &[HostTensor]) -> Result<Rc<[Vec<Token>]>, CaseFailure> {
    let [HostTensor { shape, data: TensorData::I64(tokens) }] = inputs else {
        return Err(CaseFailure::failed("an input that is not tokens, i64 [batch, length]"));
    };
    let &[rows, length] = shape.as_slice() else {
        return Err(CaseFailure::failed("tokens that are not [batch, length]"));
    };
    if rows == 0 || length == 0 {
        return Err(CaseFailure::failed("an empty prompt"));
    }
    let row = |row: &[i64]| row.iter().map(|&token| Token::try_from(token).unwrap_or(-1)).collect();
    Ok(tokens.chunks_exact(length).map(row).collect())
}

fn as_column(tokens: &[Token]) -> HostTensor {
    HostTensor { shape: vec![tokens.len(), 1], data: TensorData::I64(tokens.iter().map(|&it| i64::from(it)).collect()) }
}

impl Session for LlamaSession {
    fn bind(&mut self, inputs: &[HostTensor]) -> Result<usize, CaseFailure> {
        let prompts = prompts(inputs)?;
        let (batch, length) = (prompts.len(), prompts[0].len());
        let is_timed = !self.is_compared;
        let sequences = self.sequences_beside(batch, is_timed);
        // From the second batch on, there is room for the whole ring at once. A single batch takes only its own room.
        let is_ring = self.phase == Phase::Decode && !self.bound.is_empty();
        let all = if is_ring { (RING * batch).max(sequences.end) } else { sequences.end };
        self.make_room(all, length + self.room())?;
        self.bound.push(Bound { prompts, sequences, is_timed, is_read: false, start: Vec::new(), now: None });
        self.restore()?;
        Ok(self.bound.len() - 1)
    }

    fn reset(&mut self, request: &LoadRequest<'_>) -> Result<(), CaseFailure> {
        self.lengths = Lengths::of(request)?;
        self.phase = request.phase;
        self.bound.clear();
        self.is_compared = false;
        self.context = None;
        Ok(())
    }

    fn calls_in_a_row(&self) -> usize {
        if self.phase == Phase::Decode { self.lengths.steps } else { 1 }
    }

    fn rewind(&mut self, binding: usize) {
        let (mut sequences, prompt) = (self.bound[binding].sequences.clone(), self.prompt_of(binding));
        let has_moved = self.bound[binding].now.take().is_some();
        let Some(context) = self.context.as_mut().filter(|_| has_moved) else { return };
        // The memory of recurrent models cannot go back, so the prompt is read again outside of the timed call. If that
        // fails, the timed call reports why.
        if sequences.any(|sequence| context.forget(sequence, prompt).is_err()) {
            self.bound[binding].is_read = false;
            let _ = self.read_prompt(binding);
        }
    }

    fn run(&mut self, binding: usize) -> Result<(), CaseFailure> {
        if self.phase == Phase::Decode {
            return self.decode(binding);
        }
        let prompts = Rc::clone(&self.bound[binding].prompts);
        self.prefill(&prompts, 0..prompts.len())
    }

    fn sync(&mut self) -> Result<(), CaseFailure> {
        self.context()?.synchronise();
        Ok(())
    }

    fn outputs(&mut self, binding: usize) -> Result<Vec<HostTensor>, CaseFailure> {
        let batch = self.bound[binding].prompts.len();
        self.is_compared = true;
        if self.phase != Phase::Decode {
            self.run(binding)?;
            let mut token = as_column(&self.tokens);
            token.shape.truncate(1);
            let places = Self::first_places(batch, self.prompt_of(binding));
            return Ok(vec![token, compared_logits(&self.logits(places)?)?]);
        }
        self.rewind(binding);
        let mut steps = Vec::new();
        for _ in 0..self.lengths.compared_steps {
            self.decode(binding)?;
            steps.push(as_column(&self.tokens));
        }
        let logits = self.logits(0..batch)?;
        self.rewind(binding);
        self.restore()?;
        Ok(vec![side_by_side(&steps)?, compared_logits(&logits)?])
    }

    fn follow(
        &mut self,
        inputs: &[HostTensor],
        continuation: Continuation<'_>,
    ) -> Result<Vec<NextTokens>, CaseFailure> {
        check_makes_tokens(self.phase)?;
        let (sequences, prompt) = self.read_beside(inputs, continuation.count())?;
        let batch = sequences.len();
        let all = followed(continuation, |before| {
            let Some((number, tokens)) = before else {
                return self.logits(Self::first_places(batch, prompt)).map(Some);
            };
            let tokens: Vec<Token> = tokens.iter().map(|&token| Token::try_from(token).unwrap_or(-1)).collect();
            self.step(&tokens, prompt + number, sequences.clone())?;
            self.logits(0..batch).map(Some)
        })?;
        self.restore()?;
        Ok(all)
    }

    fn first_tokens(&mut self, binding: usize) -> Result<Option<Vec<i64>>, CaseFailure> {
        check_makes_tokens(self.phase)?;
        Ok(Some(self.bound[binding].start.iter().copied().map(i64::from).collect()))
    }

    fn generate(
        &mut self,
        inputs: &[HostTensor],
        tokens: usize,
        made: &mut dyn FnMut(&HostTensor),
    ) -> Result<(), CaseFailure> {
        check_makes_tokens(self.phase)?;
        let (sequences, prompt) = self.read_beside(inputs, tokens)?;
        for number in 0..tokens {
            let token = self.tokens.clone();
            made(&as_column(&token));
            if number + 1 < tokens {
                self.step(&token, prompt + number, sequences.clone())?;
            }
        }
        self.restore()
    }

    /// A call of `prefill` goes from the inputs on the host to the first token on the host.
    fn call_from_host(
        &mut self,
        binding: usize,
        inputs: &[HostTensor],
    ) -> Result<(Vec<HostTensor>, Stages), CaseFailure> {
        check_takes_inputs(self.phase)?;
        let begin = Instant::now();
        self.bound[binding].prompts = prompts(inputs)?;
        let taken = Instant::now();
        self.run(binding)?;
        self.sync()?;
        let computed = Instant::now();
        let token = as_column(&self.tokens);
        let to_host = computed.elapsed();
        Ok((vec![token], Stages { to_device: taken - begin, compute: computed - taken, to_host }))
    }

    fn placement(&self) -> Placement {
        let context = self.context.as_ref();
        let threads = context.and_then(Context::thread_count).filter(|_| self.placement.threads.is_some());
        let batch = context.map_or(String::new(), |context| format!(", batch {}", context.batch()));
        let executor = self.placement.executor.as_ref().map(|executor| format!("{executor}{batch}"));
        Placement { threads, executor, ..self.placement.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timed_batch_shares_its_sequences_with_no_other() {
        let last = MOST_SEQUENCES - 8;
        assert_eq!(sequences_after(last, 8, true), last..MOST_SEQUENCES);
        assert_eq!(sequences_after(last, 8, false), last..MOST_SEQUENCES, "there is room");
        assert_eq!(sequences_after(last, 9, true), last..last + 9, "more than llama.cpp keeps, which is refused");
        assert_eq!(sequences_after(last, 9, false), 0..9);
    }
}
