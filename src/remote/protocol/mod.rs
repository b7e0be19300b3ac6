//! The protocols of servers: which requests they take, and which answers are right.

mod grpc;
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

/// The names of the protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, ValueEnum)]
#[strum(serialize_all = "kebab-case")]
pub enum ProtocolName {
    /// The Open Inference Protocol v2: KServe, Triton, MLServer, OpenVINO Model Server
    V2,
    /// The Open Inference Protocol v2 over gRPC
    Grpc,
    /// OpenAI's chat completions: vLLM, SGLang, llama-server, Ollama
    Chat,
    /// OpenAI's completions
    Completions,
    /// OpenAI's embeddings
    Embeddings,
    /// Any other: `--template` says how
    Template,
}

/// The user's flags about requests.
#[derive(Clone, Default)]
pub struct Wishes {
    pub protocol: Option<ProtocolName>,
    /// The model's name on the server.
    pub model: Option<String>,
    pub batch_size: usize,
    pub sequence_length: Option<usize>,
    pub is_binary: bool,
    pub is_whole: bool,
    /// Further fields of requests, as JSON.
    pub fields: Vec<(String, serde_json::Value)>,
    /// Descriptions of inputs that replace the server's.
    pub inputs: Vec<TensorSpec>,
    pub texts: Option<Vec<String>>,
    /// Counts tokens if the server does not.
    pub tokenizer: Option<Arc<TokenCounter>>,
    pub template: Option<PathBuf>,
    pub seed: u64,
    pub lengths: Option<RequestLengths>,
    /// Whether `lengths` come from `--lengths`.
    pub has_lengths_file: bool,
}

/// Words of a text without a given length.
const WORDS: usize = 16;

impl Wishes {
    /// The text with this number: the user's texts in turn, or seeded words.
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

    /// The request of this turn, which depends on nothing else.
    fn call(&self, turn: Turn) -> Call;

    /// The reader of the answer to this turn's request.
    fn reader(&self, turn: Turn) -> Box<dyn AnswerReader>;
}

/// The place of a request in a load test. The number in the trial determines the lengths of the prompt and the answer.
/// The content differs from that of all other requests, also of other trials, so that no cache answers it.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub trial: usize,
    pub number: usize,
}

impl Turn {
    /// The seed of the contents in this trial.
    fn seed(self, seed: u64) -> u64 {
        const STEP: u64 = 0xD1B5_4A32_D192_ED03;
        seed.wrapping_add((self.trial as u64).wrapping_mul(STEP))
    }

    /// The numbers of the request's seeded samples.
    fn samples(self, seed: u64, batch_size: usize) -> Vec<usize> {
        let first = (Stream::new(self.seed(seed), "request").at(0) >> 16) as usize + self.number * batch_size;
        (first..first + batch_size).collect()
    }
}

/// Reads one answer.
pub trait AnswerReader: Reader {
    /// Checks the whole answer.
    ///
    /// # Errors
    /// The answer is wrong.
    fn check(&mut self, seen: &Seen) -> Result<Checked, Fault>;
}

/// What a right answer says besides its time.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    pub prompt_tokens: usize,
    /// When each event with tokens came, and how many tokens the events have together.
    pub tokens: Vec<Instant>,
    pub token_count: Option<usize>,
    /// The tokens of an answer that was not streamed.
    pub whole: Option<WholeTokens>,
    /// How tokens were counted: `usage`, a tokenizer, or `events`.
    pub tokens_by: Option<Cow<'static, str>>,
    /// Whether outputs may have fewer rows than the request has samples.
    pub lacks_rows: bool,
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
    /// A description with the protocol and the model's name only.
    fn new(protocol: impl Protocol + 'static, model: String) -> Self {
        let (dtype, phase) = (Dtype::default(), Phase::Forward);
        Described { protocol: Box::new(protocol), model, server: None, dtype, phase, input_shape: None }
    }

    /// Whether answers consist of tokens.
    pub fn makes_tokens(&self) -> bool {
        self.phase == Phase::Decode
    }
}

/// Finds out which protocol the server speaks, unless it is given, and describes the model. `right` makes inputs and
/// right outputs for the model.
///
/// # Errors
/// The user's flags are wrong, or the server has a [`Fault`].
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
            format!("{} answers neither /v2 nor /v1/models: name its protocol with `--protocol`", target.shown())
        })?,
    };
    ensure!(
        !target.is_grpc || protocol == ProtocolName::Grpc,
        "{} is a gRPC address: begin it with http:// for the protocol {protocol}",
        target.shown()
    );
    check_wishes(protocol, wishes)?;
    match protocol {
        ProtocolName::V2 => v2::describe(connection, target, wishes, right),
        ProtocolName::Grpc => grpc::describe(connection, target, wishes, right),
        ProtocolName::Chat | ProtocolName::Completions | ProtocolName::Embeddings => {
            openai::describe(connection, target, wishes, protocol)
        }
        ProtocolName::Template => template::describe(target, wishes),
    }
}

/// # Errors
/// A flag has no effect in this protocol.
fn check_wishes(protocol: ProtocolName, wishes: &Wishes) -> Result<()> {
    use ProtocolName::{Chat, Completions, Embeddings, Grpc, Template, V2};
    // `--input` and `--seq-lens` are missing here, because they may come from variables exported for `cargo bench`.
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
    if let Some((flag, ..)) = flags.iter().find(|(_, is_given, of)| *is_given && !of.contains(&protocol)) {
        bail!("{flag} has no effect in the protocol {protocol}: leave it out, or pass another `--protocol`");
    }
    let has_prompt_length = matches!(wishes.lengths, Some(RequestLengths::Drawn { prompt: Some(_), .. }));
    ensure!(
        wishes.texts.is_none() || !has_prompt_length,
        "the prompts are the lines of `--text`: leave `--prompt-tokens` out"
    );
    Ok(())
}

