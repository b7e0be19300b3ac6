//! How a server is spoken to: which requests it gets, and what a right answer is.

mod grpc;
mod measurement;
mod openai;
mod template;
mod tensors;
mod v2;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde::Deserialize;
use strum::Display;

use super::connection::{Call, Connection, Reader, Seen};
use super::fault::{Fault, Kind};
use super::notes::WholeTokens;
use super::target::Target;
use crate::definition::{Dtype, Model, Phase, TensorSpec};
use crate::fixture::seeded::Stream;
use crate::run_data::RequestLengths;
use crate::texts::TokenCounter;

pub use openai::USUAL_TOKENS;
pub use tensors::Right;

/// The protocols by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, ValueEnum)]
#[strum(serialize_all = "kebab-case")]
pub enum ProtocolName {
    /// The Open Inference Protocol v2: KServe, Triton, MLServer, OpenVINO Model Server
    V2,
    /// The same over gRPC
    Grpc,
    /// OpenAI's chat completions: vLLM, SGLang, llama-server, Ollama
    Chat,
    /// OpenAI's completions
    Completions,
    /// OpenAI's embeddings
    Embeddings,
    /// A measurement by `inferbench serve`
    Inferbench,
    /// Any other: `--template` says how
    Template,
}

/// How requests are made, as a user says it.
#[derive(Clone, Default)]
pub struct Wishes {
    pub protocol: Option<ProtocolName>,
    /// The model's name on the server.
    pub model: Option<String>,
    pub batch_size: usize,
    pub sequence_length: Option<usize>,
    pub is_binary: bool,
    pub is_whole: bool,
    /// Fields that requests have besides, as JSON.
    pub fields: Vec<(String, serde_json::Value)>,
    /// Inputs in place of what the server says of them.
    pub inputs: Vec<TensorSpec>,
    pub texts: Option<Vec<String>>,
    /// Counts tokens where the server does not.
    pub tokenizer: Option<Arc<TokenCounter>>,
    pub template: Option<PathBuf>,
    pub seed: u64,
    pub lengths: Option<RequestLengths>,
    /// Whether a file was named for `lengths`.
    pub has_lengths_file: bool,
}

/// Words of a text whose length is not said.
const WORDS: usize = 16;

impl Wishes {
    /// The text of this number: the user's texts take turns, and others are seeded words.
    fn text(&self, turn: Turn, number: usize, words: usize) -> String {
        match &self.texts {
            Some(texts) => texts[number % texts.len()].clone(),
            None => seeded_words(turn.seed(self.seed), number, words),
        }
    }
}

/// A model behind a server.
pub trait Protocol: Send + Sync {
    /// The protocol with its form: `v2 json`, `chat stream`.
    fn name(&self) -> String;

    /// The request of this turn. The same turn is the same request.
    fn call(&self, turn: Turn) -> Call;

    /// What reads the answer to the request of this turn.
    fn reader(&self, turn: Turn) -> Box<dyn AnswerReader>;
}

/// The place of a request in a load test. Its number in the trial says how long it is. No other request has its content, also not one of another
/// trial, so that a cache of the server does not answer it.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub trial: usize,
    pub number: usize,
}

impl Turn {
    /// The seed of the content of its trial.
    fn seed(self, seed: u64) -> u64 {
        const STEP: u64 = 0xD1B5_4A32_D192_ED03;
        seed.wrapping_add((self.trial as u64).wrapping_mul(STEP))
    }

    /// The numbers of its seeded samples.
    fn samples(self, seed: u64, batch_size: usize) -> Vec<usize> {
        let first = (Stream::new(self.seed(seed), "request").at(0) >> 16) as usize + self.number * batch_size;
        (first..first + batch_size).collect()
    }
}

/// Reads one answer.
pub trait AnswerReader: Reader {
    /// Checks the answer when it is whole.
    ///
    /// # Errors
    /// It is not a right one.
    fn check(&mut self, seen: &Seen) -> Result<Checked, Fault>;
}

/// What is known of a right answer besides its time.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    pub prompt_tokens: usize,
    /// When parts of the answer with tokens were there, and how many tokens they have together.
    pub tokens: Vec<Instant>,
    pub token_count: Option<usize>,
    /// Tokens of an answer that came as a whole.
    pub whole: Option<WholeTokens>,
    /// By what the tokens were counted.
    pub tokens_by: Option<Cow<'static, str>>,
}

