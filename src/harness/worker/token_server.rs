//! A session that serves requests to a language model: a prompt each, and a number of tokens to generate after it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use crate::backend::{self, Session};
use crate::definition::{CaseFailure, Model, Phase, Sizes};
use crate::fixture::{self, HostTensor};
use crate::harness::protocol::{Job, WorkItem};
use crate::load::{Draws, lengths_of};
use crate::machine::{sharpen_timers, wait_until};
use crate::measurement::serving::{Answer, Serve};
use crate::run_data::{LoadTerms, RequestLengths, TokenLength};

/// The most prompt lengths for which a session may compile before it serves.
const MOST_COMPILED: usize = 32;
/// The number of drawn requests whose lengths the warm-up uses.
const WARM_UP_REQUESTS: usize = 10_000;
/// Minimum number of warm-up requests.
const LEAST_WARM_UP: usize = 3;

/// A session that generates tokens.
pub struct TokenServer {
    session: Box<dyn Session>,
    model: Model,
    lengths: RequestLengths,
    seed: u64,
    /// The tokens of prompt and answer that are used if the lengths do not say them.
    usual: [usize; 2],
    /// Batches of one prompt, by its length.
    prompts: HashMap<usize, Vec<HostTensor>>,
    /// The times of tokens, if they are simulated.
    draws: Option<Draws>,
}

/// Loads a session and warms it up.
///
/// # Errors
/// The case cannot answer requests of these lengths, or the session cannot be loaded.
pub fn open(
    job: &Job,
    item: &WorkItem,
    terms: &LoadTerms,
    lengths: &RequestLengths,
    number: usize,
) -> Result<TokenServer, CaseFailure> {
    let (case, model) = (&item.case, &item.model);
    let generation = model.generation.as_ref().filter(|_| case.phase == Phase::Decode);
    let generation = generation.ok_or_else(|| {
        CaseFailure::unsupported("only the phase `decode` of a model that makes tokens answers with tokens")
    })?;
    if case.batch_size != 1 {
        return Err(CaseFailure::unsupported("a request to a language model is one prompt: use batch size 1"));
    }
    // Where an encoder reads the text, the decoder begins with one token.
    let own_length = || model.prompt_positions(None).map_or(0, |positions| positions - generation.prefix_positions);
    let prompt = case.sequence_length.unwrap_or_else(own_length);
    let backend = backend::find(&case.backend)?;
    let session = backend.load(&job.request(item))?;
    let fixed = if !model.has_sequence() {
        Some(format!("{} takes prompts of {prompt} tokens, and no others", model.name))
    } else {
        let is_fixed = session.placement().has_fixed_sizes;
        is_fixed.then(|| format!("the session is compiled for prompts of {prompt} tokens, and takes no others"))
    };
    // A row of its calls has that many decoding steps.
    let usual = [prompt, session.calls_in_a_row().max(1)];
    let draws = terms.service.map(|service| Draws::of_session(service, terms.seed, number));
    if draws.is_some() {
        sharpen_timers();
    }
    let (model, lengths) = (model.clone(), lengths.clone());
    let mut server =
        TokenServer { session, model, lengths, seed: terms.seed, usual, prompts: HashMap::new(), draws: None };
    let known = match &server.lengths {
        RequestLengths::Listed(all) => {
            all.iter().try_for_each(|&[prompt, tokens]| server.check_fit(prompt, tokens))?;
            all.len()
        }
        RequestLengths::Drawn { .. } => WARM_UP_REQUESTS,
    };
    let prompts: BTreeSet<usize> = (0..known).map(|number| server.lengths(number)[0]).collect();
    if let Some(why) = fixed.filter(|_| prompts.iter().any(|&asked| asked != prompt)) {
        return Err(CaseFailure::unsupported(format!("{why}: `--prompt-tokens {prompt}`")));
    }
    server.warm_up(&prompts, job.effort.warmup.max(backend.least_warm_up_calls()).max(LEAST_WARM_UP))?;
    Ok(TokenServer { draws, ..server })
}