/// The protocol of a whole request's path, by its end or by the part before a model's name.
fn by_path(path: &str) -> Option<ProtocolName> {
    const PARTS: [(&str, ProtocolName); 4] = [
        ("/chat/completions", ProtocolName::Chat),
        ("/completions", ProtocolName::Completions),
        ("/embeddings", ProtocolName::Embeddings),
        ("/v2/models/", ProtocolName::V2),
    ];
    let has = |part: &str| if part.ends_with('/') { path.contains(part) } else { path.ends_with(part) };
    PARTS.into_iter().find(|(part, _)| has(part)).map(|(_, protocol)| protocol)
}

fn by_asking(connection: &mut Connection, target: &Target) -> Result<Option<ProtocolName>, Fault> {
    let base = base_of(&target.path, &["/v1", "/v2"]);
    for (path, protocol) in [("/v2", ProtocolName::V2), ("/v1/models", ProtocolName::Chat)] {
        if get_json(connection, &format!("{base}{path}"))?.is_some() {
            return Ok(Some(protocol));
        }
    }
    Ok(None)
}

/// The path before the first of these parts.
fn base_of<'a>(path: &'a str, parts: &[&str]) -> &'a str {
    let ends = parts.iter().filter_map(|part| {
        path.find(&format!("{part}/")).or_else(|| path.len().checked_sub(part.len()).filter(|_| path.ends_with(part)))
    });
    &path[..ends.min().unwrap_or(path.len())]
}

/// A reader that collects the body and then checks it.
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
        // Servers in Python write `NaN` and `Infinity`, which JSON does not have.
        if ["NaN", "Infinity"].iter().any(|word| text.contains(word)) {
            return Fault::new(Kind::NotFinite, "the answer has a value that is not finite");
        }
        Fault::new(Kind::WrongType, format!("the answer does not follow the protocol: {error}"))
    })
}

/// The most bytes of a server's description.
const MOST_DESCRIPTION: usize = 16 << 20;

/// A server's description of itself or its model.
#[derive(Default)]
struct Description(Vec<u8>);

impl Reader for Description {
    fn part(&mut self, bytes: &[u8], _: Instant) -> Result<(), Fault> {
        if self.0.len() + bytes.len() > MOST_DESCRIPTION {
            let why = format!("the server's description has more than {MOST_DESCRIPTION} bytes");
            return Err(Fault::new(Kind::TooLarge, why));
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// The JSON at this path. Returns `None` if the server has no JSON there.
fn get_json(connection: &mut Connection, path: &str) -> Result<Option<serde_json::Value>, Fault> {
    json_answer(connection, &Call::get(path))
}

fn json_answer(connection: &mut Connection, call: &Call) -> Result<Option<serde_json::Value>, Fault> {
    let (mut seen, mut body) = (Seen::default(), Description::default());
    match connection.exchange(call, &mut seen, &mut body) {
        Ok(()) => Ok(serde_json::from_slice(&body.0).ok()),
        Err(fault) if matches!(fault.kind, Kind::ClientError | Kind::ServerError | Kind::Redirect) => {
            // A refused user has to see the refusal, and not that nothing is there.
            let is_refused = seen.status.is_some_and(|status| matches!(status.as_u16(), 401 | 403));
            if is_refused { Err(fault) } else { Ok(None) }
        }
        Err(fault) => Err(fault),
    }
}

/// A text of this many words that differs for each number. Each word is one token in most vocabularies.
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

/// Parses a field of requests such as `ignore_eos=true` or `stop="."`. A value that is not JSON is a text.
///
/// # Errors
/// There is no `=`.
pub fn parse_field(text: &str) -> Result<(String, serde_json::Value)> {
    let (name, value) = text.split_once('=').context("write it as NAME=VALUE, such as ignore_eos=true")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| serde_json::Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_data::TokenLength;

    #[test]
    fn the_path_of_an_address_may_say_the_protocol() {
        assert_eq!(by_path("/v1/chat/completions"), Some(ProtocolName::Chat));
        assert_eq!(by_path("/v1/completions"), Some(ProtocolName::Completions));
        assert_eq!(by_path("/x/v2/models/digits/infer"), Some(ProtocolName::V2));
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
        assert_eq!(error, "--binary has no effect in the protocol chat: leave it out, or pass another `--protocol`");
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
        assert!(of(ProtocolName::V2, &tokens).unwrap_err().starts_with("--prompt-tokens or --output-tokens has"));
        let texts = |prompt: Option<TokenLength>| Wishes {
            texts: Some(vec!["a".into()]),
            lengths: Some(RequestLengths::Drawn { prompt, output: None }),
            ..Wishes::default()
        };
        assert!(of(ProtocolName::Chat, &texts(None)).is_ok());
        let error = of(ProtocolName::Chat, &texts(Some(TokenLength::Fixed(32)))).unwrap_err();
        assert_eq!(error, "the prompts are the lines of `--text`: leave `--prompt-tokens` out");
        let listed = |has_lengths_file| Wishes {
            lengths: Some(RequestLengths::Listed(vec![[8, 4]])),
            has_lengths_file,
            ..Wishes::default()
        };
        assert!(of(ProtocolName::V2, &listed(true)).unwrap_err().starts_with("--lengths has"));
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