/// What a server says about itself and its model.
pub struct Described {
    pub protocol: Box<dyn Protocol>,
    /// The model's name on the server.
    pub model: String,
    pub server: Option<String>,
    pub dtype: Dtype,
    pub phase: Phase,
    pub input_shape: Option<String>,
}

impl Described {
    /// A model of which nothing else is known.
    fn new(protocol: impl Protocol + 'static, model: String) -> Self {
        let (dtype, phase) = (Dtype::default(), Phase::Forward);
        Described { protocol: Box::new(protocol), model, server: None, dtype, phase, input_shape: None }
    }

    /// Whether answers consist of tokens.
    pub fn makes_tokens(&self) -> bool {
        self.phase == Phase::Decode
    }
}

/// Asks the server which protocol it speaks, unless that is known, and describes the model.
///
/// # Errors
/// What was asked for is wrong, or the server has a fault.
pub fn describe(
    connection: &mut Connection,
    target: &Target,
    wishes: &Wishes,
    right: impl FnOnce(&Model) -> Result<Option<Right>>,
) -> Result<Described> {
    let of_scheme = target.is_grpc.then_some(ProtocolName::Grpc);
    let of_template = wishes.template.is_some().then_some(ProtocolName::Template);
    let protocol = match wishes.protocol.or(of_scheme).or(of_template).or_else(|| by_path(&target.path)) {
        Some(protocol) => protocol,
        None => by_asking(connection, target)?.with_context(|| {
            format!(
                "{} answers neither /v2 nor /v1/models nor /api/v1/openapi.json: say what it speaks by `--protocol`",
                target.shown()
            )
        })?,
    };
    ensure!(
        !target.is_grpc || protocol == ProtocolName::Grpc,
        "{} is an address of gRPC: begin it with http:// for the protocol {protocol}",
        target.shown()
    );
    check_wishes(protocol, wishes)?;
    match protocol {
        ProtocolName::V2 => v2::describe(connection, target, wishes, right),
        ProtocolName::Grpc => grpc::describe(connection, target, wishes, right),
        ProtocolName::Chat | ProtocolName::Completions | ProtocolName::Embeddings => {
            openai::describe(connection, target, wishes, protocol)
        }
        ProtocolName::Inferbench => measurement::describe(connection, target, wishes),
        ProtocolName::Template => template::describe(target, wishes),
    }
}

/// # Errors
/// A flag has no meaning in this protocol, and would be ignored.
fn check_wishes(protocol: ProtocolName, wishes: &Wishes) -> Result<()> {
    use ProtocolName::{Chat, Completions, Embeddings, Grpc, Template, V2};
    // `--input` and `--seq-lens` are not among them: they may come from variables that are exported for `cargo bench`.
    let are_lengths_drawn = matches!(wishes.lengths, Some(RequestLengths::Drawn { .. }));
    let flags: [(&str, bool, &[ProtocolName]); 7] = [
        ("--binary", wishes.is_binary, &[V2, Grpc]),
        ("--no-stream", wishes.is_whole, &[Chat, Completions]),
        ("--tokenizer", wishes.tokenizer.is_some(), &[Chat, Completions]),
        ("--field", !wishes.fields.is_empty(), &[Chat, Completions, Embeddings]),
        ("--template", wishes.template.is_some(), &[Template]),
        ("--prompt-tokens or --output-tokens", are_lengths_drawn, &[Chat, Completions, Embeddings]),
        ("--lengths", wishes.has_lengths_file, &[Chat, Completions, Embeddings]),
    ];
    match flags.iter().find(|(_, is_given, of)| *is_given && !of.contains(&protocol)) {
        Some((flag, ..)) => bail!("{flag} means nothing in the protocol {protocol}: leave it out"),
        None => Ok(()),
    }
}

/// The path says it, if it is the whole path of a request: by its end, or by what stands before the name of a model.
fn by_path(path: &str) -> Option<ProtocolName> {
    const PARTS: [(&str, ProtocolName); 5] = [
        ("/chat/completions", ProtocolName::Chat),
        ("/completions", ProtocolName::Completions),
        ("/embeddings", ProtocolName::Embeddings),
        ("/v2/models/", ProtocolName::V2),
        ("/api/v1/benchmark/", ProtocolName::Inferbench),
    ];
    let has = |part: &str| if part.ends_with('/') { path.contains(part) } else { path.ends_with(part) };
    PARTS.into_iter().find(|(part, _)| has(part)).map(|(_, protocol)| protocol)
}