impl TokenServer {
    /// The prompt and output lengths of a request. Log-normal lengths are cut to the model's positions.
    fn lengths(&self, number: usize) -> [usize; 2] {
        let [mut prompt, mut output] = lengths_of(&self.lengths, self.seed, number, self.usual);
        let is_open = |length: &Option<TokenLength>| matches!(length, Some(TokenLength::LogNormal { .. }));
        if let (Some(most), RequestLengths::Drawn { prompt: of_prompt, output: of_output }) =
            (self.most_positions(), &self.lengths)
        {
            if is_open(of_prompt) {
                // An output of a fixed length keeps it; a drawn one has at least one token.
                let after = if is_open(of_output) { 1 } else { output };
                prompt = prompt.saturating_sub((self.positions(prompt) + after).saturating_sub(most)).max(1);
            }
            if is_open(of_output) {
                output = output.min(most.saturating_sub(self.positions(prompt)).max(1));
            }
        }
        [prompt, output]
    }

    fn most_positions(&self) -> Option<usize> {
        self.model.generation.as_ref()?.positions
    }

    /// Positions of the decoder before the first token of the answer.
    fn positions(&self, prompt: usize) -> usize {
        self.model.prompt_positions(Some(prompt)).unwrap_or(prompt)
    }

    /// Answers requests with the prompt lengths that will come. A session that compiles for each length does so here;
    /// if there are too many lengths, it is refused.
    fn warm_up(&mut self, prompts: &BTreeSet<usize>, requests: usize) -> Result<(), CaseFailure> {
        let mut compiled = None;
        // The longest first, so that no memory has to be allocated for it later.
        for (place, &prompt) in prompts.last().into_iter().chain(prompts).enumerate() {
            let before = self.session.compilation();
            // The second token is the first that is decoded, but there may be room for only one.
            let room = self.most_positions().map_or(2, |most| most.saturating_sub(self.positions(prompt)));
            self.answer(prompt, room.clamp(1, 2))?;
            let compiles = place > 0 && self.session.compilation() > before;
            compiled = compiled.or(compiles.then_some(prompt));
            if let Some(prompt) = compiled.filter(|_| prompts.len() > MOST_COMPILED) {
                return Err(CaseFailure::unsupported(format!(
                    "the backend compiles for each length of a prompt, as for {prompt} tokens, and there are {} lengths: use \
                     `--prompt-tokens {}`, or `--lengths FILE` with at most {MOST_COMPILED} of them",
                    prompts.len(),
                    self.usual[0]
                )));
            }
            if compiled.is_none() && place + 1 >= requests {
                break;
            }
        }
        (0..requests).try_for_each(|number| {
            let [prompt, tokens] = self.lengths(number);
            self.answer(prompt, tokens).map(drop)
        })
    }

    fn check_fit(&self, prompt: usize, tokens: usize) -> Result<(), CaseFailure> {
        match self.most_positions().filter(|most| self.positions(prompt) + tokens > *most) {
            Some(most) => Err(CaseFailure::unsupported(format!(
                "a prompt of {prompt} tokens and {tokens} after it do not fit into the {most} positions of {}",
                self.model.name
            ))),
            None => Ok(()),
        }
    }

    fn answer(&mut self, prompt: usize, tokens: usize) -> Result<Answer, CaseFailure> {
        self.check_fit(prompt, tokens)?;
        let inputs = match self.prompts.entry(prompt) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                new.insert(fixture::batch(&self.model, None, 0, Sizes { batch: 1, sequence: Some(prompt) })?)
            }
        };
        let mut times = Vec::with_capacity(tokens);
        let mut last = Instant::now();
        let draws = &mut self.draws;
        self.session.generate(inputs, tokens, &mut |_| {
            if let Some(time) = draws.as_mut().and_then(Iterator::next) {
                last += time;
                wait_until(last);
            }
            times.push(Instant::now());
        })?;
        Ok(Answer { prompt_tokens: prompt, tokens: times, ..Answer::default() })
    }
}

impl Serve for TokenServer {
    fn serve(&mut self, first: usize, _: usize) -> Result<Answer, CaseFailure> {
        let [prompt, tokens] = self.lengths(first);
        self.answer(prompt, tokens)
    }
}