fn by_asking(connection: &mut Connection, target: &Target) -> Result<Option<ProtocolName>, Fault> {
    let base = base_of(&target.path, &["/v1", "/v2"]);
    for (path, protocol) in [
        ("/v2", ProtocolName::V2),
        ("/v1/models", ProtocolName::Chat),
        ("/api/v1/openapi.json", ProtocolName::Inferbench),
    ] {
        if get_json(connection, &format!("{base}{path}"))?.is_some() {
            return Ok(Some(protocol));
        }
    }
    Ok(None)
}

/// The path before the first of these.
fn base_of<'a>(path: &'a str, parts: &[&str]) -> &'a str {
    let ends = parts.iter().filter_map(|part| {
        path.find(&format!("{part}/")).or_else(|| path.len().checked_sub(part.len()).filter(|_| path.ends_with(part)))
    });
    &path[..ends.min().unwrap_or(path.len())]
}

/// Reads an answer as a whole, and then checks its body.
fn whole(check: impl FnMut(&mut Vec<u8>, &Seen) -> Result<Checked, Fault> + 'static) -> Box<dyn AnswerReader> {
    Box::new(Whole { body: Vec::new(), check })
}

struct Whole<F> {
    body: Vec<u8>,
    check: F,
}

impl<F> Reader for Whole<F> {
    fn part(&mut self, bytes: &[u8], _: Instant) -> Result<(), Fault> {
        self.body.extend_from_slice(bytes);
        Ok(())
    }
}

impl<F: FnMut(&mut Vec<u8>, &Seen) -> Result<Checked, Fault>> AnswerReader for Whole<F> {
    fn check(&mut self, seen: &Seen) -> Result<Checked, Fault> {
        (self.check)(&mut self.body, seen)
    }
}

/// Reads the JSON of an answer.
fn parsed<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Fault> {
    serde_json::from_slice(body).map_err(|error| {
        let text = String::from_utf8_lossy(body);
        // Python's servers write numbers that are no JSON.
        if ["NaN", "Infinity"].iter().any(|word| text.contains(word)) {
            return Fault::new(Kind::NotFinite, "the answer has a value that is not finite");
        }
        Fault::new(Kind::WrongType, format!("the answer is no answer of the protocol: {error}"))
    })
}

/// Bytes of what a server says about itself.
const MOST_DESCRIPTION: usize = 16 << 20;

/// What a server says about itself.
#[derive(Default)]
struct Description(Vec<u8>);

impl Reader for Description {
    fn part(&mut self, bytes: &[u8], _: Instant) -> Result<(), Fault> {
        if self.0.len() + bytes.len() > MOST_DESCRIPTION {
            let why = format!("what the server says about itself has more than {MOST_DESCRIPTION} bytes");
            return Err(Fault::new(Kind::TooLarge, why));
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// The JSON at a path. Returns `None` if the server has nothing there.
fn get_json(connection: &mut Connection, path: &str) -> Result<Option<serde_json::Value>, Fault> {
    json_answer(connection, &Call::get(path))
}

fn json_answer(connection: &mut Connection, call: &Call) -> Result<Option<serde_json::Value>, Fault> {
    let (mut seen, mut body) = (Seen::default(), Description::default());
    match connection.exchange(call, &mut seen, &mut body) {
        Ok(()) => Ok(serde_json::from_slice(&body.0).ok()),
        Err(fault) if matches!(fault.kind, Kind::ClientError | Kind::ServerError | Kind::Redirect) => {
            // Who may not ask is told so, and not that there is nothing.
            let is_refused = seen.status.is_some_and(|status| matches!(status.as_u16(), 401 | 403));
            if is_refused { Err(fault) } else { Ok(None) }
        }
        Err(fault) => Err(fault),
    }
}

/// Texts that differ for each number, of so many words; a word of this list is one token in most vocabularies.
fn seeded_words(seed: u64, number: usize, words: usize) -> String {
    const WORDS: [&str; 64] = [
        "time", "people", "water", "house", "world", "school", "family", "city", "hand", "day", "night", "year",
        "book", "story", "music", "light", "street", "river", "garden", "window", "table", "letter", "friend", "child",
        "mother", "father", "morning", "summer", "winter", "market", "train", "ship", "road", "field", "forest",
        "mountain", "sea", "king", "war", "peace", "law", "power", "money", "work", "game", "team", "food", "bread",
        "fish", "horse", "dog", "bird", "tree", "stone", "fire", "wind", "rain", "snow", "gold", "paper", "door",
        "wall", "bridge", "tower",
    ];
    let stream = Stream::new(seed, "prompt");
    let first = (number as u64) << 24;
    let word = |place: usize| WORDS[(stream.at(first + place as u64) % WORDS.len() as u64) as usize];
    (0..words.max(1)).map(word).collect::<Vec<_>>().join(" ")
}

/// Reads a field of requests as a user writes it: `ignore_eos=true`, `stop="."`. What is no JSON is a text.
///
/// # Errors
/// It has no `=`.
pub fn parse_field(text: &str) -> Result<(String, serde_json::Value)> {
    let (name, value) = text.split_once('=').context("write it as NAME=VALUE, such as ignore_eos=true")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| serde_json::Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_an_address_may_say_the_protocol() {
        assert_eq!(by_path("/v1/chat/completions"), Some(ProtocolName::Chat));
        assert_eq!(by_path("/v1/completions"), Some(ProtocolName::Completions));
        assert_eq!(by_path("/x/v2/models/digits/infer"), Some(ProtocolName::V2));
        assert_eq!(by_path("/api/v1/benchmark/digits"), Some(ProtocolName::Inferbench));
        assert_eq!(by_path("/v1"), None);
        let bases = ["", "/v1", "/x/v1/models", "/x", "/v2/models/a"].map(|path| base_of(path, &["/v1", "/v2"]));
        assert_eq!(bases, ["", "", "/x", "/x", ""]);
    }

    #[test]
    fn flags_of_another_protocol_are_refused() {
        let of = |protocol, wishes: &Wishes| check_wishes(protocol, wishes).map_err(|error| error.to_string());
        let binary = Wishes { is_binary: true, ..Wishes::default() };
        assert!(of(ProtocolName::V2, &binary).is_ok() && of(ProtocolName::Grpc, &binary).is_ok());
        let error = of(ProtocolName::Chat, &binary).unwrap_err();
        assert_eq!(error, "--binary means nothing in the protocol chat: leave it out");
        let template = Wishes { template: Some("template.toml".into()), ..Wishes::default() };
        assert!(of(ProtocolName::Template, &template).is_ok());
        assert!(of(ProtocolName::Chat, &template).unwrap_err().starts_with("--template"));
        let length = Wishes { sequence_length: Some(64), ..Wishes::default() };
        assert!(
            [ProtocolName::V2, ProtocolName::Completions].into_iter().all(|protocol| of(protocol, &length).is_ok())
        );
        let tokens =
            Wishes { lengths: Some(RequestLengths::Drawn { prompt: None, output: None }), ..Wishes::default() };
        assert!(of(ProtocolName::Chat, &tokens).is_ok());
        assert!(of(ProtocolName::V2, &tokens).unwrap_err().starts_with("--prompt-tokens or --output-tokens means"));
        let listed = |has_lengths_file| Wishes {
            lengths: Some(RequestLengths::Listed(vec![[8, 4]])),
            has_lengths_file,
            ..Wishes::default()
        };
        assert!(of(ProtocolName::V2, &listed(true)).unwrap_err().starts_with("--lengths means"));
        assert!(of(ProtocolName::V2, &listed(false)).is_ok(), "a trace has more than lengths");
    }

    #[test]
    fn prompts_differ_and_are_those_of_the_seed() {
        let prompts: std::collections::BTreeSet<String> = (0..500).map(|number| seeded_words(1, number, 8)).collect();
        assert_eq!(prompts.len(), 500);
        assert_eq!(seeded_words(1, 3, 8), seeded_words(1, 3, 8));
        assert_ne!(seeded_words(1, 3, 8), seeded_words(2, 3, 8));
        assert_eq!(seeded_words(1, 0, 5).split(' ').count(), 5);
    }

    #[test]
    fn no_trial_repeats_the_requests_of_another_one() {
        let turns =
            |seed: u64| (0..5).flat_map(move |trial| (0..100).map(move |number| (seed, Turn { trial, number })));
        let all = || (1..4).flat_map(turns);
        let prompts: std::collections::BTreeSet<String> =
            all().map(|(seed, turn)| seeded_words(turn.seed(seed), turn.number, 16)).collect();
        let samples: std::collections::BTreeSet<usize> = all().flat_map(|(seed, turn)| turn.samples(seed, 2)).collect();
        assert_eq!((prompts.len(), samples.len()), (1500, 3000));
    }

    #[test]
    fn a_field_is_json_or_a_text() {
        assert_eq!(parse_field("ignore_eos=true").unwrap(), ("ignore_eos".into(), true.into()));
        assert_eq!(parse_field("stop=end").unwrap(), ("stop".into(), "end".into()));
        assert!(parse_field("x").is_err());
    }
}
